"""Checkers: pure functions that read a history and return a verdict."""
