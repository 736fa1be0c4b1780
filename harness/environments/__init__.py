"""The three worlds a target runs in: simulation, local processes, Docker containers."""
