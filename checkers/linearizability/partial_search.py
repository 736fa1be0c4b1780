"""Searches depth-first for a legal order under a partial order, and tries likely choices first.

Backtracking revises the last choices first, although an early choice may be the wrong one: often
only much later operations show that a power cut lost a state. So each of the first walks may take
an unlikely choice at only a few nearby points, but at any depth (limited discrepancy search, Harvey
and Ginsberg, IJCAI 1995). The last walk may do so at every point.

Hints say which choices are likely. A hint comes from an entry of the target's log that an answer
names. It only affects the order of trials.
"""

from __future__ import annotations

import contextlib
import math
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from checkers.linearizability.model import UNKNOWN, Model, Operation

Hint = tuple[int, int]
"""The likely place of an operation in the order: a term, and an index or a time."""

RuledOut: TypeAlias = Callable[[Any, Any], int]
"""Maps the states before and after a step to the mask of operations that can never follow."""

STEPS_MAX: Final = 4_000_000
DISCREPANCIES: Final = (0, 1, 2, 4)
"""The maximum numbers of unlikely choices in successive walks.

These walks share half of the steps. A last walk without such a maximum gets the rest.
"""
AHEAD: Final = 64
"""How many of the next operations are tried in each state to which a rollback can return."""
FORGOTTEN: Final = 48
"""After this many operations of known outcome, an unlikely choice no longer counts."""
CLOCK_EVERY: Final = 512
HELD_BYTES_MAX: Final = 1 << 30
"""The approximate maximum memory for visited configurations."""


class SpentError(Exception):
    """The search reached its maximum of steps or memory, or its deadline."""


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


_Past: TypeAlias = "array[int]"
"""For each state number, the last change of known outcome since the path was in this state.

The value is -1 if no such change followed, and `_NEVER` if the path was never in this state.
"""

_NEVER: Final = -2
_UNHINTED: Final[Hint] = (0, 0)
# the fixed size in bytes of one remembered configuration
_ENTRY_BYTES: Final = 240


