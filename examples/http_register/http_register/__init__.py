"""A register behind HTTP, and the plug-in that lets the harness test it."""
