"""Computing the results that a report requires and lacks: verdicts and facts of runs."""
