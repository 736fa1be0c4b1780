"""The Docker engine: a typed wrapper around its SDK, and its answers as typed values."""
