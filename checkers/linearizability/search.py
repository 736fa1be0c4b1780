"""Searches depth-first over configurations that describe a window of the history (see `problem`).

A configuration is (next return to pass, mask of linearized open slots, used unknown operations,
state). The search succeeds when it passes every return. It follows Wing and Gong (1993) with Lowe's
cache (2017), with these differences:

* The cache key does not grow with the history (see `problem`).
* Reads are absorbed, never branched on.
* Of two configurations that differ only in the unknown operations that they used, the one that used
  a superset is dropped (dominance).
* Interchangeable unknown operations are used in call order.
* The search tries the operation that must return next, then operations that make it legal, then
  other open operations (latest call first), and finally unknown operations.

The *lean* variant uses unknown operations only right before an operation that they make legal. Most
valid histories with many lost answers have such a linearization. The lean variant can prove a
history valid, but never invalid: if it finds no order, it ends as `EXHAUSTED_LEAN`.

A search runs for a budget of steps and can be continued. `run_sliced` runs it until its budget is
spent or a clock ends it.
"""

from __future__ import annotations

import enum
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from checkers.linearizability.problem import ILLEGAL_STEP, Problem

CHAIN_EVALUATIONS_MAX = 2_000
CHAIN_LENGTH_MAX = 3
SLICE_STEPS: Final = 1_000
SLICE_STEPS_MAX: Final = 20_000
SLICE_SHORT_S: Final = 0.005
SLICE_LONG_S: Final = 0.05


class Status(enum.Enum):
    """The state of a search after it ran for a budget of steps."""

    RUNNING = "running"
    FOUND = "found"
    EXHAUSTED = "exhausted"
    EXHAUSTED_LEAN = "exhausted-lean"
    FULL = "full"


def dominated(chain: list[int], used: int) -> bool:
    """Whether `chain`, an antichain of sets, contains a subset of `used`.

    If not, `used` is added to the chain and replaces its supersets.
    """
    for other in chain:
        if other & ~used == 0:
            return True
    chain[:] = [other for other in chain if used & ~other]
    chain.append(used)
    return False


Move = tuple[tuple[int, ...], int, int, int]


@dataclass(slots=True)
class _Frame:
    """One configuration on the stack, with its remaining moves and the choices that led to it."""

    position: int
    mask: int
    used: int
    state: int
    choices: tuple[int, ...]
    moves: Iterator[Move] | None = None
    reach: int = (
        # The footprint of all operations that can affect the next return. It is set before the
        # first move.
        0
    )


