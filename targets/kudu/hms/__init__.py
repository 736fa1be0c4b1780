"""Kudu's tables in the Hive Metastore: the masters' side of it, with `--hms`."""
