"""Workloads whose clients keep a state: the logs that they poll, leases, registers of their own."""
