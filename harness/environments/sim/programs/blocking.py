"""Calls that block until a future is done, such as `asyncio.run` in a program's `main`.

The synchronous part of a program runs in a greenlet. A blocking call switches back to the node's
task, which waits for the future and then switches to the greenlet again. So the world continues
while the program waits, although there is only one thread.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

from harness.errors import UsageError

_CLOSE_ATTEMPTS_MAX = 100


class Interruption:
    """Lets a callback raise an error in the program's current blocking call."""

    def __init__(self) -> None:
        self.waiter: asyncio.Future[None] | None = None
        self._error: BaseException | None = None

    def send(self, error: BaseException) -> bool:
        """Raise `error` in the blocking call; returns false if no call blocks."""
        if self.waiter is None or self.waiter.done():
            return False
        self._error = error
        self.waiter.set_result(None)
        return True

    def take(self) -> BaseException | None:
        """Return the error that the blocking call must raise, or `None`, and forget it."""
        error, self._error = self._error, None
        return error


async def run_blocking(function: Callable[[], Any], interruption: Interruption) -> Any:
    """Call a function that may block by `wait_for`; returns its result."""
    greenlet = _greenlet()
    context = contextvars.copy_context()

    def body() -> Any:
        return context.run(function)

    fiber = greenlet.greenlet(body)
    try:
        waiting = fiber.switch()
        while not fiber.dead:
            interruption.waiter = asyncio.get_running_loop().create_future()
            both = [waiting, interruption.waiter]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            interruption.waiter = None
            error = interruption.take()
            waiting = fiber.switch() if error is None else fiber.throw(error)
        return waiting
    finally:
        for _ in range(_CLOSE_ATTEMPTS_MAX):
            if fiber.dead:
                break
            fiber.throw(greenlet.GreenletExit)


def wait_for(future: asyncio.Future[Any]) -> None:
    """Block the caller until the future is done. The caller must run inside `run_blocking`."""
    greenlet = _greenlet()
    fiber = greenlet.getcurrent()
    if fiber.parent is None:
        raise RuntimeError("This event loop is already running")
    while not future.done():
        fiber.parent.switch(future)


def _greenlet() -> Any:
    try:
        import greenlet
    except ImportError as error:
        raise UsageError(
            "a program whose callable is an ordinary function needs the package greenlet, since "
            "its `asyncio.run` blocks; install 'catalog-harness[programs]', or name a coroutine "
            "function"
        ) from error
    return greenlet
