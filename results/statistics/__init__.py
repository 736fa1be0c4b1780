"""Intervals, tests and curves that no library has."""
