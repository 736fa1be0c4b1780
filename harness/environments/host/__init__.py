"""What nodes in processes and in containers share: `Env` over a real network, disk and clock."""
