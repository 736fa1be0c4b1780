"""Readers and writers of EDN: the exact reader, the quick reader, and Jepsen's histories."""
