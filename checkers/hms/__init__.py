"""Checkers of histories in the vocabulary `hms`: tables of a metastore, and its events."""
