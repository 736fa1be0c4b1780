"""What comes out of runs: the page of one run, tables over thousands, and where to browse them.

Checkers and workloads are reached through the registry only; pyarrow, pandas, DuckDB, Jinja2 and
PySpark are imported where they are used, so that a run needs none of them but pyarrow.
"""
