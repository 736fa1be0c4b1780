"""Runs a check in rounds, in which searches take turns and a direct method may decide.

Every part (partition or projection) gets three searches: the lean depth-first search, the complete
depth-first search, and the breadth-first search with dominance. The first search that decides a
part gives its verdict. An invalid part ends the whole check. A direct method (`Model.decide`) runs
either before all searches, or after some search steps without a verdict.

Budgets are counted in steps. Limits of time and memory can only turn a verdict into `UNKNOWN`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.linearizability.clock import Clock, LimitReachedError, tick
from checkers.linearizability.explain import Failure, explain_decision
from checkers.linearizability.model import Limits, Model, Operation, Result
from checkers.linearizability.part import Part, explained_part, projected, unexplained

DIRECT_STEPS = 16
"""The number of search steps per operation before a direct method runs.

On the native core, these steps take less time than the direct method, and mostly find an order.
"""
EXPLAINED_BY_TRIALS_MAX = 2_000
"""In a refuted part with more operations than this, the core is first sought by a direct method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """The outcome of a check.

    `witness` (only for `OK`) has one legal order of operation ids for each partition. Operations of
    unknown outcome that are not in an order never took effect. `failure` (only for `ILLEGAL`, if
    requested) explains the verdict. `decided_by` names the method, and for `ILLEGAL` also the part.
    `returns` is the number of returns of an undecided or illegal part, and `progress` is the number
    of returns that the best path passed. `end_s` is the deadline of the check, including its proof,
    on the monotonic clock.
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
    end_s: float = math.inf


class Check:
    """One check: the parts of its history, and the number of steps spent on them."""

    def __init__(
        self,
        model: Model[Any, Any, Any],
        operations: Sequence[Operation[Any, Any]],
        limits: Limits,
        clock: Clock,
        steps_max: int,
    ) -> None:
        self._model = model
        self._operations = operations
        self._limits = limits
        self._clock = clock
        self._steps_max = steps_max
        self._spent = 0
        self._asked = False
        self._parts: list[Part] = []
        self._projections: list[Part] | None = None

    def run(self, *, explained: bool) -> CheckOutcome:
        """Run the direct method and rounds of searches until a verdict or a limit.

        With `explained`, an illegal outcome has a `failure`.
        """
        model = self._model
        groups = [group for group in model.partition(self._operations) if group]
        self._parts = [
            Part(f"partition {n}", model, group, self._limits, only_refutes=False)
            for n, group in enumerate(groups)
        ]
        refuted = self._decide() if model.direct_first else None
        for budget in _budgets(self._limits):
            at_start = self._spent
            refuted = refuted or self._search([*self._parts, *(self._projections or ())], budget)
            if refuted is None and self._spent >= DIRECT_STEPS * len(self._operations):
                refuted = self._decide()
            if refuted is None and not self._is_settled and self._projections is None:
                refuted = self._search(self._project(), budget)
            if refuted is not None:
                return self._illegal(refuted, explained=explained)
            if self._is_settled or self._is_over or self._spent == at_start:
                break
        refuted = self._decide()
        if refuted is not None:
            return self._illegal(refuted, explained=explained)
        return _valid(self._parts, self._spent) if self._is_settled else self.undecided()

    @property
    def _is_settled(self) -> bool:
        return all(part.result is Result.OK for part in self._parts)

    @property
    def _is_over(self) -> bool:
        return self._spent >= self._steps_max or self._clock.is_over()

    def _decide(self) -> Part | None:
        """Apply the direct method to all undecided parts, at most once in a check.

        Returns the first part that it refutes.
        """
        if self._asked:
            return None
        self._asked = True
        for part in self._parts:
            if part.result is None and part.decide() is Result.ILLEGAL:
                return part
        return None

    def _search(self, parts: Iterable[Part], budget: int) -> Part | None:
        """Give each search of each undecided part `budget` more steps.

        Returns the first refuted part.
        """
        for part in parts:
            if part.result is not None or part.stuck:
                continue
            if self._is_over:
                break
            before = part.steps
            result = part.run(budget, self._clock, room=self._steps_max - self._spent)
            self._spent += part.steps - before
            if result is Result.ILLEGAL:
                return part
        return None

    def _project(self) -> list[Part]:
        tick()
        if self._projections is None:
            self._projections = projected(self._model, self._operations, self._limits)
        return self._projections

    def _illegal(self, part: Part, *, explained: bool) -> CheckOutcome:
        """Return the outcome for the refuted `part`, with an explanation if `explained`.

        For a large part, a direct method is tried first, since it finds a small core much sooner.
        """
        large = len(part.operations) > EXPLAINED_BY_TRIALS_MAX and not part.only_refutes
        if explained and large and part.decision is None and not self._clock.is_over():
            part.decide()
        if part.decision is not None:
            failure = None
            if explained:
                failure = explain_decision(
                    self._model,
                    part.operations,
                    part.decision,
                    self._limits,
                    is_over=self._clock.is_over,
                )
            return _illegal(part, self._parts, failure)
        if not explained:
            return _illegal(part, [*self._parts, *(self._projections or ())])
        try:
            culprit, failure = explained_part(part, self._project(), self._limits, self._clock)
        except LimitReachedError:
            culprit, failure = part, unexplained(part)
        return _illegal(culprit, [*self._parts, *(self._projections or ())], failure)

    def undecided(self) -> CheckOutcome:
        """Return the outcome of a check that reached a limit."""
        limits, parts = self._limits, self._parts
        open_parts = [part for part in parts if part.result is None]
        if self._clock.is_over():
            why = self._clock.why
        elif all(part.stuck for part in open_parts):
            why = f"more than {limits.configurations_max} configurations would be remembered"
        else:
            why = f"the limit of {self._steps_max} steps was reached"
        if not open_parts:
            reason = f"{why} before the search began"
            return CheckOutcome(result=Result.UNKNOWN, reason=reason, steps=self._spent)
        worst = min(open_parts, key=lambda part: part.best / max(1, part.returns_total))
        lost = len(worst.operations) - worst.returns_total
        return CheckOutcome(
            result=Result.UNKNOWN,
            reason=(
                f"{why} after {self._spent} steps; "
                f"{len(open_parts)} of {len(parts)} partitions undecided, "
                f"the furthest path passed {worst.best} of {worst.returns_total} returns, "
                f"{lost} operations have an unknown outcome"
            ),
            steps=self._spent,
            configurations=sum(part.configurations for part in parts),
            progress=worst.best,
            returns=worst.returns_total,
        )


def _budgets(limits: Limits) -> Iterable[int]:
    yield from limits.rounds
    while True:
        yield limits.rounds[-1]


def _valid(parts: Sequence[Part], spent: int) -> CheckOutcome:
    witness = tuple(part.order() for part in parts)
    by = sorted({part.decided_by for part in parts})
    return CheckOutcome(
        result=Result.OK,
        reason="a legal order exists",
        witness=witness,
        decided_by=", ".join(by) or "nothing to check",
        steps=spent,
        configurations=sum(part.configurations for part in parts),
        progress=sum(part.returns_total for part in parts),
        returns=sum(part.returns_total for part in parts),
    )


def _illegal(part: Part, parts: Sequence[Part], failure: Failure | None = None) -> CheckOutcome:
    if part.decision is None:
        progress = part.finished.best
    elif failure is None:
        progress = 0
    else:
        ends = {o.id: (o.return_time, o.id) for o in part.operations if o.return_time is not None}
        progress = sum(end < ends[failure.operation] for end in ends.values())
    return CheckOutcome(
        result=Result.ILLEGAL,
        reason="no legal order exists",
        failure=failure,
        decided_by=f"{part.decided_by} on {part.name}",
        steps=sum(other.steps for other in parts),
        configurations=sum(other.configurations for other in parts),
        progress=progress,
        returns=part.returns_total,
    )
