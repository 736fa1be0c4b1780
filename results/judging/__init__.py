"""Computes the results that a report needs and that are not stored yet: verdicts and facts."""
