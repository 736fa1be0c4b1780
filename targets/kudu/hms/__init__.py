"""The masters' part of the synchronization of Kudu's tables with a Hive Metastore (`--hms`)."""
