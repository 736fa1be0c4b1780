"""What the history of a run tells about its target, as small tables that add up over many runs."""
