"""Faults of links between containers: packet rules, bad streams, and who else interferes."""
