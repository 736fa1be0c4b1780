"""The catalog: its linearizability, invariants, staleness and members."""
