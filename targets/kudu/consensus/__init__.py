"""Raft: a core without IO, and a shell that gives the core a clock, a disk and its peers."""
