"""Checkers of the behaviour of a system: liveness, crashes, bounds and statistics."""
