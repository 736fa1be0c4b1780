"""One node as a container: its keeper, volume, disk and clock."""
