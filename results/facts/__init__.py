"""Facts about the target in a run's history, as small tables that add up over many runs."""
