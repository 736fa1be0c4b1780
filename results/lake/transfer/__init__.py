"""Moves runs into a lake, and exports them again."""
