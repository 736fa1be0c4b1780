"""The questions of a report: SQL over its tables, and the statistics about the answers."""
