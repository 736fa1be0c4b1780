"""The bundled Hive Metastore: stateless metastores over one transactional database, on `Env`."""
