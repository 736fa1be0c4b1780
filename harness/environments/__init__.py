"""The three environments in which a target runs: simulation, local processes, Docker containers."""
