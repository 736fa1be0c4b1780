"""Intervals, tests and curves that no library of ours has."""
