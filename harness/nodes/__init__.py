"""Nodes as data: declarations, kinds of faults and degradations, and the calling client."""
