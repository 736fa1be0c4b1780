"""Represents kinds of cycles as automata, and searches for the shortest cycle of a kind.

The search is breadth-first over pairs (node, state of the automaton). It starts at every edge whose
relation a cycle of that kind must contain. Only transactions count in the length of a walk, not the
auxiliary nodes of `graph` (gates and joints). If the shortest closed walks visit a transaction
twice, they are no cycles. Then the search enumerates simple paths.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from checkers.elle.infer.columns import IntArray
from checkers.elle.search.graph import JOINT, PROCESS, REALTIME, RW, RWP, WR, WRP, WW, Component

ENUMERATED_MAX: Final = 20_000
DEADLINE_EVERY_STEPS: Final = 4096

_ANTI: Final = frozenset({RW, RWP})

Adjacency = list[list[tuple[int, int]]]
Walk = list[tuple[int, int]]
"""The steps of a closed walk: each node with the relation of the step that leaves it."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """A cycle of transactions (numbers within the component), with the relation of each step.

    Step i leads from txns[i] to txns[i + 1], and the last step leads back to txns[0].
    """

    txns: tuple[int, ...]
    relations: tuple[int, ...]

    @property
    def name(self) -> str:
        anti = [relation in _ANTI for relation in self.relations]
        if any(anti):
            # position -1 is the last step, which precedes the first
            adjacent = any(here and anti[i - 1] for i, here in enumerate(anti))
            name = "G2" if adjacent else "G-nonadjacent"
            name = "G-single" if anti.count(True) == 1 else name
            name += "" if RWP in self.relations else "-item"
        else:
            name = "G1c" if WR in self.relations or WRP in self.relations else "G0"
        if REALTIME in self.relations:
            return f"{name}-realtime"
        return f"{name}-process" if PROCESS in self.relations else name


class TimedOut(Exception):  # noqa: N818 - the end of a budget, not an error
    """A search used up its steps or its time."""


class Budget:
    """The number of steps that searches may take, and the deadline at which they must stop."""

    def __init__(self, steps: int, deadline_passed: Callable[[], bool]) -> None:
        self.steps = steps
        self._deadline_passed = deadline_passed
        self._look_at = steps

    def spend(self, steps: int) -> None:
        """Use up `steps`; raise `TimedOut` if no steps are left or the deadline has passed."""
        self.steps -= steps
        if self.steps < 0:
            raise TimedOut
        if self.steps <= self._look_at:
            self._look_at = self.steps - DEADLINE_EVERY_STEPS
            if self._deadline_passed():
                raise TimedOut

    @contextmanager
    def part(self, steps: int) -> Iterator[Budget]:
        """Lend a budget of at most `steps`; its unused steps return to this budget at the end."""
        portion = Budget(min(steps, self.steps), self._deadline_passed)
        walked = portion.steps
        try:
            yield portion
        finally:
            self.steps -= walked - max(portion.steps, 0)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of cycle as an automaton.

    `rw` is the required number of anti-dependencies: 0, 1 (exactly) or 2 (or more). If `apart` is
    set, no two anti-dependencies may be adjacent. The other fields are bit masks of relations.
    Steps by `anti` count as anti-dependencies, and steps by `free` are allowed anywhere. The search
    begins with a step by `first`, which the cycle must contain. Unless `suffix` is 0, the cycle
    must also contain a step by `suffix`.
    """

    free: int
    anti: int
    rw: int
    apart: bool
    first: int
    suffix: int

    @staticmethod
    def named(name: str) -> Kind:
        suffix = 0
        if name.endswith("-process"):
            suffix = PROCESS
        elif name.endswith("-realtime"):
            suffix = REALTIME
        base = name.removesuffix("-process").removesuffix("-realtime")
        free = (WW if base == "G0" else WW | WR | WRP) | suffix
        item = base.endswith("-item")
        rw = {"G0": 0, "G1c": 0, "G-single": 1}.get(base.removesuffix("-item"), 2)
        first = (RW if item else RWP) if rw else WR | WRP if base == "G1c" else suffix or WW
        anti = (RW if item else RW | RWP) if rw else 0
        return Kind(free, anti, rw, base.startswith("G-nonadjacent"), first, suffix)

    def step(self, state: int, relation: int) -> int:
        """Return the automaton's state after a step by `relation`, or -1 if no step is possible.

        The state is a bit mask: the lowest two bits count anti-dependencies, 4 is set if the last
        step was an anti-dependency, and 8 is set if the relation `suffix` occurred.
        """
        if relation == JOINT:
            return state
        if relation & self.anti:
            count = state & 3
            if (self.rw == 1 and count) or (self.apart and state & 4):
                return -1
            return (state & 8) | min(count + 1, 2) | 4
        if not relation & self.free:
            return -1
        return (state & 3) | (8 if relation == self.suffix else state & 8)

    def accepts(self, state: int) -> bool:
        """Return whether a closed walk that ends in `state` is a cycle of this kind."""
        if (state & 3) != self.rw or (self.suffix and not state & 8):
            return False
        return not (self.apart and state & 4)


