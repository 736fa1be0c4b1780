"""Twins: one case on two targets, one the re-creation of the other, and the differences."""
