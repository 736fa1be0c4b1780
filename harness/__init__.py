"""Chaos testing for replicated catalogs: deploy, break, and prove that promises hold."""

__version__ = "0.1.0"
