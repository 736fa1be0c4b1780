"""A FUSE disk of the harness, for the data folders of foreign programs.

The program `native/fusedisk` implements the file system, with one process per node. The module
`disk` drives this program, `mounts` removes mounts, and `available` checks the requirements.
"""
