"""A disk of ours for programs that know nothing of us: a FUSE file system over their data folder.

`native/fusedisk` is the file system, one process a node; `disk` drives it, `mounts` sees to it that
no mount is left, `available` says whether it can be had here.
"""
