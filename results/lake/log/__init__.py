"""Several Delta tables that change together: their logs, files, snapshots and appends."""
