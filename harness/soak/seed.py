"""One seed in this process: run it in the simulation, judge it, keep it.

A passing run is kept small (case, history, `run.json`), a failing one whole. Both are staged, so
that a folder of the store is complete or not there. What is not on the disk is not called valid:
where it could not be kept, the result says that the soak must stop.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import platform
import re
import shutil
import time
import traceback
from pathlib import Path
from typing import Final

import msgspec

from harness import __version__
from harness.checking import Judgement, judge
from harness.errors import HarnessError, HistoryError, InfrastructureError, UsageError
from harness.ops import CheckResult, History, OpType, Verdict
from harness.permits import permitted_of
from harness.planning import Plan, plan_case
from harness.plugins import Environment
from harness.registry import load_all, load_plugin
from harness.run import Outcome, conduct
from harness.signatures import SEPARATOR, SIGNATURE, failure_of, rule_of_words
from harness.soak.memory import memory_bytes_max
from harness.soak.result import (
    CRASH,
    KEEP_ALL,
    CheckerVerdict,
    SeedJob,
    SeedResult,
    shortened,
)
from harness.store import RunFolder, RunRecord

__all__ = [
    "add_extras",
    "crash_reason",
    "crashed",
    "folder_bytes",
    "not_kept",
    "result_of",
    "run_seed",
    "stopped",
]

_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")  # in the repr of an object


def run_seed(job: SeedJob) -> SeedResult:
    """Run and judge one case in this process; a crash of ours becomes a result, too."""
    begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
    try:
        result = _run_seed(job, begin_s)
    except HistoryError as error:  # the history of this very seed: no other need be like it
        result = crashed(job, crash_reason(error))
    except UsageError as error:  # the case was planned before: the code or the plug-ins changed
        result = stopped(job, str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one seed's crash must not end the campaign
        result = crashed(job, crash_reason(error))
    return msgspec.structs.replace(
        result,
        wall_s=time.perf_counter() - begin_s,
        cpu_s=time.process_time() - begin_cpu_s,
        memory_bytes=memory_bytes_max(),
    )


def _run_seed(job: SeedJob, begin_s: float) -> SeedResult:
    environment: Environment = load_plugin("environments", "sim")
    plan = plan_case(job.case, environment)
    started = dt.datetime.now(tz=dt.UTC)
    outcome = conduct(plan, environment, run_id=f"seed-{job.case.seed}", folder=None)
    if outcome.stop_asked:  # its history is not the seed's
        return stopped(job, f"seed {job.case.seed} was interrupted")
    judgement = judge(outcome.history, plan.case, plan.checkers)
    result = result_of(job.case.seed, outcome, judgement, simulated=True)
    if job.store is None or (job.keep != KEEP_ALL and not result.failed):
        return result
    record = RunRecord(
        run=job.run,
        environment="sim",
        started=started.isoformat(),
        wall_s=time.perf_counter() - begin_s,
        verdict=judgement.verdict,
        digest=result.digest or "",
        ops=len(outcome.history),
        versions=versions_of(job),
        label=job.label,
        simulated_s=result.simulated_s,
        failure=failure_of(judgement.results),
    )
    try:
        return _keep(job, plan, outcome, judgement, record, result)
    except InfrastructureError as error:
        return msgspec.structs.replace(result, stop=not_kept(result, error))
    except HistoryError as error:  # no column can hold it, here or anywhere
        if result.verdict != Verdict.INVALID.value:
            raise
        reason = shortened(f"{result.reason} (the run could not be kept: {error})")
        return msgspec.structs.replace(result, reason=reason)  # what is proven stays proven


def versions_of(job: SeedJob) -> dict[str, str]:
    """What a run's record says of what made it; `code` is the digest that a soak goes by."""
    code = {} if job.code is None else {"code": job.code}
    return {"harness": __version__, "python": platform.python_version(), **code}


