"""Invariants of the catalog: on the final snapshot of all nodes, and along the history."""

from checkers.catalog.checker import CatalogInvariantsChecker

__all__ = ["CatalogInvariantsChecker"]
