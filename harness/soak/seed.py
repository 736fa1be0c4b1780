"""Runs one seed in this process, in the simulation: from its case to a judged and stored run.

If the run cannot be kept because of a disk error, the result of the seed stops the soak.
"""

from __future__ import annotations

import os
import re
import time
import traceback
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import HarnessError, HistoryError, UsageError
from harness.ops import CheckResult, OpType, Verdict
from harness.permits import permitted_of
from harness.plan.planning import plan_case
from harness.plugins import Environment
from harness.registry import load_plugin
from harness.run.keep import KeptRun, run_and_keep
from harness.run.phases import Outcome
from harness.search.states import StateWatch
from harness.soak.planting import planted
from harness.soak.result import (
    CRASH,
    KEEP_ALL,
    CheckerVerdict,
    SeedJob,
    SeedResult,
    memory_bytes_max,
    shortened,
)
from harness.store import RunFolder
from harness.verdict.judge import Judgement
from harness.verdict.signature import SEPARATOR, SIGNATURE, rule_of_words

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")  # an address in the `repr` of an object


def run_seed(job: SeedJob) -> SeedResult:
    """Run and judge one case in this process. A crash of the harness also becomes a result."""
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    try:
        with planted(job.defect):
            result = _run_seed(job)
    except HistoryError as error:  # only this seed's history is wrong, so the soak continues
        result = crashed(job, crash_reason(error))
    # the case was valid when the soak began, so code or plug-ins have changed since
    except UsageError as error:
        result = stopped(job, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one seed's crash must not end the campaign
        result = crashed(job, crash_reason(error))
    return msgspec.structs.replace(
        result,
        wall_s=time.perf_counter() - begin_s,
        cpu_s=time.process_time() - begin_cpu_s,
        memory_bytes=memory_bytes_max(),
    )


def _run_seed(job: SeedJob) -> SeedResult:
    environment: Environment = load_plugin("environments", "sim")
    plan = plan_case(job.case, environment)

    def folder_if_wanted(outcome: Outcome, judgement: Judgement) -> RunFolder | None:
        wanted = job.keep == KEEP_ALL or not judgement.verdict.holds
        if job.store is None or outcome.stop_asked or not wanted:
            return None
        return RunFolder(Path(job.store), job.name, job.run, staged=True)

    watch = StateWatch() if job.observe else None
    kept = run_and_keep(
        plan,
        environment,
        folder_if_wanted,
        run_id=job.run,
        label=job.label,
        code=job.code,
        observer=watch,
    )
    if kept.outcome.stop_asked:  # the history ended early, so it does not depend on the seed alone
        return stopped(job, f"seed {job.seed} was interrupted")
    result = result_of(job, kept)
    if watch is not None:
        result = msgspec.structs.replace(result, reached=watch.reached())
    if not isinstance(kept.unkept, HistoryError):
        return result
    if result.verdict != Verdict.INVALID.value:
        raise kept.unkept  # no machine can store this history
    reason = shortened(f"{result.reason} (the run could not be kept: {kept.unkept})")
    return msgspec.structs.replace(result, reason=reason, stop=None)  # the failure is proven


def result_of(job: SeedJob, kept: KeptRun) -> SeedResult:
    """Return the result of a judged run. It stops the soak if the run could not be kept."""
    record, history, results = kept.record, kept.outcome.history, kept.judgement.results
    failure = record.failure
    stop = None
    if kept.unkept is not None:
        stop = (
            f"seed {job.seed} ({record.verdict.value}) could not be kept: {kept.unkept}; with "
            "room in the store, the same command continues"
        )
    folder = kept.folder
    files = () if folder is None else filter(Path.is_file, folder.rglob("*"))
    return SeedResult(
        seed=job.seed,
        verdict=record.verdict.value,
        reason="" if failure is None else shortened(failure.reason),
        checker=None if failure is None else failure.checker or None,
        signature="" if failure is None else failure.signature,
        checkers=() if failure is None else tuple(_verdict_of(result) for result in results),
        permitted=permitted_of(results),
        digest=record.digest,
        ops=record.ops,
        ok=sum(1 for pair in history.pairs if pair.type is OpType.OK),
        leader_changes=max(0, len(history.leaders()) - 1),
        simulated_s=record.simulated_s or 0.0,
        run=None if folder is None else folder.name,
        kept_bytes=sum(file.stat().st_size for file in files),
        stop=stop,
    )


def _verdict_of(result: CheckResult) -> CheckerVerdict:
    return CheckerVerdict(
        result.checker,
        result.verdict.value,
        shortened(result.reason),
        result.details.get(SIGNATURE, ""),
    )


def crashed(job: SeedJob, reason: str, wall_s: float = 0.0) -> SeedResult:
    """Return the result of a seed whose run crashed for this `reason`, without a verdict."""
    return SeedResult(
        seed=job.seed,
        verdict=CRASH,
        reason=shortened(reason),
        signature=f"{CRASH}{SEPARATOR}{rule_of_words(reason)}",
        wall_s=wall_s,
    )


def stopped(job: SeedJob, why: str) -> SeedResult:
    """Return a result that stops the soak for the reason `why`. The seed will run again."""
    return SeedResult(seed=job.seed, verdict=CRASH, reason=why, stop=why)


def crash_reason(error: BaseException) -> str:
    """Format an error as one line, with its location unless the harness raised it on purpose.

    The line must be the same in every run of the seed, so addresses of objects are removed.
    """
    if isinstance(error, HarnessError):
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = [f"{os.path.basename(f.filename)}:{f.lineno} in {f.name}" for f in frames]  # noqa: PTH119
    return _ADDRESS.sub(" at 0x...", f"{error!r} | {' | '.join(places)}")
