"""Runs one case on two targets, one of which re-creates the other, and shows how they differ."""
