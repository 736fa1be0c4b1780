"""Workloads whose clients have a state: positions in logs, leases, or registers of their own."""
