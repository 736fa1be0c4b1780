"""Calls into a target's plug-in, each with a time limit: a client that hangs cannot hang a run.

A client that hung or crashed may have done anything, so the operation ends as `info`. An error
while a client closes changes no outcome. If the plug-in cannot inspect the target, there is nothing
to judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

import msgspec

from harness.errors import TargetError, shown
from harness.ops import NS_PER_S, OpType
from harness.plugins import Client, Completion, Convergence, NodeRole, Request, Roles
from harness.run.interpreter import CLOSE_S_MAX, ERROR_CHARACTERS_MAX, GUARD_MARGIN_S, nonsense
from harness.support.interrupts import PLUGIN_FAILURES, UserInterrupt, blaming

T = TypeVar("T")
_ERROR_SHOWN_MAX: Final = ERROR_CHARACTERS_MAX - 20
LOOK_BOUND_S: Final = 60.0
"""The time limit for one inspection of the target by its plug-in."""


class Breach(Completion, frozen=True):
    """The outcome of an operation whose client broke its contract; `error` gives the details."""


async def invoke_safely(client: Client, request: Request, timeout_s: float) -> Completion:
    """Do one operation; a `Breach` if the client hangs or crashes: it may have done anything."""
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
    except PLUGIN_FAILURES as error:  # the error becomes an op in the history
        hung = limit.expired() and isinstance(error, TimeoutError)
        what = "hung beyond its timeout" if hung else f"crashed: {shown(error, _ERROR_SHOWN_MAX)}"
        wrong = f"client {what}"
    else:
        wrong = nonsense(completion)
    return completion if wrong is None else Breach(OpType.INFO, request.value, error=wrong)


async def close_quietly(client: Client) -> BaseException | None:
    """Close the client; returns the error, if there is one."""
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await client.close()
    except UserInterrupt:
        raise
    except PLUGIN_FAILURES as error:  # the caller may record the error
        return error
    return None


async def look(looking: Callable[[], Coroutine[Any, Any, T]], target: str) -> T:
    """Let the plug-in of `target` inspect it; `TargetError` if that fails or takes too long."""
    what = _called(looking, target)
    try:
        async with asyncio.timeout(LOOK_BOUND_S):
            with blaming(what):
                return await looking()
    except TimeoutError as error:
        raise TargetError(
            f"{what} did not answer within {LOOK_BOUND_S:g} s; the plug-in must put a time limit "
            "on every call"
        ) from error


async def look_at_groups(
    looking: Callable[[], Coroutine[Any, Any, Mapping[str, Roles]]], target: str
) -> Mapping[str, Roles]:
    """The replica groups, as reported by the plug-in of `target`; raises `TargetError`."""
    groups = await look(looking, target)
    if not isinstance(groups, Mapping):
        raise TargetError(
            f"{_called(looking, target)} returned {shown(groups)}, which maps no name of a group "
            "to Roles"
        )
    for name, roles in groups.items():
        if not isinstance(name, str) or not _are_roles(roles):
            raise TargetError(
                f"{_called(looking, target)} returned {shown(roles)} for the group {shown(name)}; "
                "it must be Roles of NodeRoles, with names that are text and whole terms"
            )
    return groups


def _are_roles(roles: object) -> bool:
    return (
        isinstance(roles, Roles)
        and isinstance(roles.by_node, Mapping)
        and isinstance(roles.candidates, tuple | list)
        and all(isinstance(name, str) for name in (*roles.by_node, *roles.candidates))
        and all(
            isinstance(each, NodeRole) and isinstance(each.role, str) and type(each.term) is int
            for each in roles.by_node.values()
        )
    )


def _called(looking: Callable[[], object], target: str) -> str:
    return f"the target {target!r}: {getattr(looking, '__name__', 'a look')}()"


def _check_convergence(state: object, what: str) -> None:
    """Raise `TargetError` unless the value is a `Convergence` with fields of the right types."""
    if not isinstance(state, Convergence):
        raise TargetError(f"{what} returned {shown(state)}, not a Convergence")
    if not isinstance(state.ok, bool):
        raise TargetError(f"{what} returned ok={shown(state.ok)}; it must be true or false")
    lines = state.pending
    if not isinstance(lines, tuple | list) or not all(isinstance(line, str) for line in lines):
        raise TargetError(f"{what} returned pending={shown(lines)}; it must be a tuple of texts")
    try:
        msgspec.json.encode(state.at)
    except Exception as error:
        raise TargetError(
            f"{what} returned at={shown(state.at)}, which is not plain JSON: {error}"
        ) from error


async def poll(
    looking: Callable[[], Coroutine[Any, Any, Convergence]],
    target: str,
    *,
    now_ns: Callable[[], int],
    bound_s: float,
    every_s: float,
) -> Convergence:
    """Inspect the target until the result is good. Only an inspection after the bound proves a
    failure.

    The result may become good too late: the caller must compare the elapsed time with the bound.
    """
    deadline_ns = now_ns() + int(bound_s * NS_PER_S)
    while True:
        late = now_ns() >= deadline_ns
        state = await look(looking, target)
        _check_convergence(state, _called(looking, target))
        if state.ok or late:
            return state
        await asyncio.sleep(every_s)
