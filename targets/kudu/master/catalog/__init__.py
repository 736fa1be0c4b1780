"""The catalog of tables and tablets: maps, records, planners of DDL."""
