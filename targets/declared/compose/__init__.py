"""Compose files, unchanged: each service is a node in a container."""
