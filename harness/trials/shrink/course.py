"""The course of a shrink: which reductions are tried, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import UsageError
from harness.plan.planning import plan_case
from harness.plan.random_case import undrawn
from harness.plugins import Environment
from harness.registry import load_plugin
from harness.trials.shrink import faults, load, operations
from harness.trials.shrink.search import SEEDS_DEFAULT, Search, Step
from harness.trials.trials import SIM, Kind, Trial, Trials
from harness.soak.result import SeedResult

START_SEEDS: Final = 100
"""The number of seeds that are tried to see the failure for the first time."""
ROUNDS_MAX: Final = 5
"""The maximum number of times that all reductions of a list of operations are repeated."""


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest failing case that was found, and how it was found.

    `operations` is the number of operations of clients, without final reads and probes. It is
    `None` if the failure needs the generator of the workload, because operations at fixed times
    did not fail. `exhausted` means that the limit of CPU time ended the search.
    """

    case: Case
    kind: Kind
    result: SeedResult
    start: Case
    operations: int | None
    steps: tuple[Step, ...]
    runs: int
    cpu_s: float
    exhausted: bool

    @property
    def faults(self) -> int:
        """The number of faults that are left."""
        return len(self.case.faults or ())


def shrink(
    trials: Trials,
    case: Case,
    kind: Kind | None = None,
    *,
    seeds: int = SEEDS_DEFAULT,
    start_seeds: int = START_SEEDS,
    on_step: Callable[[Step, Case], None] = lambda _step, _case: None,
    on_trial: Callable[[], None] = lambda: None,
) -> Shrunk:
    """Shrink a failing case: faults, operations, clients, nodes, durations, options and knobs.

    Every candidate is tried with `seeds` seeds, and accepted if a run fails with `kind`: the same
    checker reports the same rule. If `kind` is `None`, the worst failure of the case is meant. If
    the seed of the case does not fail (any more), up to `start_seeds` seeds are tried.

    Raises `UsageError` if no seed fails so, and like `Trials`.
    """
    environment: Environment = load_plugin("environments", SIM)
    first = _first_failure(trials, case, environment, kind, start_seeds, on_trial)
    search = Search(
        trials,
        first,
        kind or first.kinds[0],
        seeds=seeds,
        on_step=on_step,
        on_trial=on_trial,
    )
    _shrink(search)
    counted = search.case.ops
    return Shrunk(
        case=search.case,
        kind=search.kind,
        result=search.best.result,
        start=first.case,
        operations=None if counted is None else len(counted),
        steps=tuple(search.steps),
        runs=trials.runs,
        cpu_s=trials.cpu_s,
        exhausted=trials.exhausted,
    )


def _first_failure(
    trials: Trials,
    case: Case,
    environment: Environment,
    kind: Kind | None,
    seeds: int,
    on_trial: Callable[[], None],
) -> Trial:
    """The case with the first seed that fails, as a case without draws."""

    def cases() -> list[Case]:
        planned = []
        for number in range(seeds):
            each = msgspec.structs.replace(case, seed=(case.seed + number) % 2**63)
            if number and case.drawn:
                each = msgspec.structs.replace(undrawn(each), faults=None)
            plan = plan_case(each, environment).case
            planned.append(msgspec.structs.replace(plan, draw=0, drawn={}, given=()))
        return planned

    met: dict[Kind, None] = {}
    found: Trial | None = None
    done = False

    def until_found():
        for each in cases():
            if done:
                return
            yield each

    for trial in trials.in_order(until_found()):
        on_trial()
        met |= dict.fromkeys(trial.kinds)
        if found is None and trial.kinds and (kind is None or kind in trial.kinds):
            found, done = trial, True
    if found is None:
        others = f"; other failures: {', '.join(map(str, met))}" if met else ""
        raise UsageError(
            f"no failure {'' if kind is None else f'of the kind {kind} '}in {seeds} seeds from "
            f"seed {case.seed} on{others}; find a failing seed with `harness soak`, or give more "
            "CPU time"
        )
    return found


def _shrink(search: Search) -> None:
    search.try_one(faults.in_plain_words(search.case), "plain words")
    if search.first(faults.packed_cases(search.case), "a short run with few faults") is None:
        _cut_after_failure(search)
        faults.shrink_faults(search)
        search.first([faults.packed(search.case, search.case.faults or ())], "an early start")
    if not operations.record_operations(search):  # the generator matters: make it do less
        load.shrink_time(search)
        faults.shrink_faults(search)
        load.shrink_world(search)
        load.shrink_time(search)
        if not operations.record_operations(search):
            return
    for _ in range(ROUNDS_MAX):
        before = search.case
        operations.shrink_operations(search)
        faults.shrink_faults(search)
        operations.tidy_operations(search)
        load.shrink_time(search)
        load.shrink_world(search)
        if search.case == before or search.exhausted:
            return


def _cut_after_failure(search: Search) -> None:
    """End the run soon after the operations that the failed checker names."""
    listed = operations.recorded(search.witness())
    last_ns = max((op.at_ns for op, blamed in listed if blamed), default=None)
    if last_ns is None:
        return
    limit_s = last_ns / 1e9 - operations.WARM_UP_S + 1.0
    if 0 < limit_s < search.case.time_limit_s:
        kept = [f for f in search.case.faults or () if f.at_ns < limit_s * 1e9]
        search.try_one(
            msgspec.structs.replace(faults.with_faults(search.case, kept), time_limit_s=limit_s),
            "the end after the failure",
        )
