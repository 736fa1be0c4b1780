"""What processes and containers share: `Env` over a real network, disk and clock."""
