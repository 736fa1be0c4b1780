"""Nemeses: faults in words, aimed by role at the moment they happen."""
