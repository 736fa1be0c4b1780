"""Search for a legal order that respects a given partial order, where no clock orders everything.

Real time orders operations by intervals, which is what the other searches live on. What a profile
permits (`checkers.catalog_permits`) takes single pairs out of that order, and what is left is no
order of intervals any more. So here each operation has a set of those that must come before it, as
a bit mask; all else is as in `search`: depth first, what was met is remembered, and an operation
that only looks is taken as soon as it can be, since that loses nothing.

Exact within its bounds of steps and memory: an order that was found has been walked along once
more, with a model of its own; and where the search ended without one, there is none.

A *fall back* is an operation of its own kind: it takes the state back to an earlier one of the same
order, and all after that is lost, but for known changes that were called after it: of these none
is. Where some may come yet, it is remembered as well which states they may go back to.
"""

from __future__ import annotations

import bisect
import itertools
import operator
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from checkers.linearizability.model import UNKNOWN, Model, Operation

__all__ = ["PartialOutcome", "find_partial_order", "returned_before", "states_along"]

STEPS_MAX: Final = 2_000_000
HELD_BYTES_MAX: Final = 1 << 30
"""What was met and is remembered may take so much, about."""
CLOCK_EVERY: Final = 512


@dataclass(frozen=True, slots=True)
class PartialOutcome:
    """Positions in a legal order, or `None`; `exhausted` says that there is none at all.

    `stuck` is the position of the operation that the search got no further than. `back` says of
    each fall back in the order after how many of its operations the state was that it took up.
    """

    order: tuple[int, ...] | None
    exhausted: bool
    steps: int
    stuck: int | None = None
    back: Mapping[int, int] = field(default_factory=dict)


class _SpentError(Exception):
    """The bound of steps or of memory, or the end of the time."""


def returned_before(operations: Sequence[Operation[Any, Any]]) -> list[int]:
    """Of each operation the mask of those that had returned when it was called: real time."""
    known = [(o.return_time, at) for at, o in enumerate(operations) if o.return_time is not None]
    known.sort()
    returns = [when for when, _ in known]
    prefixes = list(itertools.accumulate((1 << at for _, at in known), operator.or_, initial=0))
    return [prefixes[bisect.bisect_left(returns, o.call)] for o in operations]


def find_partial_order(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    before: Sequence[int],
    chains: Sequence[int],
    *,
    hints: Mapping[int, int],
    end_s: float,
    backs: int = 0,
    steps_max: int = STEPS_MAX,
    held_bytes_max: int = HELD_BYTES_MAX,
) -> PartialOutcome:
    """A legal order of all operations that returned, and of any of the others.

    Operations are in the order of their calls. `before[i]` is the mask of positions that must come
    before `i`; it holds none that never returned. `chains` are masks of all positions, within each
    of which what must come before only grows. `hints` say what to try first (the lowest). `end_s`
    is on the monotonic clock. `backs` is the mask of those that fall back; they never returned.
    """
    search = _Search(
        model, operations, before, chains, hints, end_s, steps_max, backs, held_bytes_max
    )
    try:
        order = search.run()
    except _SpentError:
        return PartialOutcome(None, False, search.steps, search.stuck)
    if order is None:
        return PartialOutcome(None, True, search.steps, search.stuck)
    found = PartialOutcome(order, True, search.steps, back=search.back)
    done = 0
    for at, _ in zip(order, states_along(model, operations, found), strict=True):
        assert not before[at] & ~done, f"operation {operations[at].id} comes too early"
        done |= 1 << at
    missing = [o.id for at, o in enumerate(operations) if not o.is_unknown and not done >> at & 1]
    assert not missing, f"the order leaves out {missing}"
    return found


def states_along(
    model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]], found: PartialOutcome
) -> Iterator[Any]:
    """The state after each operation of an order, by the plainest means; `AssertionError` where
    one is not legal.
    """
    assert found.order is not None
    states = [model.init()]
    for number, at in enumerate(found.order):
        if at in found.back:
            lost = found.order[found.back[at] : number]
            assert found.back[at] <= number, "what is later cannot be taken up"
            assert not any(_is_kept(model, operations, at, other) for other in lost), "it is kept"
            states.append(states[found.back[at]])
        else:
            legal, after = model.step(states[-1], operations[at].input, operations[at].said)
            assert legal, f"operation {operations[at].id} is not legal where it comes"
            states.append(after)
        yield states[-1]


def _is_kept(
    model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]], back: int, at: int
) -> bool:
    """Whether the fall back `back` may not undo `at`: a known change that was called after it."""
    operation = operations[at]
    looks = operation.is_unknown or model.read_only(operation.input, operation.output)
    return at > back and not looks


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


_Past: TypeAlias = "array[int]"
"""By the number of an earlier state: the last known change since, -1 for none, or `_NEVER`."""

_NEVER: Final = -2
_ENTRY_BYTES: Final = 240  # a tuple in a set, and its numbers, without what grows


