"""`harness shrink`: its options and progress, and its output about the shrunk run."""
