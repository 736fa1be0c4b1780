"""Several Delta tables that change together, with their logs, files, snapshots and appends."""
