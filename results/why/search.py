"""Searches for the causes of a stored run's failure, and composes the answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from harness.case import Case
from harness.errors import UsageError, counted
from harness.ops import CheckResult, History, Verdict
from harness.plugins import Environment
from harness.run.keep import SIM
from harness.store import StoredRun, load_run
from harness.timeline import faults_of
from harness.trials.trials import Kind, Trials
from harness.verdict.signature import involved, rule_of
from results.run.page.summary import Results, read_results
from results.why.answer import FaultSpan, Why
from results.why.causes import find_causes
from results.why.timeline import POINTS_MAX, RESEED_AT, find_points, inevitable_from
from results.why.variants import variants_of, with_recorded_ops

CAUSES: Final = "causes"
TIME: Final = "time"
MEMORY: Final = ".why-trials"
"""The file of remembered trials, next to the run's folder."""
REASON_MAX: Final = 300


class Progress(NamedTuple):
    """The progress of a search: its current part, and how many of at most `total` trials ended."""

    part: str
    done: int
    total: int
    cpu_s: float


class Failure(NamedTuple):
    """The failure to explain: its kind, its reason, and when it showed (in ns of the run)."""

    kind: Kind
    reason: str
    shown_ns: int


def failure_of(run: StoredRun, results: Results) -> Failure:
    """Return a run's worst proven violation; raise `UsageError` if there is none."""
    for result in results.checkers:
        if result.verdict is Verdict.INVALID:
            kind = Kind(result.checker, rule_of(result))
            return Failure(kind, result.reason, _shown_ns(result, run.history))
    raise UsageError(
        f"the run {str(run.folder)!r} has the verdict {results.verdict.value}; only an invalid run "
        "has causes to find: give an invalid one, or another seed"
    )


def _shown_ns(result: CheckResult, history: History) -> int:
    ops = involved(result, history)
    begun = {op.index for op in ops}
    times = [op.time for op in ops]
    times += [
        pair.completion.time
        for pair in history.pairs
        if pair.invoke.index in begun and pair.completion is not None
    ]
    return max(times, default=end_of(history))


def end_of(history: History) -> int:
    """Return the time of the last op, in ns of the run."""
    return max((op.time for op in history), default=0)


def explain(
    folder: Path,
    environment: Environment,
    *,
    parts: tuple[str, ...] = (CAUSES, TIME),
    seeds: int,
    reseeds: int,
    jobs: int,
    cpu_s_max: float,
    on_progress: Callable[[Progress], None],
) -> Why:
    """Find out why the simulated run in `folder` failed.

    Raises `UsageError` if the run did not fail, or if its case no longer fails in the same way.
    """
    run = load_run(folder)
    failure = failure_of(run, read_results(folder))
    case = run.case
    if RESEED_AT in case.knobs:
        raise UsageError(
            f"the case has the knob {RESEED_AT}, which this search sets itself; remove it"
        )
    variants = variants_of(case, run.history, environment) if CAUSES in parts else []
    kinds = len(variants) + 2
    total = (kinds * seeds if CAUSES in parts else 0) + (
        POINTS_MAX * reseeds if TIME in parts else 0
    )
    done = 0
    memory = folder.parent / MEMORY
    with Trials(jobs=jobs, cpu_s_max=cpu_s_max, memory=memory) as trials:

        def count(part: str) -> Callable[[], None]:
            def one() -> None:
                nonlocal done
                done += 1
                on_progress(Progress(part, done, total, trials.cpu_s))

            return one

        _require_failure(case, failure.kind, trials)
        why = _new(run, failure, seeds, reseeds)
        if CAUSES in parts:
            recorded = with_recorded_ops(case, run.history)
            rates = find_causes(
                case, recorded, variants, failure.kind, trials, seeds=seeds, on_trial=count(CAUSES)
            )
            why = msgspec.structs.replace(
                why, base=rates.base, recorded=rates.recorded, causes=rates.causes
            )
        if TIME in parts:
            points = find_points(
                case,
                failure.kind,
                trials,
                until_ns=failure.shown_ns,
                reseeds=reseeds,
                on_trial=count(TIME),
            )
            inevitable = inevitable_from(points, run.history)
            why = msgspec.structs.replace(why, points=points, inevitable=inevitable)
        return msgspec.structs.replace(
            why, trials=trials.runs, cpu_s=trials.cpu_s, cut=trials.exhausted
        )


def _require_failure(case: Case, kind: Kind, trials: Trials) -> None:
    for trial in trials.run([case]):
        if kind not in trial.kinds:
            now = ", ".join(map(str, trial.kinds)) or trial.result.verdict
            raise UsageError(
                f"the run failed with {kind}, but a repetition gives: {now}; the code has "
                "changed since the run; give the run's case.json instead"
            )


def _new(run: StoredRun, failure: Failure, seeds: int, reseeds: int) -> Why:
    faults = tuple(
        FaultSpan(
            id=fault.id,
            nemesis=fault.nemesis,
            targets=fault.targets,
            start_ns=fault.start,
            end_ns=fault.end,
        )
        for fault in faults_of(run.history)
    )
    return Why(
        run=f"{run.folder.resolve().parent.name}/{run.folder.resolve().name}",
        digest=run.history.digest(),
        seed=run.case.seed,
        checker=failure.kind.checker,
        rule=failure.kind.rule,
        reason=failure.reason[:REASON_MAX],
        shown_ns=failure.shown_ns,
        end_ns=end_of(run.history),
        seeds=seeds,
        reseeds=reseeds,
        faults=faults,
    )


def in_words(progress: Progress) -> str:
    """Format the progress as one line."""
    what = "causes" if progress.part == CAUSES else "the rate along the time"
    return (
        f"{what}: {progress.done} of at most {counted(progress.total, 'run')}, "
        f"{progress.cpu_s:.0f} s of CPU time"
    )


def is_simulated(run: StoredRun) -> bool:
    """Whether the run is complete and was simulated."""
    return run.record is not None and not run.foreign and run.record.environment == SIM
