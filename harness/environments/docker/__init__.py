"""Docker."""