@dataclass(frozen=True, slots=True)
class _Place:
    """A point of a path: the operations that are done, the state, and the last change's hint.

    Changes that a rollback undid do not count for the hint.
    """

    done: int
    state: Any
    hint: Hint


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of the search tree.

    `length` is the length of the path to the node. `choices` has the choices still to try. `others`
    is the number of unlikely choices that are still allowed. `since` is the number of operations of
    known outcome that were done at the last unlikely choice.
    """

    place: _Place
    length: int
    others: float
    since: int
    past: _Past
    choices: Iterator[tuple[bool, _Choice]]


_Choice = tuple[int, Any, _Node | None]
"""(Operation, state after it, and for a rollback the node to which it returns)."""


class Search:
    """One search for a legal order. Call `run` once.

    `back`, `steps` and `stuck` have the same meaning as in `PartialOutcome`.
    """

    def __init__(
        self,
        model: Model[Any, Any, Any],
        operations: Sequence[Operation[Any, Any]],
        before: Sequence[int],
        chains: Sequence[int],
        hints: Mapping[int, Hint],
        end_s: float,
        backs: int,
        held_bytes_max: int,
        ruled_out: RuledOut | None = None,
        steps_max: int = STEPS_MAX,
    ) -> None:
        self.steps = 0
        self._ruled_out = ruled_out
        self.back: dict[int, int] = {}
        self._backs = backs
        self._stack: list[_Node] = []
        self._numbers: dict[Any, int] = {}
        self.stuck: int | None = None
        self._model, self._operations = model, operations
        self._before, self._hints = before, hints
        self._end_s = end_s
        self._held_bytes_max = held_bytes_max
        self._steps_end = self._steps_max = steps_max
        self._pruned = False
        self._known = self._unknown = self._looks = self._again = 0
        answered = {operation.id for operation in operations if not operation.is_unknown}
        for at, operation in enumerate(operations):
            if backs >> at & 1:
                continue
            if operation.is_unknown:
                if not model.read_only(operation.input, UNKNOWN):
                    self._unknown |= 1 << at
                    self._again |= (operation.id in answered) << at
                continue
            self._known |= 1 << at
            if model.read_only(operation.input, operation.output):
                self._looks |= 1 << at
        self._changes = self._known & ~self._looks
        self._chains = chains
        self._deepest = -1

    def run(self) -> tuple[int, ...] | None:
        """Find a legal order; `None` if no order exists.

        Raises `SpentError` if the search reaches a limit first.
        """
        for others in DISCREPANCIES:
            end = self.steps + self._steps_max // (2 * len(DISCREPANCIES))
            with contextlib.suppress(SpentError):
                order = self._walk(others, min(end, self._steps_max))
                if order is not None or not self._pruned:
                    return order
        return self._walk(math.inf, self._steps_max)

    def _walk(self, others: float, steps_end: int) -> tuple[int, ...] | None:
        """Find a legal order with at most `others` unlikely choices; `None` if none exists.

        Raises `SpentError` at step number `steps_end`, or at another limit.
        """
        self._steps_end, self._pruned = steps_end, False
        path: list[int] = []
        state = self._model.init()
        place = _Place(self._absorb(0, state, path), state, _UNHINTED)
        node = _Node(place, len(path), others, 0, array("i"), self._choices(place))
        seen: dict[tuple[int, int, bytes], float]
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
                count = (node.place.done & self._known).bit_count()
                fresh = count - node.since >= FORGOTTEN
                left = (others if fresh else node.others) - (not likely)
                if left < 0:
                    self._pruned = True
                    continue
                if back is None and self._is_dead_end(node.place, at, after):
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
                since = node.since if likely else count
                stack.append(_Node(place, len(path), left, since, past, self._choices(place)))
                break
            else:
                stack.pop()
        return None

    def _is_dead_end(self, place: _Place, at: int, after: Any) -> bool:
        """Whether a step makes it impossible to place an operation before all later rollbacks.

        A rollback may make an operation legal again, unless the operation must precede it.
        """
        if self._ruled_out is None:
            return False
        left = self._known & ~(place.done | 1 << at)
        for back in _bits(self._backs & ~place.done):
            left &= self._before[back]
        return bool(left and self._ruled_out(place.state, after) & left)

    def _past(self, node: _Node, reached: int) -> _Past:
        """Return the states to which a rollback may return in a child of `node`.

        `reached` is the mask of the operations that are done in the child.
        """
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
        """Yield the operations in `wanted` that are not done, but whose predecessors all are."""
        for chain in self._chains:
            for at in _bits(chain & wanted & ~done):
                if self._before[at] & ~done:
                    break
                yield at

    def _absorb(self, done: int, state: Any, path: list[int]) -> int:
        """Append all legal read-only operations to `path`, and return the new mask `done`."""
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
        """Yield (is likely, choice) for all distinct choices. Only the first choice is likely."""
        met: set[tuple[int, int]] = set()
        for choice in self._ordered(node):
            key = (choice[0], self._number(choice[1]))
            if key not in met:
                yield not met, choice
                met.add(key)

    def _ordered(self, place: _Place) -> Iterator[_Choice]:
        """Yield the possible choices, likely choices first.

        At the start of a term, a rollback is likely. Otherwise, the hints name the operation that
        is likely to come next. If this operation is illegal, a change whose answer was lost
        probably comes before it.
        """
        done, state = place.done, place.state
        changes = sorted(self._enabled(self._changes, done), key=lambda at: (self._hint(at), at))
        looks = self._enabled(self._looks, done)
        first = min([*changes[:1], *looks], key=lambda at: (self._hint(at), at), default=None)
        if first is not None:
            if self._backs & ~done and self._hint(first)[0] > place.hint[0]:
                yield from self._promising(place, first)
            if not self._step(first, state)[0] and not self._comes_later(first, state, changes):
                for at in self._enabled(self._unknown & ~self._again, done):
                    legal, after = self._step(at, state)
                    if legal and after != state and self._step(first, after)[0]:
                        yield at, after, None
        for at in changes:
            legal, after = self._step(at, state)
            if legal:
                yield at, after, None
        for unknown in (self._unknown & ~self._again, self._again):
            for at in self._enabled(unknown, done):
                legal, after = self._step(at, state)
                if legal and after != state:
                    yield at, after, None
        yield from self._falls(place)

    def _comes_later(self, look: int, state: Any, changes: Sequence[int]) -> bool:
        """Whether a read-only operation becomes legal after some of the next known changes.

        `changes` are the changes that may come next, in their likely order.
        """
        if not self._looks >> look & 1:
            return False
        for at in changes[:AHEAD]:
            legal, after = self._step(at, state)
            if legal:
                state = after
                if self._step(look, state)[0]:
                    return True
        return False

    def _falls(self, place: _Place) -> Iterator[_Choice]:
        """Yield each possible rollback to each earlier state, beginning with the latest states."""
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
        """Yield the rollbacks that make more of the next operations legal, the best first.

        If the hint of `first` shows that the log has become shorter, entries were lost. Then all
        rollbacks to states with a log that is short enough are possible.
        """
        next_ = sorted(_bits(self._known & ~place.done), key=lambda at: (self._hint(at), at))
        left = self._hint(first)[1] - (self._changes >> first & 1)

        def legal(state: Any) -> int:
            count = 0
            for at in next_[:AHEAD]:
                fits, after = self._step(at, state)
                if fits:
                    state, count = after, count + 1
                elif self._changes >> at & 1:
                    break
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
