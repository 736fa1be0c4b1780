"""Turns options into a complete, checked case, before anything starts."""
