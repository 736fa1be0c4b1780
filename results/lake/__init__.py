"""The lake stores the runs of many workers in Delta tables, on local disks or object storage."""
