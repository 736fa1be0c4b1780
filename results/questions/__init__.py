"""Answers the questions of a report by SQL over its tables, and adds statistics to the answers."""
