"""The common parts of checkers of runs: findings, permits, disturbances, named invariants."""
