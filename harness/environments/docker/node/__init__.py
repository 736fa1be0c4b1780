"""One node as a container, with its keeper, volume, disk and clock."""
