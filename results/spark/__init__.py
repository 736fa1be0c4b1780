"""Reads a lake on Spark as DataFrames, and lets executors judge its runs and answer questions.

`frames` reads a consistent version without any jar. `task_plan` cuts pending work into tasks, and
`range_checks` judges the runs of one task. `range_answers` lets tasks answer a report's questions,
each for a range of runs (`ranges`). `driver` combines all of these. The driver does no work per
run.
"""