def result_of(seed: int, outcome: Outcome, judgement: Judgement, *, simulated: bool) -> SeedResult:
    """What there is to say of a run that was judged; nothing about where it is kept."""
    failure = failure_of(judgement.results)
    history = outcome.history
    return SeedResult(
        seed=seed,
        verdict=judgement.verdict.value,
        reason="" if failure is None else shortened(failure.reason),
        checker=None if failure is None else failure.checker or None,
        signature="" if failure is None else failure.signature,
        checkers=() if failure is None else tuple(_said(found) for found in judgement.results),
        permitted=permitted_of(judgement.results),
        digest=history.digest(),
        ops=len(history),
        ok=sum(1 for pair in history.pairs if pair.type is OpType.OK),
        leader_changes=max(0, len(history.leaders()) - 1),
        simulated_s=outcome.wall_ns / 1e9 if simulated else 0.0,
    )


def _said(found: CheckResult) -> CheckerVerdict:
    return CheckerVerdict(
        found.checker,
        found.verdict.value,
        shortened(found.reason),
        found.details.get(SIGNATURE, ""),
    )


def _keep(
    job: SeedJob,
    plan: Plan,
    outcome: Outcome,
    judgement: Judgement,
    record: RunRecord,
    result: SeedResult,
) -> SeedResult:
    assert job.store is not None
    folder = RunFolder(Path(job.store), job.name, job.run, staged=True)
    try:
        folder.write_case(plan.case)
        folder.seal(outcome.history, label=job.label)
        add_extras(folder, outcome.history)
        if result.failed:
            folder.write_results(list(judgement.results), {"verdict": judgement.verdict})
            _replay_for_logs(plan, folder.path, outcome)
        folder.finish(record)
        kept_bytes = folder_bytes(folder.path)
        folder.publish(latest=result.failed)
    except BaseException:
        folder.discard()
        raise
    return msgspec.structs.replace(result, run=job.run, kept_bytes=kept_bytes)


def add_extras(folder: RunFolder, history: History) -> None:
    """Put beside the history what makes it quicker to read; a run is whole without it.

    `harness doctor` tells of a plug-in that does not load.
    """
    for _, extra in load_all("sealed_extras"):
        made = None
        with contextlib.suppress(Exception):  # which costs no run, nor its verdict
            made = extra.made(history, folder.path / "history.parquet")
        if made is not None:
            folder.write_extra(extra.file, made)


def _replay_for_logs(plan: Plan, folder: Path, outcome: Outcome) -> None:
    """Put the logs of the nodes into `folder` by running a failed seed once more, bit for bit.

    Most seeds pass, so none pays for logs before it is known who needs them. What cannot be
    replayed has no logs, and the page of the run says that there are none.
    """
    environment: Environment = load_plugin("environments", "sim")
    try:
        again = conduct(plan, environment, run_id=folder.name, folder=None, logs_below=folder)
        same = again.history.digest() == outcome.history.digest()
    except HarnessError:
        same = False
    if not same:
        shutil.rmtree(folder / "logs", ignore_errors=True)


def not_kept(result: SeedResult, error: InfrastructureError) -> str:
    """Why a soak must stop that cannot keep a run."""
    return (
        f"seed {result.seed} ({result.verdict}) could not be kept: {error}; with room in the "
        "store, the same command goes on"
    )


def folder_bytes(folder: Path) -> int:
    """What the files of a run take."""
    return sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file())


def crashed(job: SeedJob, reason: str, wall_s: float = 0.0) -> SeedResult:
    """The result of a seed that has no verdict."""
    return SeedResult(
        seed=job.case.seed,
        verdict=CRASH,
        reason=shortened(reason),
        signature=f"{CRASH}{SEPARATOR}{rule_of_words(reason)}",
        wall_s=wall_s,
    )


def stopped(job: SeedJob, why: str) -> SeedResult:
    """No result at all: the soak must stop, and the seed is to be run again."""
    return SeedResult(seed=job.case.seed, verdict=CRASH, reason=why, stop=why)


def crash_reason(error: BaseException) -> str:
    """One line: the error, and for one that was not raised on purpose where it came from.

    Nothing in it may differ between two runs of the seed, such as the address of an object.
    """
    if isinstance(error, HarnessError):
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = [f"{os.path.basename(f.filename)}:{f.lineno} in {f.name}" for f in frames]  # noqa: PTH119
    return _ADDRESS.sub(" at 0x...", f"{error!r} | {' | '.join(places)}")