class DepthFirst:
    """A resumable depth-first search. `best` is the position of the furthest return so far."""

    def __init__(self, problem: Problem, *, lean: bool, configurations_max: int) -> None:
        self._problem = problem
        self._lean = lean
        self._configurations_max = configurations_max
        self._visited: dict[tuple[int, int, int], list[int]] = {}
        self._visited_plain: set[tuple[int, int, int]] = set()
        self._has_unknown = bool(problem.unknown)
        self._stack: list[_Frame] = []
        self.configurations = 0
        self.steps = 0
        self.best = 0
        self.status = Status.RUNNING
        self._push(0, 0, 0, problem.stepper.initial, ())

    def choices(self) -> list[int]:
        """Return the branching choices of the current path, from the start."""
        return [choice for frame in self._stack for choice in frame.choices]

    def run(self, budget: int) -> Status:
        """Search for about `budget` more steps."""
        limit = self.steps + budget
        stack = self._stack
        problem = self._problem
        memos, step = problem.stepper.memo, problem.stepper.step
        while self.status is Status.RUNNING and self.steps < limit:
            if not stack:
                self.status = Status.EXHAUSTED_LEAN if self._lean else Status.EXHAUSTED
                break
            frame = stack[-1]
            if frame.moves is None:
                # Try the operation that must return next before computing anything else: on an easy
                # stretch of the history, it is always legal.
                frame.moves = self._lean_moves(frame) if self._lean else self._moves(frame)
                must = problem.returns[frame.position]
                self.steps += 1
                after = memos[must].get(frame.state)
                if after is None:
                    after = step(frame.state, must)
                if after != ILLEGAL_STEP:
                    bit = problem.return_bits[frame.position]
                    self._push(frame.position, frame.mask | bit, frame.used, after, (must,))
                continue
            move = next(frame.moves, None)
            if move is None:
                stack.pop()
                continue
            choices, mask, used, after = move
            self._push(frame.position, mask, used, after, choices)
        return self.status

    def _push(
        self, position: int, mask: int, used: int, state: int, choices: tuple[int, ...]
    ) -> None:
        position, mask = self._problem.advance(position, mask, state)
        self.best = max(self.best, position)
        key = (position, mask, state)
        if self._has_unknown:
            chain = self._visited.get(key)
            if chain is None:
                self._visited[key] = [used]
            elif dominated(chain, used):
                return
        else:
            if key in self._visited_plain:
                return
            self._visited_plain.add(key)
        self.configurations += 1
        self._stack.append(_Frame(position, mask, used, state, choices))
        if position == len(self._problem.returns):
            self.status = Status.FOUND
        elif self.configurations >= self._configurations_max:
            self.status = Status.FULL
            self._visited.clear()
            self._visited_plain.clear()

    def _unknown_steps(
        self, frame: _Frame, used: int, state: int
    ) -> Iterator[tuple[int, int, int]]:
        """Yield (operation, used, state) for each unused unknown operation that changes `state`."""
        problem = self._problem
        memos, step = problem.stepper.memo, problem.stepper.step
        reach, footprints = frame.reach, problem.footprints
        for index in range(problem.unknown_called[frame.position] - 1, -1, -1):
            if not footprints[problem.unknown[index]] & reach:
                continue
            bit = 1 << index
            twin = problem.unknown_twin[index]
            if used & bit or (twin >= 0 and not used & (1 << twin)):
                continue
            op = problem.unknown[index]
            self.steps += 1
            after = memos[op].get(state)
            if after is None:
                after = step(state, op)
            if after not in {ILLEGAL_STEP, state}:
                yield op, used | bit, after

    def _known_steps(self, frame: _Frame) -> Iterator[tuple[int, int, int]]:
        """Yield (operation, mask, state) for each legal open write.

        The operation that must return next is left out.
        """
        problem = self._problem
        must = problem.returns[frame.position]
        for bit, op in problem.open_writes[frame.position]:
            if frame.mask & bit or op == must or not problem.footprints[op] & frame.reach:
                continue
            self.steps += 1
            after = problem.stepper.step(frame.state, op)
            if after != ILLEGAL_STEP:
                yield op, frame.mask | bit, after

    def _known_moves(self, frame: _Frame, must: int) -> tuple[bool, list[Move], list[Move]]:
        """Try the open writes, except the operation `must`, which must return next.

        Returns whether `must` is illegal now, the writes that make it legal, and the other writes.
        """
        frame.reach = self._problem.relevant(frame.position, frame.mask)
        blocked = self._problem.stepper.step(frame.state, must) == ILLEGAL_STEP
        moves: list[Move] = [
            ((op,), mask, frame.used, after) for op, mask, after in self._known_steps(frame)
        ]
        helpful = [move for move in moves if blocked and self._enables(move[3], must)]
        return blocked, helpful, [move for move in moves if move not in helpful]

    def _enables(self, state: int, op: int) -> bool:
        self.steps += 1
        return self._problem.stepper.step(state, op) != ILLEGAL_STEP

    def _moves(self, frame: _Frame) -> Iterator[Move]:
        """Yield all moves that consist of one operation, except the operation that must return
        next.

        Moves that make that operation legal come first.
        """
        must = self._problem.returns[frame.position]
        blocked, helpful, moves = self._known_moves(frame, must)
        unknown: list[Move] = []
        yield from helpful
        if blocked:
            for op, used, after in self._unknown_steps(frame, frame.used, frame.state):
                move = ((op,), frame.mask, used, after)
                if self._enables(after, must):
                    yield move
                else:
                    unknown.append(move)
        yield from moves
        if blocked:
            yield from unknown
        else:
            for op, used, after in self._unknown_steps(frame, frame.used, frame.state):
                yield (op,), frame.mask, used, after

    def _lean_moves(self, frame: _Frame) -> Iterator[Move]:
        """Yield moves of an open write, or of unknown operations and the operation that they make
        legal.
        """
        problem = self._problem
        must = problem.returns[frame.position]
        blocked, helpful, moves = self._known_moves(frame, must)
        yield from helpful
        if blocked:
            bit = problem.return_bits[frame.position]
            yield from self._chains(frame, must, bit)
        yield from moves
        others = itertools.chain(
            problem.open_writes[frame.position], problem.open_reads[frame.position]
        )
        for bit, op in others:
            if frame.mask & bit or op == must or not problem.footprints[op] & frame.reach:
                continue
            if self._enables(frame.state, op):
                continue
            for unknown, used, between in self._unknown_steps(frame, frame.used, frame.state):
                if self._enables(between, op):
                    after = problem.stepper.step(between, op)
                    yield (unknown, op), frame.mask | bit, used, after

    def _chains(self, frame: _Frame, must: int, bit: int) -> Iterator[Move]:
        """Yield short chains of unknown operations that make `must` legal, followed by `must`.

        `must` is the operation that has to return next. Shorter chains come first.
        """
        stepper = self._problem.stepper
        stop = self.steps + CHAIN_EVALUATIONS_MAX
        level: list[tuple[tuple[int, ...], int, int]] = [((), frame.used, frame.state)]
        seen: dict[int, list[int]] = {frame.state: [frame.used]}
        for _ in range(CHAIN_LENGTH_MAX):
            following: list[tuple[tuple[int, ...], int, int]] = []
            for chain, used, state in level:
                for op, used_after, after in self._unknown_steps(frame, used, state):
                    if dominated(seen.setdefault(after, []), used_after):
                        continue
                    if self._enables(after, must):
                        final = stepper.step(after, must)
                        yield (*chain, op, must), frame.mask | bit, used_after, final
                    else:
                        following.append(((*chain, op), used_after, after))
                    if self.steps >= stop:
                        return
            level = following


class _Resumable(Protocol):
    """The interface of a search that can be run in slices."""

    steps: int
    status: Status

    def run(self, budget: int) -> Status: ...


def run_sliced(search: _Resumable, budget: int, is_over: Callable[[], bool]) -> Status:
    """Run `search` for about `budget` more steps in slices, or until `is_over()` is true.

    `is_over` is called before each slice of a few milliseconds. The slices do not change the
    search.
    """
    end, size = search.steps + budget, SLICE_STEPS
    while search.status is Status.RUNNING and search.steps < end and not is_over():
        began_s = time.monotonic()
        search.run(min(size, end - search.steps))
        took_s = time.monotonic() - began_s
        if took_s < SLICE_SHORT_S:
            size = min(2 * size, SLICE_STEPS_MAX)
        elif took_s > SLICE_LONG_S:
            size = max(1, size // 8)
    return search.status
