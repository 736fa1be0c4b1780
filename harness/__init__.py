"""Chaos testing for replicated catalogs: deploy, break, and prove what was kept."""

__version__ = "0.1.0"
