"""The Docker engine: its SDK behind a typed face, and its answers as values."""
