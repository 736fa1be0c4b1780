"""Extracts facts from a run's history, as small tables that can be summed over many runs."""
