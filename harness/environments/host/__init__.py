"""The common part of nodes in processes and containers: `Env` over real network, disk, clock."""
