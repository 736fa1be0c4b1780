"""An aiohttp service and a Raft library from PyPI, as targets of the harness."""
