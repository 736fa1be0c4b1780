"""An aiohttp service as a target of the harness."""
