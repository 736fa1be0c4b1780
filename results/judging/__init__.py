"""Which results are wanted, which exist, and the work in between: judge runs, extract facts."""
