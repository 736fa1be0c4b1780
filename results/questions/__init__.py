"""Answers the questions of a report: SQL over its tables, and statistics on the SQL's answers."""
