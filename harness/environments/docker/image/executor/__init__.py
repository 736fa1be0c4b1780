"""The image in which Spark's executors, workers and drivers run."""
