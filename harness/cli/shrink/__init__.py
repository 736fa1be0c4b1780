"""`harness shrink`: its options, progress, the shrunk run, and the story of its failure."""
