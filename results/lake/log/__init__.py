"""Delta tables that change together: log, files, snapshots, appends."""
