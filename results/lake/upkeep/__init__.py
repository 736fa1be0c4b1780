"""Maintenance of a lake: merge small files, remove dead ones, check soundness."""
