"""EDN: the exact reader, the quick reader, and Jepsen histories in it."""
