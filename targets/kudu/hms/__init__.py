"""The part of the masters that keeps Kudu's tables in sync with a Hive Metastore (`--hms`)."""
