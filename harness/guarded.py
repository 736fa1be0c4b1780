"""Calls into a target's plug-in, each within a bound: a client that hangs cannot hang a run.

What a client did before it hung or crashed nobody knows, so the operation ends as `info`; how a
client closes can change no outcome. A target that says nothing when it is looked at leaves nothing
to judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from harness.case import NS_PER_S
from harness.errors import TargetError, shown
from harness.interpreter import CLOSE_S_MAX, ERROR_CHARACTERS_MAX, GUARD_MARGIN_S, nonsense
from harness.interrupts import PLUGIN_FAILURES, UserInterrupt, blaming
from harness.ops import OpType
from harness.plugins import Client, Completion, Convergence, Request

__all__ = ["LOOK_BOUND_S", "Breach", "close_quietly", "invoke_safely", "look", "poll"]

T = TypeVar("T")
_ERROR_SHOWN_MAX: Final = ERROR_CHARACTERS_MAX - 20
LOOK_BOUND_S: Final = 60.0
"""How long the target's plug-in may take to look into the target once."""


class Breach(Completion, frozen=True):
    """How an operation ended whose client broke its contract: `error` says how."""


async def invoke_safely(client: Client, request: Request, timeout_s: float) -> Completion:
    """How the operation ended. A client that hangs or crashes may have done anything: `Breach`."""
    try:
        async with asyncio.timeout(timeout_s + GUARD_MARGIN_S) as limit:
            completion = await client.invoke(request, timeout_s=timeout_s)
    except UserInterrupt:
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        wrong: str | None = "client crashed: cancelled from inside"
    except PLUGIN_FAILURES as error:  # becomes a line of the history
        hung = limit.expired() and isinstance(error, TimeoutError)
        what = "hung beyond its timeout" if hung else f"crashed: {shown(error, _ERROR_SHOWN_MAX)}"
        wrong = f"client {what}"
    else:
        wrong = nonsense(completion)
    return completion if wrong is None else Breach(OpType.INFO, request.value, error=wrong)


async def close_quietly(client: Client) -> BaseException | None:
    """Close the client; what went wrong, if anything did."""
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await client.close()
    except UserInterrupt:
        raise
    except PLUGIN_FAILURES as error:  # the caller may record it
        return error
    return None


async def look(looking: Callable[[], Coroutine[Any, Any, T]], target: str) -> T:
    """Have the plug-in of `target` look; raises `TargetError` when it says nothing, or fails."""
    what = f"the target {target!r}: {getattr(looking, '__name__', 'a look')}()"
    try:
        async with asyncio.timeout(LOOK_BOUND_S):
            with blaming(what):
                return await looking()
    except TimeoutError as error:
        raise TargetError(
            f"{what} did not answer within {LOOK_BOUND_S:g} s; the plug-in must put a time limit "
            "on every call"
        ) from error


async def poll(
    looking: Callable[[], Coroutine[Any, Any, Convergence]],
    target: str,
    *,
    now_ns: Callable[[], int],
    bound_s: float,
    every_s: float,
) -> Convergence:
    """Look until it is well; what is not well is so by a look that began after the bound.

    It may be well too late: compare the time that passed with the bound.
    """
    deadline_ns = now_ns() + int(bound_s * NS_PER_S)
    while True:
        late = now_ns() >= deadline_ns
        state = await look(looking, target)
        if not isinstance(state, Convergence):
            raise TargetError(
                f"the target {target!r}: {getattr(looking, '__name__', 'a look')}() returned "
                f"{shown(state)}, not a Convergence"
            )
        if state.ok or late:
            return state
        await asyncio.sleep(every_s)
