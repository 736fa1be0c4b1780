"""A FUSE disk of the harness under the data folder of foreign programs.

`native/fusedisk` is the file system, one process per node; `disk` drives it, `mounts` removes all
mounts, `available` checks the requirements.
"""
