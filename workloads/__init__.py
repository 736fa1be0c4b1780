"""Workloads: what clients ask of a target, one small file each."""
