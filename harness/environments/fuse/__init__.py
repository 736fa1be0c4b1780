"""A disk of ours for programs that know nothing of us: a FUSE file system over their data folder.

`native/fusedisk` is the file system, one process per node; `disk` drives it, `mounts` removes all
mounts, `available` checks the requirements.
"""
