"""The common parts of checkers of runs, such as findings, permits and named invariants."""
