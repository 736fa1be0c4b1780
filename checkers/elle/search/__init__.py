"""Cycles in dependency graphs."""
