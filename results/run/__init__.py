"""One run: its page, and its trace for the Perfetto viewer."""
