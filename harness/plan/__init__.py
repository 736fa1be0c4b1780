"""From what the user asked for to a checked case, before anything happens."""
