"""Shrinks a failing case: decides which reductions are tried, and in which order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from harness.case import Case
from harness.errors import UsageError, counted
from harness.ops import NS_PER_S, Verdict
from harness.plan.planning import plan_case
from harness.plan.random_case import undrawn
from harness.plugins import Environment
from harness.registry import load_plugin
from harness.run.keep import SIM
from harness.run.phases import WARM_UP_S
from harness.soak.result import CRASH, SeedResult
from harness.trials.shrink import faults, load, operations, points
from harness.trials.shrink.search import SEEDS_DEFAULT, Search, Step
from harness.trials.trials import Kind, Trial, Trials

MANY: Final = 500
"""With more operations than this, a lower rate is cheaper than dropping them one by one."""
START_SEEDS: Final = 100
"""How many seeds are tried at most to see the failure for the first time."""


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest failing case that was found, and facts about the search.

    `operations` is the number of operations of clients, without final reads and probes. It is
    `None` if the failure needs the workload's generator, because the case did not fail with
    operations at fixed times. `exhausted` means that the limit of CPU time ended the search.
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
        """The number of faults in the shrunk case."""
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
    checker reports the same rule. Without `kind`, the worst failure of the case decides; a kind
    with an empty rule matches every rule of its checker. If the case does not, or no longer, fail
    with its own seed, up to `start_seeds` seeds are tried.

    Raises `UsageError` if no seed fails in this way, and the errors of `Trials`.
    """
    environment: Environment = load_plugin("environments", SIM)
    start, first, met = _first_failure(trials, case, environment, kind, start_seeds, on_trial)
    search = Search(
        trials,
        first,
        met,
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
        start=start,
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
) -> tuple[Case, Trial, Kind]:
    """Return the case of the first seed that fails, its trial, and the kind of its failure.

    The case leaves no choice to the seed any more. The trial may end earlier than the case.
    """
    first: tuple[Case, Trial, Kind] | None = None
    others: dict[Kind, None] = {}
    doubts: list[str] = []
    whole: list[Case] = []

    def cases() -> Iterator[Case]:
        for number in range(seeds):
            each = msgspec.structs.replace(case, seed=(case.seed + number) % 2**63)
            if number and case.drawn:
                each = msgspec.structs.replace(undrawn(each), faults=None)
            planned = plan_case(each, environment).case
            planned = msgspec.structs.replace(planned, draw=0, drawn={}, given=())
            # Shorter runs are tried only for a known kind, and only with the first seed: with
            # other seeds they seldom fail.
            early = kind is not None and number == 0
            for run in (*(load.beginnings(planned) if early else ()), planned):
                if first is not None:
                    return
                whole.append(planned)
                yield run

    with contextlib.closing(trials.in_order(cases())) as results:
        for number, trial in enumerate(results):
            on_trial()
            same = [each for each in trial.kinds if _is_like(each, kind)]
            if first is None and same:
                first = whole[number], trial, same[0]
            others |= dict.fromkeys(trial.kinds)
            if trial.result.verdict in {Verdict.UNKNOWN.value, CRASH}:
                doubts.append(trial.result.reason)
    if first is None:
        like = "" if kind is None else f" of the kind {kind}"
        seen = f"; other failures: {', '.join(map(str, others))}" if others else ""
        doubt = f"; {len(doubts)} of them proved nothing: {doubts[0]}" if doubts else ""
        more = ", or give more --cpu" if trials.exhausted else ""
        raise UsageError(
            f"no failure{like} in {counted(trials.runs, 'run')} from seed {case.seed} on{seen}"
            f"{doubt}; find a failing seed with `harness soak`{more}"
        )
    return first


def _is_like(kind: Kind, wanted: Kind | None) -> bool:
    return wanted is None or kind == wanted or wanted == Kind(kind.checker, "")


def _shrink(search: Search) -> None:
    search.first(load.beginnings(search.case), "only the beginning", seeds=1)
    _cut_after_failure(search)
    plain = faults.in_plain_words(search.case)
    if search.first(faults.packed_cases(plain, (0,)), "a short run without faults") is None:
        _choose_fault(search, plain)
    faults.wait_less(search)
    if not _record_operations(search):
        return
    _cut_after_failure(search)
    faults.leave_one(search, seeds=1)  # cheap with few operations, and saves much
    operations.drop_unrelated(search)
    operations.shrink_operations(search)
    operations.tidy_operations(search)
    faults.shrink_faults(search)
    load.shrink_world(search)
    operations.merge_names(search)
    operations.shrink_operations(search, chunk_max=2)
    operations.tidy_operations(search)
    load.shrink_time(search)


def _choose_fault(search: Search, plain: Case) -> None:
    """Try a short run with one fault, then with two or three; else keep all faults."""
    few = "a short run with few faults"
    if (
        search.first_quickly(faults.packed_cases(plain, (1,)), few) is None
        and search.first_quickly(points.cases_at_points(search, plain), "a fault at a point")
        is None
        and search.first(faults.packed_cases(plain, (2, 3)), few, seeds=1) is None
    ):
        search.try_one(plain, "plain words")


def _record_operations(search: Search) -> bool:
    """Replace the generator by its operations. If the failure vanishes, reduce the load first."""
    if operations.record_operations(search, few=True):
        return True
    fast = search.best
    if fast.result.ops > MANY:
        load.shrink_rate(search)
    if operations.record_operations(search):
        return True
    load.shrink_rate(search)
    load.shrink_time(search)
    faults.shrink_faults(search)
    load.shrink_world(search)
    load.shrink_time(search)
    if operations.record_operations(search):
        return True
    slow, search.best = search.best, fast
    if operations.record_operations(search):
        return True
    search.best = slow
    return False


def _cut_after_failure(search: Search) -> None:
    """End the run soon after the operations that the failed checker names."""
    if search.exhausted:  # no CPU time is left to run the case
        return
    listed = operations.recorded(search.witness())
    last_ns = max((op.at_ns for op, blamed in listed if blamed), default=None)
    if last_ns is None:
        return
    limit_s = last_ns / NS_PER_S - WARM_UP_S + 1.0
    if 0 < limit_s < search.case.time_limit_s:
        search.try_one(load.beginning(search.case, limit_s), "the end after the failure")
