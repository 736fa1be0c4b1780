"""The front door: `check_operations` and `check_events`.

Every part (partition or projection) gets three searches that compete by budget, in rounds: the lean
depth-first one, the complete depth-first one, and the breadth-first one with dominance. The first
that decides wins, so the verdict is theirs together; an invalid part ends the whole check, since no
other part can mend it. Budgets are counted in steps, so a verdict depends on the clock only through
`Limits.time_s`, and then only by being `UNKNOWN`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkers.linearizability.explain import Failure, explain
from checkers.linearizability.frontier import Frontier
from checkers.linearizability.model import UNKNOWN, Event, Limits, Model, Operation, Result
from checkers.linearizability.native import breadth_first, depth_first, problem_of
from checkers.linearizability.search import DepthFirst, Status

__all__ = ["CheckOutcome", "check_events", "check_operations"]

CLOCK_STEPS = 20_000  # steps between two looks at the clock
EXPLAINED_MAX = 4  # projections whose contradiction is looked for before a large one is taken
CORE_SMALL = 6  # operations that can be read at once
LEAN_SHARE = 3  # how much more the lean search gets: most valid histories end there


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """What a check found.

    `witness` (only for `OK`) is one legal order of operation ids per partition; unknown operations
    not in it never took effect. `failure` (only for `ILLEGAL`, if asked for) explains. `decided_by`
    names the search or the projection that settled it. `progress` is how many `returns` could be
    passed on the best path of the part that was left undecided, or that is illegal.
    """

    result: Result
    reason: str
    witness: tuple[tuple[int, ...], ...] | None = None
    failure: Failure | None = None
    decided_by: str = ""
    steps: int = 0
    configurations: int = 0
    progress: int = 0
    returns: int = 0


class _Part:
    """One independent problem with its competing searches."""

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
        self.problem = problem_of(model, operations)
        self.only_refutes = only_refutes
        self.result: Result | None = None
        self.decided_by = ""
        self.choices: list[int] = []
        self.rounds = 0
        most = limits.configurations
        self.lean = depth_first(self.problem, lean=True, configurations_max=most)
        self.depth = depth_first(self.problem, lean=False, configurations_max=most)
        self.breadth = breadth_first(self.problem, configurations_max=most)

    @property
    def steps(self) -> int:
        return self.lean.steps + self.depth.steps + self.breadth.steps

    @property
    def configurations(self) -> int:
        return self.lean.configurations + self.depth.configurations + self.breadth.configurations

    @property
    def best(self) -> int:
        return max(self.lean.best, self.depth.best, self.breadth.best)

    @property
    def finished(self) -> DepthFirst | Frontier:
        """The search that proved it illegal, and so has surely reached the furthest return."""
        return self.breadth if self.breadth.status is Status.EXHAUSTED else self.depth

    @property
    def failing_return(self) -> float:
        """When the first operation returned that cannot be linearized."""
        time_of = self.operations[self.problem.returns[self.finished.best]].return_time
        assert time_of is not None
        return time_of

    @property
    def stuck(self) -> bool:
        """Whether no search can go on."""
        return self.depth.status is Status.FULL and self.breadth.status is Status.FULL

    def run(self, budget: int, stop: _Clock, *, room: int | None = None) -> Result | None:
        """Give each search that still runs `budget` more steps, or until one decides.

        `room` is what is left for all of them together; where it is too little, all get less.
        """
        searches: tuple[tuple[str, DepthFirst | Frontier], ...] = (
            ("lean depth-first search", self.lean),
            ("depth-first search", self.depth),
            ("breadth-first search with dominance", self.breadth),
        )
        if not self.problem.unknown:
            searches = searches[1:]  # without unknown operations lean and complete are the same
        elif self.rounds:
            # What lean did not find at once is most likely invalid: breadth settles that soonest.
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
            while left > 0 and search.status is Status.RUNNING and not stop.is_over():
                search.run(min(left, CLOCK_STEPS))
                left -= CLOCK_STEPS
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


class _Clock:
    """The deadline, looked at between slices of steps."""

    def __init__(self, limit_s: float | None) -> None:
        self._end = None if limit_s is None else time.monotonic() + limit_s

    def is_over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


def check_operations(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    *,
    timeout_s: float | None = None,
    limits: Limits | None = None,
    explained: bool = True,
) -> CheckOutcome:
    """Whether `operations` are linearizable under `model`.

    `timeout_s` overrides `limits.time_s`; `None` means no limit of time. Without `explained` an
    `ILLEGAL` outcome has no `failure`, which often takes longer to find than the verdict. Raises
    `ValueError` for operations that cannot be (two with one id, a return before its call) and
    `ModelError` for a model that breaks its contract.
    """
    limits = limits or Limits()
    clock = _Clock(timeout_s if timeout_s is not None else limits.time_s)
    labelled = _with_ids(operations)
    groups = [group for group in model.partition(labelled) if group]
    parts = [
        _Part(f"partition {n}", model, group, limits, only_refutes=False)
        for n, group in enumerate(groups)
    ]
    spent = 0
    projections: list[_Part] | None = None
    for budget in _budgets(limits):
        at_start = spent
        todo = [*parts, *(projections or ())]
        while True:
            for part in todo:
                if part.result is not None or part.stuck:
                    continue
                room = limits.steps - spent
                if room <= 0 or clock.is_over():
                    break
                before = part.steps
                result = part.run(budget, clock, room=room)
                spent += part.steps - before
                if result is Result.ILLEGAL and not explained:
                    return _illegal(part, [*parts, *(projections or ())])
                if result is Result.ILLEGAL:
                    if projections is None:
                        projections = _projected(model, labelled, limits)
                    told, failure = _explained(part, projections, limits, clock)
                    return _illegal(told, [*parts, *projections], failure)
            if all(part.result is Result.OK for part in parts):
                return _valid(parts, spent)
            if projections is not None or spent >= limits.steps or clock.is_over():
                break
            todo = projections = _projected(model, labelled, limits)
        if spent >= limits.steps or clock.is_over() or spent == at_start:
            break
    return _undecided(parts, spent, limits, clock)


def _projected(
    model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]], limits: Limits
) -> list[_Part]:
    return [
        _Part(p.name, p.model, p.operations, limits, only_refutes=True)
        for p in model.projections(operations)
    ]


def _sharpest(part: _Part, projections: list[_Part], limits: Limits, clock: _Clock) -> list[_Part]:
    """What to explain an invalid history with: the projections that fail, the first to fail first.

    A projection tells a shorter story than the whole, and its counterexample can be made smaller.
    """
    for other in projections:
        if other.result is None:
            other.run(limits.rounds[0], clock)
    refuting = [other for other in projections if other.result is Result.ILLEGAL]
    return sorted(refuting, key=lambda other: other.failing_return) or [part]


def _budgets(limits: Limits) -> Iterable[int]:
    """The rounds, the last one again and again."""
    yield from limits.rounds
    while True:
        yield limits.rounds[-1]


def _with_ids(operations: Sequence[Operation[Any, Any]]) -> Sequence[Operation[Any, Any]]:
    """The operations, each with an id: its own, or its position."""
    if not isinstance(operations, (list, tuple)):
        operations = list(operations)  # what can be gone through only once would be gone below
    ids = [operation.id for operation in operations]
    if min(ids, default=0) < 0:
        # Spelled out: `replace` takes twice as long, and that of 100,000 operations is noticed.
        operations = [
            operation
            if operation.id >= 0
            else Operation(
                operation.client_id,
                operation.input,
                operation.call,
                operation.output,
                operation.return_time,
                number,
                operation.metadata,
            )
            for number, operation in enumerate(operations)
        ]
        ids = [operation.id for operation in operations]
    if len(set(ids)) != len(ids):
        raise ValueError("two operations have the same id; give each its own, or none at all")
    return operations


def _order(part: _Part) -> tuple[int, ...]:
    ids = [operation.id for operation in part.operations]
    return tuple([ids[number] for number in part.problem.replay(part.choices)])


def _valid(parts: Sequence[_Part], spent: int) -> CheckOutcome:
    witness = tuple(_order(part) for part in parts)
    by = sorted({part.decided_by for part in parts})
    return CheckOutcome(
        result=Result.OK,
        reason="a legal order exists",
        witness=witness,
        decided_by=", ".join(by) or "nothing to check",
        steps=spent,
        configurations=sum(part.configurations for part in parts),
        progress=sum(len(part.problem.returns) for part in parts),
        returns=sum(len(part.problem.returns) for part in parts),
    )


def _explained(
    part: _Part, projections: list[_Part], limits: Limits, clock: _Clock
) -> tuple[_Part, Failure]:
    """The failure with a small core, of the first projections that fail; else the smallest."""
    found: list[tuple[_Part, Failure]] = []
    for told in _sharpest(part, projections, limits, clock)[:EXPLAINED_MAX]:
        failure = explain(
            told.problem,
            told.finished.best,
            limits,
            name=told.name if told.only_refutes else "",
            is_over=clock.is_over,
        )
        if failure.core_minimal and len(failure.core) <= CORE_SMALL:
            return told, failure
        found.append((told, failure))
    return min(found, key=lambda pair: (not pair[1].core_minimal, len(pair[1].core)))


def _illegal(part: _Part, parts: Sequence[_Part], failure: Failure | None = None) -> CheckOutcome:
    return CheckOutcome(
        result=Result.ILLEGAL,
        reason="no legal order exists",
        failure=failure,
        decided_by=f"{part.decided_by} on {part.name}",
        steps=sum(other.steps for other in parts),
        configurations=sum(other.configurations for other in parts),
        progress=part.finished.best,
        returns=len(part.problem.returns),
    )


def _undecided(parts: Sequence[_Part], spent: int, limits: Limits, clock: _Clock) -> CheckOutcome:
    open_parts = [part for part in parts if part.result is None]
    worst = min(open_parts, key=lambda part: part.best / max(1, len(part.problem.returns)))
    if clock.is_over():
        why = "the time limit was reached"
    elif all(part.stuck for part in open_parts):
        why = f"more than {limits.configurations} configurations would have to be remembered"
    else:
        why = f"the limit of {limits.steps} steps was reached"
    total = len(worst.problem.returns)
    return CheckOutcome(
        result=Result.UNKNOWN,
        reason=(
            f"{why} after {spent} steps; {len(open_parts)} of {len(parts)} partitions undecided, "
            f"the furthest path passed {worst.best} of {total} returns, "
            f"{len(worst.problem.unknown)} operations have an unknown outcome"
        ),
        steps=spent,
        configurations=sum(part.configurations for part in parts),
        progress=worst.best,
        returns=total,
    )


def check_events(
    model: Model[Any, Any, Any],
    events: Sequence[Event],
    *,
    timeout_s: float | None = None,
    limits: Limits | None = None,
    explained: bool = True,
) -> CheckOutcome:
    """As `check_operations`, for calls and returns in the order of their positions.

    A call without a return is unknown. Ids are arbitrary; results number operations by the order of
    their calls. Raises `ValueError` for a return without a call, or an id that is used twice.
    """
    opened: dict[int, int] = {}
    operations: list[Operation[Any, Any]] = []
    returned: set[int] = set()
    for position, event in enumerate(events):
        if event.is_call:
            if event.id in opened:
                raise ValueError(f"event {position} calls id {event.id} a second time")
            opened[event.id] = len(operations)
            operations.append(
                Operation(
                    event.client_id,
                    event.value,
                    position,
                    UNKNOWN,
                    None,
                    len(operations),
                    event.metadata,
                )
            )
            continue
        if event.id not in opened or event.id in returned:
            raise ValueError(f"event {position} returns id {event.id}, which has no open call")
        returned.add(event.id)
        number = opened[event.id]
        operations[number] = replace(
            operations[number],
            output=event.value,
            return_time=position,
            metadata=event.metadata if event.metadata is not None else operations[number].metadata,
        )
    return check_operations(
        model, operations, timeout_s=timeout_s, limits=limits, explained=explained
    )
