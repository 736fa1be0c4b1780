"""Checkers of histories in the vocabulary `hms`, which is about a metastore's tables and events."""
