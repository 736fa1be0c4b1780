"""What all checkers of runs share: permits, disturbances, named invariants."""
