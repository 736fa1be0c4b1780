"""Nodes as data: what a target declares about them, what can degrade, and who is calling."""
