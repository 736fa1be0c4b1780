"""Images: the one that nodes run in, those that targets bring, and that of Spark executors."""
