"""Checkers for the catalog: linearizability, invariants, staleness and membership."""
