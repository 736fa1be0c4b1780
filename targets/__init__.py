"""Targets: the systems under test, each declared as nodes plus a client for its protocol."""
