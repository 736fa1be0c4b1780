"""The image of Spark's executors, workers and drivers."""
