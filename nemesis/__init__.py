"""Nemeses: faults described in words, whose nodes are chosen by role when the fault begins."""
