"""Checks invariants of the catalog, on the final snapshot of all nodes and along the history."""

from checkers.catalog.invariants.checker import CatalogInvariantsChecker

__all__ = ["CatalogInvariantsChecker"]
