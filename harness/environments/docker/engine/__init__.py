"""The Docker engine: its SDK behind a typed face, and what it answers."""
