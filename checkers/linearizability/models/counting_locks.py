"""Locks that count: semaphores, reentrant locks, and locks with fences.

The rules follow the models of Hazelcast's Jepsen tests.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Unknown

ANY: Final = "?"
"""The holder in an operation of a client that is not known. It may be any client."""


class Acquire(NamedTuple):
    """Take permits. Output: the fence of the lock, or `None` if the answer has no fence."""

    holder: str = ANY
    permits: int = 1
    f: str = "acquire"


class Release(NamedTuple):
    """Give permits back. Output: `None`."""

    holder: str = ANY
    permits: int = 1
    f: str = "release"


Request = Acquire | Release
Fence = int | None


def _described(input_: Request, output: Fence | Unknown) -> str:
    many = f" of {input_.permits}" if input_.permits > 1 else ""
    by = "" if input_.holder == ANY else f" for {input_.holder}"
    if output is UNKNOWN:
        return f"{input_.f}{many}{by} (unknown)"
    return f"{input_.f}{many}{by}" + ("" if output is None else f", with fence {output}")


class Taken(NamedTuple):
    """The permits that are taken, and the most that each client may hold of them.

    The permits of unknown clients count for `ANY`. A release by an unknown client lowers only the
    total.
    """

    total: int = 0
    holders: tuple[tuple[str, int], ...] = ()


class Semaphore(Model[Taken, Request, Fence]):
    """The model of a number of permits, all free at first.

    If it is not `owned`, every client may release, even permits that were never taken, as in
    `java.util.concurrent.Semaphore`. Otherwise only clients that hold permits may release them.
    """

    def __init__(self, permits: int, *, owned: bool) -> None:
        self.permits, self.owned = permits, owned

    def init(self) -> Taken:
        return Taken()

    def step(self, state: Taken, input_: Request, output: Fence | Unknown, /) -> tuple[bool, Taken]:
        """Return whether the operation succeeds, and the permits that are taken after it."""
        acquires = isinstance(input_, Acquire)
        after = self._acquired(state, input_) if acquires else self._released(state, input_)
        return output is UNKNOWN or after is not None, after or state

    def _acquired(self, state: Taken, input_: Request) -> Taken | None:
        total = state.total + input_.permits
        if total > self.permits:
            return None
        return self._after(state, total, {input_.holder: input_.permits})

    def _released(self, state: Taken, input_: Request) -> Taken | None:
        total = state.total - input_.permits
        if not self.owned:
            return Taken(total)
        if total < 0:
            return None
        if input_.holder == ANY:
            return self._after(state, total, {})
        held = dict(state.holders)
        returned = min(input_.permits, held.get(input_.holder, 0))
        others = input_.permits - returned
        if others > held.get(ANY, 0):
            return None
        return self._after(state, total, {input_.holder: -returned, ANY: -others})

    def _after(self, state: Taken, total: int, changes: dict[str, int]) -> Taken:
        if not self.owned or not total:
            return Taken(total)
        held = dict(state.holders)
        for holder, change in changes.items():
            held[holder] = held.get(holder, 0) + change
        return Taken(total, tuple(sorted(each for each in held.items() if each[1])))

    def observes(self, input_: Request, output: Fence | Unknown, /) -> bool:
        del output
        return self.owned or isinstance(input_, Acquire)

    def describe_operation(self, input_: Request, output: Fence | Unknown, /) -> str:
        return _described(input_, output)

    def describe_state(self, state: Taken, /) -> str:
        named = [f"{count} by {name}" for name, count in state.holders if name != ANY]
        by = f" ({', '.join(named)})" if named else ""
        return f"{state.total} of {self.permits} permits are taken{by}"


class Locked(NamedTuple):
    """The client that has the lock and how many times, its fence, and the highest fence so far."""

    owner: str = ANY
    times: int = 0
    fence: Fence = None
    highest: int = 0


class ReentrantLock(Model[Locked, Request, Fence]):
    """The model of a lock that its holder may acquire up to `limit` times; `None` is no limit.

    A fence is higher than all fences before. If the holder acquires the lock again, it gets the
    same fence.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit

    def init(self) -> Locked:
        return Locked()

    def step(
        self, state: Locked, input_: Request, output: Fence | Unknown, /
    ) -> tuple[bool, Locked]:
        """Return whether the operation succeeds, and who has the lock after it."""
        fence = None if isinstance(output, Unknown) else output
        after = self._after(state, input_, fence)
        return output is UNKNOWN or after is not None, after or state

    def _after(self, state: Locked, input_: Request, fence: Fence) -> Locked | None:
        # An operation of an unknown client succeeds only if it belongs to the holder.
        owner = state.owner if input_.holder == ANY else input_.holder
        if ANY not in {state.owner, owner} and state.owner != owner:
            return None
        if isinstance(input_, Release):
            times = state.times - 1
            if times < 0:
                return None
            free = Locked(highest=state.highest)
            return state._replace(owner=owner, times=times) if times else free
        if state.times == self.limit:
            return None
        if state.fence is None:
            if fence is not None and fence <= state.highest:
                return None
            highest = max(state.highest, fence or 0)
            return Locked(owner, state.times + 1, fence, highest)
        if fence not in {None, state.fence}:
            return None
        return state._replace(owner=owner, times=state.times + 1)

    def describe_operation(self, input_: Request, output: Fence | Unknown, /) -> str:
        return _described(input_, output)

    def describe_state(self, state: Locked, /) -> str:
        fence = f"; the highest fence is {state.highest}" if state.highest else ""
        if not state.times:
            return f"the lock is free{fence}"
        owner = "an unknown client" if state.owner == ANY else state.owner
        times = f" {state.times} times" if state.times > 1 else ""
        return f"{owner} has the lock{times}{fence}"
