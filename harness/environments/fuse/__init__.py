"""A FUSE disk of the harness under the data folder of foreign programs.

The program `native/fusedisk` implements the file system, with one process per node. The module
`disk` drives this program, `mounts` removes all mounts, and `available` checks the requirements.
"""
