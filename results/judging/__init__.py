"""Computes the verdicts and facts that a report needs and that are not stored yet."""
