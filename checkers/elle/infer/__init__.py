"""Dependencies between transactions, inferred from what they read and wrote."""
