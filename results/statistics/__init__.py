"""The statistics that reports use: intervals, tests, pooled ratios and survival curves."""
