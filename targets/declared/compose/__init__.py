"""Reads Compose files: each service becomes a node in a container."""
