"""The catalog of tables and tablets: records, maps in memory, and the planners of DDL."""
