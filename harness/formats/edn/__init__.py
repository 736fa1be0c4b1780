"""EDN: an exact and a quick reader, and Jepsen histories in this format."""
