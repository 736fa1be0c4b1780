"""`harness soak`: its options, progress and output."""
