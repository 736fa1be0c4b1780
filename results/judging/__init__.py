"""From required results to stored ones: judge runs, extract facts."""
