"""A coroutine that begins at once, inside the callback of somebody else.

Most faults of the simulation wait for nothing, so one that is begun here is over before the caller
goes on. (Python 3.12 has eager tasks for this.)
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any


def begin(
    coro: Coroutine[Any, Any, None], spawn: Callable[[Coroutine[Any, Any, None]], object]
) -> None:
    """Run `coro` up to where it first waits; `spawn` runs the rest, if there is one."""
    try:
        awaited = coro.send(None)
    except StopIteration:
        return
    spawn(_rest(coro, awaited))


async def _rest(coro: Coroutine[Any, Any, None], awaited: Any) -> None:
    await _go_on(coro, awaited)


@types.coroutine
def _go_on(coro: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    """What `yield from coro` does, after its first step."""
    while True:
        try:
            try:
                value = yield awaited
            except BaseException as error:  # noqa: BLE001 - handed on, whatever it is
                awaited = coro.throw(error)
            else:
                awaited = coro.send(value)
        except StopIteration:
            return
