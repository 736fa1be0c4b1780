"""Rows of runs: the schema of the tables, how a history becomes rows, and rows a history again."""
