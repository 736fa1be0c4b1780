"""Why a history is not linearizable, and the smallest part of it that still is not.

`explain` answers as Knossos does: the first operation that cannot be linearized (by the order of
returns), the last one that could, and the configurations that survived until then, each with its
last steps and state.

`weaken` makes a counterexample smaller by steps that can only make a history *more* linearizable,
so what remains is a proof by itself:

1. cutting off everything called after the failing return, and taking what had not returned by then
   for unknown: a prefix of a linearizable history is linearizable (where that is still invalid);
2. leaving out operations whose response says that nothing changed: no other one depends on them;
3. taking a mutation for unknown, "it may have happened at any time after its call, or never".

A mutation is never simply left out: without it, what depends on it could not be explained, and the
remainder would be invalid for a reason of its own. Models forget what only weakened operations said
(`Model.for_operations`). So a `Failure` says: `core` alone, together with
any outcome at all of the operations in `weakened`, contradicts the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkers.linearizability.frontier import Configuration
from checkers.linearizability.model import UNKNOWN, Limits, Operation
from checkers.linearizability.native import breadth_first, depth_first, problem_of
from checkers.linearizability.problem import Problem
from checkers.linearizability.search import Status

__all__ = ["Failure", "Survivor", "explain", "weaken"]

SURVIVORS_MAX = 8
STEPS_PER_TRIAL = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """One way in which all but the failing operation can have happened.

    `order` holds operation ids from the start; `state` is the model's state at its end and
    `state_text` its description; `pending` are open operations not in `order`; `unknown_used` are
    the unknown operations that had to take effect.
    """

    order: tuple[int, ...]
    state: object
    state_text: str
    pending: tuple[int, ...]
    unknown_used: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why there is no legal order. All numbers are operation ids.

    `operation` is the first that cannot be linearized, `previous` the one whose return was the last
    that could be passed, or `None`. `survivors` is cut at 8 (`survivors_total` says how many there
    were). `core` is the minimal set of operations that contradict each other whatever became of
    those in `weakened`; `core_minimal` is false if the search for it ran out of budget.
    `projection` names the smaller problem that failed, if one did.
    """

    operation: int
    previous: int | None
    survivors: tuple[Survivor, ...]
    survivors_total: int
    core: tuple[int, ...]
    weakened: tuple[int, ...]
    core_minimal: bool
    projection: str = ""


def explain(
    problem: Problem,
    best: int,
    limits: Limits,
    *,
    name: str = "",
    is_over: Callable[[], bool] = lambda: False,
) -> Failure:
    """Why return number `best` of `problem` cannot be passed; `limits` bound the work."""
    operations = problem.operations
    failing = problem.returns[best]
    prefix = _prefix(problem, best)
    survivors, total = _survivors(problem, best, limits)
    # What is still open at the failing return may owe its part to an answer that came later; then
    # the prefix, which forgets that answer, proves nothing, and the whole is taken instead.
    budget = Limits(
        configurations=limits.configurations, shrink_steps=limits.shrink_steps * 9 // 10
    )
    holds = _Weakener(problem.model, prefix, limits, is_over).refutes(
        {operation.id for operation in prefix if not operation.is_unknown}
    )
    core, weakened, minimal = weaken(
        problem.model,
        prefix if holds else operations,
        operations[failing].id,
        budget,
        is_over=is_over,
    )
    return Failure(
        operation=operations[failing].id,
        previous=operations[problem.returns[best - 1]].id if best else None,
        survivors=survivors,
        survivors_total=total,
        core=core,
        weakened=weakened,
        core_minimal=minimal,
        projection=name,
    )


def _prefix(problem: Problem, best: int) -> list[Operation[Any, Any]]:
    """What was called before the failing return; what returned later is unknown."""
    end = problem.operations[problem.returns[best]].return_time
    assert end is not None
    returned = set(problem.returns[: best + 1])
    kept: list[Operation[Any, Any]] = []
    for number, operation in enumerate(problem.operations):
        if number in returned or (operation.is_unknown and operation.call <= end):
            kept.append(operation)
        elif operation.call <= end:
            kept.append(replace(operation, output=UNKNOWN, return_time=None))
    return kept


