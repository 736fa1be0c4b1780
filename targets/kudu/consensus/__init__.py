"""Raft: a sans-IO core, and the shell that gives it a clock, a disk and peers."""
