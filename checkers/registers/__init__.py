"""Checkers of registers."""
