"""The bundled target: Apache Kudu's masters and tablet servers, re-created on `Env`."""
