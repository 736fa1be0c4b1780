"""From options to a checked case, before anything starts."""
