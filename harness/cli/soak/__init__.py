"""The verb `harness soak`: its options, progress and output."""
