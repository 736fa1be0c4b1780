"""A lake on Spark: its tables as DataFrames, its runs judged, and asked about, by executors.

`frames` reads a consistent version without any jar; `planning` says what is not judged yet and who
does it; `judging` is what a task does; `asking` has tasks answer a report's questions, each of a
range of runs (`ranges`); `driver` puts them together. Nothing here is per run on the driver, and no
history goes through a shuffle.
"""
