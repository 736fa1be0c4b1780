"""Represents one part of a check, with its operations and its competing searches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from checkers.linearizability.clock import Clock, tick
from checkers.linearizability.direct.decision import Decision
from checkers.linearizability.explain import Failure, explain
from checkers.linearizability.frontier import Frontier
from checkers.linearizability.model import Limits, Model, Operation, Result
from checkers.linearizability.native import breadth_first, depth_first, problem_of
from checkers.linearizability.problem import Problem
from checkers.linearizability.search import DepthFirst, Status, run_sliced

# the maximum number of projections to explain when looking for a small core
EXPLAINED_MAX = 4
CORE_SMALL = 6  # the maximum size of a core that a reader understands at once
LEAN_SHARE = 3


class Part:
    """One independent problem with its competing searches, which are created on demand."""

    def __init__(
        self,
        name: str,
        model: Model[Any, Any, Any],
        operations: Sequence[Operation[Any, Any]],
        limits: Limits,
        *,
        only_refutes: bool,
    ) -> None:
        self.name = name
        self.model = model
        self.operations = operations
        self.only_refutes = only_refutes
        self.result: Result | None = None
        self.decided_by = ""
        self.decision: Decision | None = None
        self.choices: list[int] = []
        self.rounds = 0
        self.returns_total = sum([o.return_time is not None for o in operations])
        self._most = limits.configurations_max
        self._started = False

    @cached_property
    def problem(self) -> Problem:
        return problem_of(self.model, self.operations)

    @cached_property
    def lean(self) -> DepthFirst:
        """The depth-first search that finds an order in most cases."""
        return depth_first(self.problem, lean=True, configurations_max=self._most)

    @cached_property
    def depth(self) -> DepthFirst:
        return depth_first(self.problem, lean=False, configurations_max=self._most)

    @cached_property
    def breadth(self) -> Frontier:
        return breadth_first(self.problem, configurations_max=self._most)

    @property
    def _searches(self) -> tuple[DepthFirst | Frontier, ...]:
        return (self.lean, self.depth, self.breadth) if self._started else ()

    def decide(self) -> Result | None:
        """Apply the model's direct method. Returns the result, or `None` if still undecided."""
        tick()
        if not self._started and any(
            not o.call <= (math.inf if o.return_time is None else o.return_time)
            for o in self.operations
        ):
            self._start()
        decision = self.model.decide(self.operations)
        if decision is not None:
            result = Result.ILLEGAL if decision.order is None else Result.OK
            assert self.result in {None, result}, "a search and a direct method disagree"
            self.decision, self.decided_by, self.result = decision, decision.method, result
        return self.result

    @property
    def steps(self) -> int:
        return sum(search.steps for search in self._searches)

    @property
    def configurations(self) -> int:
        return sum(search.configurations for search in self._searches)

    @property
    def best(self) -> int:
        """The position of the furthest return event that any search of this part reached."""
        return max((search.best for search in self._searches), default=0)

    @property
    def finished(self) -> DepthFirst | Frontier:
        """The finished search that proved that this part has no legal order."""
        return self.breadth if self.breadth.status is Status.EXHAUSTED else self.depth

    def order(self) -> tuple[int, ...]:
        """Return the operation ids of the legal order that was found."""
        if self.decision is not None:
            assert self.decision.order is not None, "only a legal part has an order"
            return self.decision.order
        ids = [operation.id for operation in self.operations]
        return tuple([ids[number] for number in self.problem.replay(self.choices)])

    @property
    def failing_return(self) -> float:
        """The return time of the first operation that cannot be linearized."""
        time_of = self.operations[self.problem.returns[self.finished.best]].return_time
        assert time_of is not None
        return time_of

    @property
    def stuck(self) -> bool:
        return self._started and Status.RUNNING not in {self.depth.status, self.breadth.status}

    def _start(self) -> None:
        """Create all three searches. If a time limit interrupts this, start again next time."""
        if not self._started:
            self._started = all((self.lean, self.depth, self.breadth))

    def run(self, budget: int, stop: Clock, *, room: int | None = None) -> Result | None:
        """Give each unfinished search `budget` more steps, until a search decides.

        `room` is the remaining number of steps for all searches together. Returns the verdict, or
        `None` if no search decided.
        """
        self._start()
        searches: tuple[tuple[str, DepthFirst | Frontier], ...] = (
            ("lean depth-first search", self.lean),
            ("depth-first search", self.depth),
            ("breadth-first search with dominance", self.breadth),
        )
        if not self.problem.unknown:
            # without unknown operations, the lean search equals the complete search
            searches = searches[1:]
        elif self.rounds:
            # The lean search did not decide in the first round, so the history is probably invalid,
            # which the breadth-first search usually finds out first.
            searches = (searches[2], searches[0], searches[1])
        self.rounds += 1
        if room is not None:
            running = [search for _, search in searches if search.status is Status.RUNNING]
            shares = sum(LEAN_SHARE if search is self.lean else 1 for search in running)
            budget = min(budget, max(1, room // max(1, shares)))
        for name, search in searches:
            left = budget * LEAN_SHARE if search is self.lean else budget
            if room is not None:
                left = min(left, room)
            before = search.steps
            run_sliced(search, left, stop.is_over)
            if room is not None:
                room -= search.steps - before
            if search.status is Status.FOUND:
                self.result, self.decided_by = Result.OK, name
                if isinstance(search, Frontier):
                    assert search.winner is not None
                    self.choices = search.winner.choices()
                else:
                    self.choices = search.choices()
                return self.result
            if search.status is Status.EXHAUSTED:
                self.result, self.decided_by = Result.ILLEGAL, name
                return self.result
        return None


def projected(
    model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]], limits: Limits
) -> list[Part]:
    """Make a part from each projection of the model. These parts can only refute the history."""
    return [
        Part(p.name, p.model, p.operations, limits, only_refutes=True)
        for p in model.projections(operations)
    ]


