"""The lake: runs of many workers in Delta tables, on local disks or object storage."""
