"""Searches breadth-first over return events: Lowe's just-in-time linearization, with dominance.

A configuration is one way in which the operations so far can have taken effect. The frontier is the
set of all configurations that are possible before a return. The search expands the configurations
in which the returning operation is not linearized yet.

For each (mask, state), only the minimal sets of used operations of unknown outcome are kept (an
antichain). A configuration that has used fewer of these operations can reach everything that
another configuration can. So this search decides invalid histories with many lost answers on which
a depth-first search does not finish.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from checkers.linearizability.problem import ILLEGAL_STEP, Problem
from checkers.linearizability.search import Status, dominated


class Path(NamedTuple):
    """A linked list of the branching choices that led to a configuration, the last one first."""

    previous: Path | None
    choice: int


class Configuration(NamedTuple):
    """One way in which the history up to some return can have happened.

    `mask` has the open operations that are linearized. `used` has the operations of unknown outcome
    that took effect. `path` has the choices that led to this configuration.
    """

    mask: int
    state: int
    used: int
    path: Path | None

    def choices(self) -> list[int]:
        choices: list[int] = []
        path = self.path
        while path is not None:
            choices.append(path.choice)
            path = path.previous
        choices.reverse()
        return choices


class Frontier:
    """A resumable breadth-first search. `best` is the position of the next return to pass."""

    def __init__(self, problem: Problem, *, configurations_max: int) -> None:
        self._problem = problem
        self._configurations_max = configurations_max
        self._layers: dict[int, list[Configuration]] = {}
        self._chains: dict[int, dict[tuple[int, int], list[int]]] = {}
        self._pending: deque[Configuration] = deque()
        self.surviving: list[Configuration] = []
        self.configurations = 0
        self.steps = 0
        self.best = 0
        self.status = Status.RUNNING
        self.winner: Configuration | None = None
        self._arrive(0, Configuration(0, problem.stepper.initial, 0, None))
        self._next_layer()

    def _arrive(self, position: int, config: Configuration) -> None:
        """Let `config` pass returns and absorb reads, then keep it unless it is dominated."""
        position, mask = self._problem.advance(position, config.mask, config.state)
        if position == len(self._problem.returns):
            self.winner = config
            self.status = Status.FOUND
            return
        chains = self._chains.setdefault(position, {})
        if dominated(chains.setdefault((mask, config.state), []), config.used):
            return
        config = config._replace(mask=mask)
        self.configurations += 1
        if position == self.best and self._current:
            self._pending.append(config)
            self.surviving.append(config)
        else:
            self._layers.setdefault(position, []).append(config)
        full = self.configurations >= self._configurations_max
        if full and self.status is Status.RUNNING:
            self.status = Status.FULL

    _current = False

    def _next_layer(self) -> None:
        """Start on the earliest layer that has configurations. Without one, the search ends."""
        if self.status is not Status.RUNNING:
            return
        if not self._layers:
            self.status = Status.EXHAUSTED
            return
        if self._current:
            self._chains.pop(self.best, None)
            self.configurations -= len(self.surviving)
        self._current = True
        self.best = min(self._layers)
        layer = self._layers.pop(self.best)
        chains = self._chains[self.best]
        # Leave out configurations of the layer that a later configuration dominates.
        self.surviving = [c for c in layer if c.used in chains[c.mask, c.state]]
        self.configurations -= len(layer) - len(self.surviving)
        self._pending.extend(self.surviving)

    def run(self, budget: int) -> Status:
        """Search for about `budget` more steps."""
        limit = self.steps + budget
        while self.status is Status.RUNNING and self.steps < limit:
            if not self._pending:
                self._next_layer()
                continue
            config = self._pending.popleft()
            if config.used in self._chains[self.best][config.mask, config.state]:
                self._expand(config)
        return self.status

    def _expand(self, config: Configuration) -> None:
        problem = self._problem
        memos, step = problem.stepper.memo, problem.stepper.step
        position, state = self.best, config.state
        footprints = problem.footprints
        reach = problem.relevant(position, config.mask)
        for bit, op in problem.open_writes[position]:
            if config.mask & bit or not footprints[op] & reach:
                continue
            self.steps += 1
            after = memos[op].get(state)
            if after is None:
                after = step(state, op)
            if after != ILLEGAL_STEP:
                path = Path(config.path, op)
                self._arrive(position, Configuration(config.mask | bit, after, config.used, path))
        for index in range(problem.unknown_called[position]):
            op = problem.unknown[index]
            if not footprints[op] & reach:
                continue
            bit = 1 << index
            twin = problem.unknown_twin[index]
            if config.used & bit or (twin >= 0 and not config.used & (1 << twin)):
                continue
            self.steps += 1
            after = memos[op].get(state)
            if after is None:
                after = step(state, op)
            if after not in {ILLEGAL_STEP, state}:
                path = Path(config.path, op)
                self._arrive(position, Configuration(config.mask, after, config.used | bit, path))

    def remaining(self) -> list[Configuration]:
        """Return the configurations before the furthest return that are not dominated."""
        chains = self._chains.get(self.best, {})
        return [c for c in self.surviving if c.used in chains.get((c.mask, c.state), ())]