class _Search:
    def __init__(
        self,
        model: Model[Any, Any, Any],
        operations: Sequence[Operation[Any, Any]],
        before: Sequence[int],
        chains: Sequence[int],
        hints: Mapping[int, int],
        end_s: float,
        steps_max: int,
        backs: int,
        held_bytes_max: int,
    ) -> None:
        self.steps = 0
        self.back: dict[int, int] = {}
        self._backs = backs
        self._stack: list[tuple[int, Any, int, Iterator[tuple[int, Any, int]], _Past]] = []
        self._numbers: dict[Any, int] = {}
        self.stuck: int | None = None
        self._model, self._operations = model, operations
        self._before, self._hints = before, hints
        self._end_s, self._steps_max = end_s, steps_max
        self._held_bytes_max = held_bytes_max
        self._known = self._unknown = self._looks = 0
        for at, operation in enumerate(operations):
            if backs >> at & 1:
                continue
            if operation.is_unknown:
                if not model.read_only(operation.input, UNKNOWN):
                    self._unknown |= 1 << at
                continue
            self._known |= 1 << at
            if model.read_only(operation.input, operation.output):
                self._looks |= 1 << at
        self._changes = self._known & ~self._looks
        self._chains = chains
        self._deepest = -1

    def run(self) -> tuple[int, ...] | None:
        done, state = 0, self._model.init()
        path: list[int] = []
        done = self._absorb(done, state, path)
        past: _Past = array("i")
        seen = {(done, self._number(state), past.tobytes())}
        held_bytes = 0
        stack = self._stack
        stack.append((done, state, len(path), self._choices(done, state), past))
        while stack:
            done, state, length, choices, past = stack[-1]
            if done & self._known == self._known:
                self.back = {at: self.back[at] for at in path[:length] if self._backs >> at & 1}
                return tuple(path[:length])
            del path[length:]
            for at, after, back in choices:
                path.append(at)
                if back >= 0:
                    self.back[at] = back
                reached = self._absorb(done | 1 << at, after, path)
                then = self._past(past, state, done, reached)
                met = (reached, self._number(after), then.tobytes())
                if met in seen:
                    del path[length:]
                    continue
                held_bytes += _ENTRY_BYTES + len(met[2]) + reached.bit_length() // 8
                if held_bytes > self._held_bytes_max:
                    raise _SpentError
                seen.add(met)
                stack.append((reached, after, len(path), self._choices(reached, after), then))
                break
            else:
                stack.pop()
        return None

    def _past(self, past: _Past, state: Any, done: int, reached: int) -> _Past:
        """What fall backs after `reached` may go back to: that of before, and `state`."""
        if not self._backs & ~reached:
            return array("i")
        last = (reached & ~done & self._changes).bit_length() - 1
        found = array("i", past)
        if last >= 0:
            for number, since in enumerate(past):
                if _NEVER < since < last:
                    found[number] = last
        number = self._number(state)
        found.extend([_NEVER] * (number + 1 - len(found)))
        found[number] = last
        return found

    def _number(self, state: Any) -> int:
        """The states that were met, in their order."""
        return self._numbers.setdefault(state, len(self._numbers))

    def _step(self, at: int, state: Any) -> tuple[bool, Any]:
        self.steps += 1
        if self.steps > self._steps_max:
            raise _SpentError
        if self.steps % CLOCK_EVERY == 0 and time.monotonic() > self._end_s:
            raise _SpentError
        operation = self._operations[at]
        return self._model.step(state, operation.input, operation.said)

    def _enabled(self, wanted: int, done: int) -> Iterator[int]:
        """Of the wanted ones, those that nothing undone has to come before."""
        for chain in self._chains:
            for at in _bits(chain & wanted & ~done):
                if self._before[at] & ~done:
                    break
                yield at

    def _absorb(self, done: int, state: Any, path: list[int]) -> int:
        """Take all that only looks and is legal; what is taken may let more in."""
        grown = True
        while grown:
            grown = False
            for at in self._enabled(self._looks, done):
                if not done >> at & 1 and self._step(at, state)[0]:
                    done |= 1 << at
                    path.append(at)
                    grown = True
        count = (done & self._known).bit_count()
        if count > self._deepest:
            self._deepest = count
            rest = [(self._operations[at].return_time, at) for at in _bits(self._known & ~done)]
            self.stuck = min(rest)[1] if rest else None
        return done

    def _choices(self, done: int, state: Any) -> Iterator[tuple[int, Any, int]]:
        """What may come next and changes the state, known operations first, and falls back last,
        to the latest state first; -1 for what is no fall back.
        """
        known = sorted(
            self._enabled(self._changes, done), key=lambda at: (self._hints.get(at, 0), at)
        )
        for at in known:
            legal, after = self._step(at, state)
            if legal:
                yield at, after, -1
        for at in self._enabled(self._unknown, done):
            legal, after = self._step(at, state)
            if legal and after != state:
                yield at, after, -1
        for at in self._enabled(self._backs, done):
            earlier = {
                then: length
                for done_then, then, length, *_ in self._stack
                if not (done & ~done_then & self._changes) >> at
            }
            for then, length in reversed(earlier.items()):
                if then != state:
                    yield at, then, length
