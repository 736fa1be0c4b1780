"""Runs on their way into a lake, and out of it again."""
