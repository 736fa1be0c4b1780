"""Rows of runs: the schema of the tables, and the way from histories to rows and back."""
