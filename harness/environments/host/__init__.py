"""The common parts of processes and containers: `Env` over a real network, disk and clock."""