def _survivors(problem: Problem, best: int, limits: Limits) -> tuple[tuple[Survivor, ...], int]:
    """The configurations before the failing return; none if that would take too much work."""
    frontier = breadth_first(problem, configurations_max=limits.configurations)
    frontier.run(limits.shrink_steps)
    if frontier.status is not Status.EXHAUSTED:
        return _one_survivor(problem, best, limits), 1
    found = frontier.remaining()
    # The plainest stories first: few unknown operations that happened to act, then few steps.
    found.sort(key=lambda c: (c.used.bit_count(), c.mask.bit_count(), c.choices()))
    return tuple(_survivor(problem, best, c) for c in found[:SURVIVORS_MAX]), len(found)


def _one_survivor(problem: Problem, best: int, limits: Limits) -> tuple[Survivor, ...]:
    """A single path to the failing return, from a depth-first search."""
    search = depth_first(problem, lean=False, configurations_max=limits.configurations)
    while search.best < best and search.run(1) is Status.RUNNING:
        if search.steps > limits.shrink_steps:
            return ()
    choices = search.choices()
    state = problem.stepper.initial
    for choice in choices:
        state = problem.stepper.step(state, choice)
    return (_survivor_of(problem, best, choices, state),)


def _survivor(problem: Problem, best: int, config: Configuration) -> Survivor:
    return _survivor_of(problem, best, config.choices(), config.state)


def _survivor_of(problem: Problem, best: int, choices: Sequence[int], state: int) -> Survivor:
    operations = problem.operations
    order = problem.replay(choices)
    done = set(order)
    value = problem.stepper.states[state]
    pending = [op for _, op in problem.open_writes[best] + problem.open_reads[best]]
    return Survivor(
        order=tuple(operations[number].id for number in order),
        state=value,
        state_text=problem.model.describe_state(value),
        pending=tuple(sorted(operations[op].id for op in pending if op not in done)),
        unknown_used=tuple(
            operations[number].id for number in order if operations[number].is_unknown
        ),
    )


class _Weakener:
    """Tries weaker and weaker histories, within a budget of steps."""

    def __init__(
        self,
        model: Any,
        operations: Sequence[Operation[Any, Any]],
        limits: Limits,
        is_over: Callable[[], bool],
    ) -> None:
        self._model = model
        self._operations = operations
        self._limits = limits
        self._left = limits.shrink_steps
        self._is_over = is_over

    @property
    def exhausted(self) -> bool:
        return self._left <= 0 or self._is_over()

    def refutes(self, core: set[int]) -> bool:
        """Whether the operations in `core` contradict the model whatever became of the others."""
        kept: list[Operation[Any, Any]] = []
        for operation in self._operations:
            if operation.is_unknown or operation.id in core:
                kept.append(operation)
            elif not self._model.read_only(operation.input, operation.output):
                kept.append(replace(operation, output=UNKNOWN, return_time=None))
        problem = problem_of(self._model.for_operations(kept), kept)
        breadth = breadth_first(problem, configurations_max=self._limits.configurations)
        status = breadth.run(min(STEPS_PER_TRIAL, self._left))
        # Building the problem costs about as much as a step per operation.
        self._left -= breadth.steps + len(kept)
        return status is Status.EXHAUSTED


def weaken(
    model: Any,
    operations: Sequence[Operation[Any, Any]],
    failing: int,
    limits: Limits,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """The ids of a small core of the invalid `operations`, those weakened, and whether minimal.

    Chunks of operations are weakened, halving the chunk size, earliest first (what happened long
    before is the least likely to matter). The failing operation always stays.
    """
    known = [operation.id for operation in operations if not operation.is_unknown]
    core = set(known)
    trial = _Weakener(model, operations, limits, is_over)
    reads = {
        operation.id
        for operation in operations
        if not operation.is_unknown and model.read_only(operation.input, operation.output)
    } - {failing}
    if reads and trial.refutes(core - reads):
        core -= reads
    candidates = [number for number in known if number != failing and number in core]
    size = max(1, len(candidates) // 2)
    complete = not candidates
    while candidates and not trial.exhausted:
        kept: list[int] = []
        removed = 0
        for start in range(0, len(candidates), size):
            chunk = candidates[start : start + size]
            if not trial.exhausted and trial.refutes(core - set(chunk)):
                core -= set(chunk)
                removed += len(chunk)
            else:
                kept.extend(chunk)
        candidates = kept
        if size == 1:
            complete = not trial.exhausted and not removed
            if not removed:
                break
        else:
            size = max(1, size // 2)
    weakened = tuple(
        sorted(
            operation.id
            for operation in operations
            if operation.id not in core
            and (operation.is_unknown or not model.read_only(operation.input, operation.output))
        )
    )
    return tuple(sorted(core)), weakened, complete or not candidates
