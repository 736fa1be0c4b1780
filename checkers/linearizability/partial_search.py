"""The search of `partial`: depth first, likely choices first, and all in the end.

Chronological backtracking revises the last choices first, and it may be an early one that was
wrong: that a state was lost at a power cut often shows only much later. So at first few choices may
be other than the likely ones, wherever they are (limited discrepancy search, Harvey and Ginsberg,
IJCAI 1995), and in the end all. Hints say which choices are likely: the log of the target, as far
as answers name its entries. They decide nothing but the order of trials.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from checkers.linearizability.model import UNKNOWN, Model, Operation

Hint = tuple[int, int]
"""A term, and an index or a time; `_UNHINTED` if unknown."""

STEPS_MAX: Final = 4_000_000
DISCREPANCIES: Final = (0, 1, 2, 4)
"""Walks with these numbers of unlikely choices have half of the steps; the last has the rest."""
AHEAD: Final = 16
"""The number of next operations that distinguish fall backs."""
CLOCK_EVERY: Final = 512
HELD_BYTES_MAX: Final = 1 << 30
"""The approximate memory for visited configurations."""


class SpentError(Exception):
    """The bound of steps or of memory, or the end of the time."""


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


_Past: TypeAlias = "array[int]"
"""By the number of an earlier state: the last known change since, -1 for none, or `_NEVER`."""

_NEVER: Final = -2
_UNHINTED: Final[Hint] = (0, 0)
_ENTRY_BYTES: Final = 240  # a tuple in a set, and its numbers, without what grows


@dataclass(frozen=True, slots=True)
class _Place:
    """The operations done, the state, and the hint of the last change that counts."""

    done: int
    state: Any
    hint: Hint


@dataclass(frozen=True, slots=True)
class _Node:
    """A place of the search: the length of the path to it, and the choices left to try there, of
    which `others` need not be the likely ones.
    """

    place: _Place
    length: int
    others: int
    past: _Past
    choices: Iterator[tuple[bool, _Choice]]


_Choice = tuple[int, Any, _Node | None]
"""An operation, the state after it, and where a fall back goes to."""


class Search:
    """One search; `run` it once. `back`, `steps` and `stuck` are what `PartialOutcome` says."""

    def __init__(
        self,
        model: Model[Any, Any, Any],
        operations: Sequence[Operation[Any, Any]],
        before: Sequence[int],
        chains: Sequence[int],
        hints: Mapping[int, Hint],
        end_s: float,
        steps_max: int,
        backs: int,
        held_bytes_max: int,
    ) -> None:
        self.steps = 0
        self.back: dict[int, int] = {}
        self._backs = backs
        self._stack: list[_Node] = []
        self._numbers: dict[Any, int] = {}
        self.stuck: int | None = None
        self._model, self._operations = model, operations
        self._before, self._hints = before, hints
        self._end_s, self._steps_max = end_s, steps_max
        self._held_bytes_max = held_bytes_max
        self._steps_end = steps_max
        self._pruned = False
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
        """An order, or `None` if there is none. Raises `SpentError`."""
        for others in DISCREPANCIES:
            end = self.steps + self._steps_max // (2 * len(DISCREPANCIES))
            with contextlib.suppress(SpentError):
                order = self._walk(others, min(end, self._steps_max))
                if order is not None or not self._pruned:
                    return order
        return self._walk(len(self._operations), self._steps_max)

    def _walk(self, others: int, steps_end: int) -> tuple[int, ...] | None:
        """An order in which at most `others` choices are not the likely ones."""
        self._steps_end, self._pruned = steps_end, False
        path: list[int] = []
        state = self._model.init()
        place = _Place(self._absorb(0, state, path), state, _UNHINTED)
        node = _Node(place, len(path), others, array("i"), self._choices(place))
        seen = {(place.done, self._number(state), node.past.tobytes()): others}
        held_bytes = 0
        stack = self._stack
        stack[:] = [node]
        while stack:
            node = stack[-1]
            if node.place.done & self._known == self._known:
                taken = path[: node.length]
                self.back = {at: self.back[at] for at in taken if self._backs >> at & 1}
                return tuple(taken)
            del path[node.length :]
            for likely, (at, after, back) in node.choices:
                left = node.others - (not likely)
                if left < 0:
                    self._pruned = True
                    continue
                path.append(at)
                if back is not None:
                    self.back[at] = back.length
                reached = self._absorb(node.place.done | 1 << at, after, path)
                past = self._past(node, reached)
                met = (reached, self._number(after), past.tobytes())
                if seen.get(met, -1) >= left:
                    del path[node.length :]
                    continue
                held_bytes += _ENTRY_BYTES + len(met[2]) + reached.bit_length() // 8
                if held_bytes > self._held_bytes_max:
                    raise SpentError
                seen[met] = left
                hint = node.place.hint if back is None else back.place.hint
                if self._changes >> at & 1:
                    hint = self._hint(at)
                place = _Place(reached, after, hint)
                stack.append(_Node(place, len(path), left, past, self._choices(place)))
                break
            else:
                stack.pop()
        return None

    def _past(self, node: _Node, reached: int) -> _Past:
        """The states for fall backs after `reached`: the earlier ones, and the node's state."""
        if not self._backs & ~reached:
            return array("i")
        last = (reached & ~node.place.done & self._changes).bit_length() - 1
        past = array("i", node.past)
        if last >= 0:
            for number, since in enumerate(node.past):
                if _NEVER < since < last:
                    past[number] = last
        number = self._number(node.place.state)
        past.extend([_NEVER] * (number + 1 - len(past)))
        past[number] = last
        return past

    def _hint(self, at: int) -> Hint:
        return self._hints.get(at, _UNHINTED)

    def _number(self, state: Any) -> int:
        """The states that were met, in their order."""
        return self._numbers.setdefault(state, len(self._numbers))

    def _step(self, at: int, state: Any) -> tuple[bool, Any]:
        self.steps += 1
        if self.steps > self._steps_end:
            raise SpentError
        if self.steps % CLOCK_EVERY == 0 and time.monotonic() > self._end_s:
            raise SpentError
        operation = self._operations[at]
        return self._model.step(state, operation.input, operation.said)

    def _enabled(self, wanted: int, done: int) -> Iterator[int]:
        """The wanted operations without undone predecessors."""
        for chain in self._chains:
            for at in _bits(chain & wanted & ~done):
                if self._before[at] & ~done:
                    break
                yield at

    def _absorb(self, done: int, state: Any, path: list[int]) -> int:
        """Take all legal operations that only look; each may enable more."""
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

    def _choices(self, node: _Place) -> Iterator[tuple[bool, _Choice]]:
        """The possible next changes; whether each is the likely one."""
        met: set[tuple[int, int]] = set()
        for choice in self._ordered(node):
            key = (choice[0], self._number(choice[1]))
            if key not in met:
                yield not met, choice
                met.add(key)

    def _ordered(self, place: _Place) -> Iterator[_Choice]:
        """Likely ones first. Where a term begins, a state may have been lost; else the next one by
        the hints is legal, or waits for a change whose answer was lost.
        """
        done, state = place.done, place.state
        changes = sorted(self._enabled(self._changes, done), key=lambda at: (self._hint(at), at))
        looks = self._enabled(self._looks, done)
        first = min([*changes[:1], *looks], key=lambda at: (self._hint(at), at), default=None)
        if first is not None:
            if self._backs & ~done and self._hint(first)[0] > place.hint[0]:
                yield from self._promising(place, first)
            if not self._step(first, state)[0]:
                for at in self._enabled(self._unknown, done):
                    legal, after = self._step(at, state)
                    if legal and after != state and self._step(first, after)[0]:
                        yield at, after, None
        for at in changes:
            legal, after = self._step(at, state)
            if legal:
                yield at, after, None
        for at in self._enabled(self._unknown, done):
            legal, after = self._step(at, state)
            if legal and after != state:
                yield at, after, None
        yield from self._falls(place)

    def _falls(self, place: _Place) -> Iterator[_Choice]:
        """Fall backs, to the latest state first."""
        for at in self._enabled(self._backs, place.done):
            earlier = {
                node.place.state: node
                for node in self._stack
                if not (place.done & ~node.place.done & self._changes) >> at
            }
            for node in reversed(earlier.values()):
                if node.place.state != place.state:
                    yield at, node.place.state, node

    def _promising(self, place: _Place, first: int) -> Iterator[_Choice]:
        """Fall backs after which more is legal of what comes next than without; the best first.

        Where the log has fewer entries than before, some of it was lost: then any that may be it.
        """
        next_ = sorted(_bits(self._known & ~place.done), key=lambda at: (self._hint(at), at))
        left = self._hint(first)[1] - (self._changes >> first & 1)

        def legal(state: Any) -> int:
            count = 0
            for at in next_[:AHEAD]:
                fits, after = self._step(at, state)
                if fits:
                    state, count = after, count + 1
            return count

        shorter = 0 <= left < place.hint[1]
        least = 0 if shorter else legal(place.state) + 1
        falls = [
            (legal(choice[1]), choice)
            for choice in self._falls(place)
            if choice[2] is not None and (not shorter or choice[2].place.hint[1] <= left)
        ]
        for count, choice in sorted(falls, key=lambda fall: -fall[0]):
            if count >= least:
                yield choice