def _sharpest(part: Part, projections: list[Part], limits: Limits, clock: Clock) -> list[Part]:
    """Return the projections that refute an invalid history, sorted by their failing returns.

    Returns `part` if there is none. A projection gives a shorter explanation than the whole
    history.
    """
    for other in projections:
        if other.result is None:
            other.run(limits.rounds[0], clock)
    refuting = [other for other in projections if other.result is Result.ILLEGAL]
    return sorted(refuting, key=lambda other: other.failing_return) or [part]


def explained_part(
    part: Part, projections: list[Part], limits: Limits, clock: Clock
) -> tuple[Part, Failure]:
    """Explain an invalid history by the first projection with a small core.

    If no core is small, minimal cores are preferred, and then the smallest core.
    """
    failures: list[tuple[Part, Failure]] = []
    for sharp in _sharpest(part, projections, limits, clock)[:EXPLAINED_MAX]:
        failure = explain(
            sharp.problem,
            sharp.finished.best,
            limits,
            name=sharp.name if sharp.only_refutes else "",
            is_over=clock.is_over,
        )
        if failure.core_minimal and len(failure.core) <= CORE_SMALL:
            return sharp, failure
        failures.append((sharp, failure))
    return min(failures, key=lambda pair: (not pair[1].core_minimal, len(pair[1].core)))


def unexplained(part: Part) -> Failure:
    """Return the failure of `part` without a search. Its core is all operations that returned."""
    best = part.finished.best
    operations, returns = part.operations, part.problem.returns
    return Failure(
        operation=operations[returns[best]].id,
        previous=operations[returns[best - 1]].id if best else None,
        survivors=(),
        survivors_total=0,
        core=tuple(o.id for o in operations if not o.is_unknown),
        weakened=(),
        core_minimal=False,
        projection=part.name if part.only_refutes else "",
    )
