"""A lake on Spark: its tables as DataFrames, its runs judged by executors, its report as SQL.

`frames` reads a consistent version without any jar; `planning` says what is not judged yet and who
does it; `judging` is what a task does; `driver` puts them together. Nothing here is per run on the
driver, and no history goes through a shuffle.
"""
