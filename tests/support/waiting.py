"""Functions that wait for effects of other processes.

The bound only ends hangs: it is far above the time that a busy machine needs.
"""

import asyncio
import time

__all__ = ["LIMIT_S", "until", "wait_until"]

LIMIT_S = 60.0
POLL_S = 0.05


def wait_until(condition, limit_s=LIMIT_S):
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, f"the condition is still false after {limit_s:g} s"
        time.sleep(POLL_S)


async def until(condition, limit_s=LIMIT_S):
    """Like `wait_until`, while other tasks of the loop run."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - what is waited for is no event
            await asyncio.sleep(POLL_S)