class Walker:
    """A search for cycles of one `kind` in a component.

    `label` has the component of each node in the subgraph that contains all such cycles. A walk
    ends as soon as it leaves its component. With `extended`, the subgraph has each node twice (see
    `Search`).
    """

    def __init__(
        self,
        component: Component,
        out: Adjacency,
        kind: Kind,
        label: IntArray,
        extended: bool,
        budget: Budget,
    ) -> None:
        self._members, self._count = component.members, component.count
        self._out = out
        self._kind = kind
        self._label: list[int] = label.tolist()
        self._extended = extended
        self._budget = budget

    def shortest(self) -> Cycle | None:
        """Return the shortest cycle of the kind, or `None`; raise `TimedOut` if the budget ends.

        If the budget ends after a cycle was found, this cycle is returned.
        """
        best: Walk = []
        size = 0
        folded = False
        try:
            for origin in range(self._members):
                for head, relation in self._out[origin]:
                    if not relation & self._kind.first or not self._may(origin, head):
                        continue
                    walk = self._walk(origin, head, relation, size)
                    if walk is None:
                        continue
                    txns = [node for node, _ in walk if node < self._members]
                    if len(set(txns)) == len(txns):
                        best, size = walk, len(txns)
                    else:
                        folded = True
        except TimedOut:
            if not best:
                raise
        if not best and folded:
            with self._budget.part(ENUMERATED_MAX) as part:
                best = self._enumerate(part)
        return cycle_of(best, self._members) if best else None

    def _may(self, origin: int, head: int) -> bool:
        if self._kind.rw == 1:
            return self._label[head] >= self._label[origin]
        if self._extended:
            return self._label[origin] == self._label[head + self._count]
        return self._label[origin] == self._label[head]

    def _walk(self, origin: int, head: int, first: int, best: int) -> Walk | None:
        kind, label, extended = self._kind, self._label, self._extended
        members, count = self._members, self._count
        state = kind.step(0, first)
        if head == origin:
            return [(origin, first)] if kind.accepts(state) else None
        start = (head, state)
        parents: dict[tuple[int, int], tuple[tuple[int, int], int] | None] = {start: None}
        length = {start: 1 if head >= members else 2}
        if best and length[start] >= best:
            return None
        queue = deque([start])
        home = label[origin]
        while queue:
            place = queue.popleft()
            node, state = place
            out = self._out[node]
            self._budget.spend(len(out) + 1)
            for following, relation in out:
                after = kind.step(state, relation)
                if after < 0:
                    continue
                if following == origin:
                    if kind.accepts(after):
                        return _unwind(parents, place, relation, origin, first)
                    continue
                size = length[place] + (following < members)
                if best and size >= best:
                    continue
                if kind.rw == 1:
                    if label[following] < home:
                        continue
                elif label[following + count if extended and after & 4 else following] != home:
                    continue
                reached = (following, after)
                if reached not in parents:
                    parents[reached] = (place, relation)
                    length[reached] = size
                    # Gates and joints cost nothing, so they go to the front of the queue. The first
                    # visit of a node is the cheapest.
                    if following < members:
                        queue.append(reached)
                    else:
                        queue.appendleft(reached)
        return None

    def _enumerate(self, budget: Budget) -> Walk:
        """Try all simple paths, the shortest first; return a cycle, or `[]` if there is none."""
        kind, members = self._kind, self._members
        for limit in range(2, members + 1):
            for origin in range(members):
                stack: list[tuple[list[tuple[int, int]], int, int]] = [([], origin, 0)]
                while stack:
                    path, node, state = stack.pop()
                    budget.spend(1)
                    # A path may pass the same gate or joint twice, since these nodes only lead
                    # forward.
                    visited = {step[0] for step in path if step[0] < members}
                    size = len(visited) + (node < members)
                    for following, relation in reversed(self._out[node]):
                        if not path and not relation & kind.first:
                            continue
                        after = kind.step(state, relation)
                        if after < 0:
                            continue
                        longer = [*path, (node, relation)]
                        if following == origin:
                            if kind.accepts(after):
                                return longer
                        elif following not in visited and size + (following < members) <= limit:
                            stack.append((longer, following, after))
        return []


def cycle_of(walk: Walk, members: int) -> Cycle:
    """Return `walk` without gates and joints, rotated to start at its smallest transaction."""
    steps = [step for step in walk if step[0] < members]
    least = min(range(len(steps)), key=lambda i: steps[i][0])
    steps = steps[least:] + steps[:least]
    return Cycle(tuple(node for node, _ in steps), tuple(relation for _, relation in steps))


def _unwind(
    parents: dict[tuple[int, int], tuple[tuple[int, int], int] | None],
    last: tuple[int, int],
    closing: int,
    origin: int,
    first: int,
) -> Walk:
    backwards = [(last[0], closing)]
    step = parents[last]
    while step is not None:
        backwards.append((step[0][0], step[1]))
        step = parents[step[0]]
    return [(origin, first), *reversed(backwards)]
