"""Explains why a history is not linearizable.

Like Knossos, `explain` returns the first operation, in the order of returns, that cannot be
linearized, and the operation that returned just before it. It also returns the configurations that
are possible before the failing return. Finally, it returns a core (see `core`): the few operations
that contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from checkers.linearizability.clock import LimitReachedError
from checkers.linearizability.core import find_core, shrink_core
from checkers.linearizability.direct.decision import Decision
from checkers.linearizability.model import Limits, Model, Operation
from checkers.linearizability.native import breadth_first, depth_first
from checkers.linearizability.problem import Problem
from checkers.linearizability.search import Status, run_sliced

SURVIVORS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivor:
    """One legal order of all operations that had to take effect before the failing operation.

    `order` has operation ids. `state` is the model's state after the order, and `state_text`
    describes it. `pending` has the operations that are open at the failing return and not in
    `order`. `unknown_used` has the operations of unknown outcome in `order`.
    """

    order: tuple[int, ...]
    state: object
    state_text: str
    pending: tuple[int, ...]
    unknown_used: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reason why a history has no legal order. All numbers are operation ids.

    `operation` is the first operation that cannot be linearized, by the order of returns.
    `previous` is the last operation that returned before it, or `None`. `survivors` has at most 8
    of the configurations that are possible before the failing return, and `survivors_total` is
    their number.

    `core` is a set of operations that contradict each other, no matter whether and when the
    operations in `weakened` took effect. If `core_minimal` is false, the search for a minimal core
    ran out of budget.

    If a smaller problem failed, `projection` names this problem. If `Model.restricted` made it,
    `elements` has its elements. Direct methods report no survivors.
    """

    operation: int
    previous: int | None
    survivors: tuple[Survivor, ...]
    survivors_total: int
    core: tuple[int, ...]
    weakened: tuple[int, ...]
    core_minimal: bool
    projection: str = ""
    elements: tuple[Hashable, ...] = ()


def explain(
    problem: Problem,
    best: int,
    limits: Limits,
    *,
    name: str = "",
    is_over: Callable[[], bool] = lambda: False,
) -> Failure:
    """Explain, within `limits`, why the search cannot get beyond the `best`-th return."""
    operations = problem.operations
    failing = operations[problem.returns[best]].id
    try:
        survivors, total = _survivors(problem, best, limits, is_over)
    except LimitReachedError:
        survivors, total = (), 0
    core = find_core(
        problem.model,
        operations,
        {operations[number].id for number in problem.returns[: best + 1]},
        failing,
        limits,
        is_over=is_over,
    )
    return Failure(
        operation=failing,
        previous=operations[problem.returns[best - 1]].id if best else None,
        survivors=survivors,
        survivors_total=total,
        core=core.operations,
        weakened=core.weakened,
        core_minimal=core.minimal,
        projection=name,
    )


def explain_decision(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    decision: Decision,
    limits: Limits,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> Failure:
    """Explain the `decision` of a direct method, with its core reduced as far as `limits` allow."""
    ids = set(decision.core)
    kept = operations
    if decision.elements:
        kept = model.restricted(operations, decision.elements)
    chosen = [o for o in kept if o.id in ids]
    others = [o for o in kept if o.id not in ids]
    kept = [*chosen, *model.blurred(chosen, others)]
    core = shrink_core(model, kept, ids, limits, is_over=is_over)
    last = max((o.return_time, o.id) for o in chosen if o.id in core.operations)
    before = [(o.return_time, o.id) for o in operations if o.return_time is not None]
    previous = max((each for each in before if each < last), default=None)
    return Failure(
        operation=last[1],
        previous=None if previous is None else previous[1],
        survivors=(),
        survivors_total=0,
        core=core.operations,
        weakened=core.weakened,
        core_minimal=core.minimal,
        projection=named(decision.elements),
        elements=decision.elements,
    )


def named(elements: Sequence[Hashable]) -> str:
    """Return a name for the problem that is restricted to `elements`; empty if there are none."""
    if not elements:
        return ""
    return f"element{'' if len(elements) == 1 else 's'} {', '.join(map(repr, elements))}"


def _survivors(
    problem: Problem, best: int, limits: Limits, is_over: Callable[[], bool]
) -> tuple[tuple[Survivor, ...], int]:
    """Return at most `SURVIVORS_MAX` configurations before the failing return, and their total.

    If finding all configurations takes too much work, a depth-first search finds at most one.
    """
    frontier = breadth_first(problem, configurations_max=limits.configurations_max)
    run_sliced(frontier, limits.shrink_steps, is_over)
    if frontier.status is not Status.EXHAUSTED:
        return _one_survivor(problem, best, limits, is_over), 1
    survivors = frontier.remaining()
    # The simplest configurations come first: few operations of unknown outcome, then few steps.
    survivors.sort(key=lambda c: (c.used.bit_count(), c.mask.bit_count(), c.choices()))
    listed = survivors[:SURVIVORS_MAX]
    return tuple(_survivor(problem, best, c.choices(), c.state) for c in listed), len(survivors)


def _one_survivor(
    problem: Problem, best: int, limits: Limits, is_over: Callable[[], bool]
) -> tuple[Survivor, ...]:
    """Find one configuration before the failing return by a depth-first search.

    Returns none if the search takes too many steps or reaches a limit.
    """
    search = depth_first(problem, lean=False, configurations_max=limits.configurations_max)
    while search.best < best and search.run(1) is Status.RUNNING:
        if search.steps > limits.shrink_steps or is_over():
            return ()
    choices = search.choices()
    state = problem.stepper.initial
    for choice in choices:
        state = problem.stepper.step(state, choice)
    return (_survivor(problem, best, choices, state),)


def _survivor(problem: Problem, best: int, choices: Sequence[int], state: int) -> Survivor:
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
