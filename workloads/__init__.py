"""Workloads: the operations that clients request from a target, one small file each."""
