"""Raft: a core without IO, and a shell that connects it to a clock, a disk and its peers."""
