"""The page of one run, and its trace for the Perfetto viewer."""
