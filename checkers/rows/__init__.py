"""Checkers of the vocabulary `rows`."""
