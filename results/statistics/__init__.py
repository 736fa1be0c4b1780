"""Statistics of reports: intervals, tests, pooled ratios and survival curves."""
