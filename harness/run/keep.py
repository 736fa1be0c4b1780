"""Conducts a planned run, judges it, and keeps it in a folder.

`harness run`, soaks and tests all keep their runs here. Most runs have a folder from the beginning,
into which each op is written as it happens. A run of a soak in the simulation gets a folder only
after its verdict, and only if the run is to be kept. Of a passing run only the case, the history
and `run.json` are kept; of a failing run, everything. Such a folder is staged: it appears in the
store complete or not at all.

A run that cannot be kept still has its verdict, and the caller gets the reason.
"""

from __future__ import annotations

import datetime as dt
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness import __version__
from harness.errors import HarnessError, HistoryError, InfrastructureError
from harness.ops import Op
from harness.plan.planning import Plan
from harness.plugins import Checker, Environment
from harness.run.phases import Outcome, conduct
from harness.run.recorder import Observer
from harness.store import RunFolder, RunRecord
from harness.verdict.judge import Judgement, judge
from harness.verdict.limits import CHECK_TIME_LIMIT_S
from harness.verdict.signature import failure_of

SIM: Final = "sim"

FolderIfWanted = Callable[[Outcome, Judgement], RunFolder | None]
"""Returns a staged folder for a judged run, or `None` if the run is not to be kept."""


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """A judged run, and the folder that keeps it.

    `folder` is `None` if nothing of the run is kept. `unkept` is the reason why the run is not
    kept, or only in part.
    """

    outcome: Outcome
    judgement: Judgement
    record: RunRecord
    folder: Path | None
    unkept: InfrastructureError | HistoryError | None = None

    def require_kept(self) -> None:
        """Raise `KeyboardInterrupt` for a run stopped early, `InfrastructureError` if not kept."""
        if self.outcome.stop_asked:
            raise KeyboardInterrupt
        if self.unkept is not None:
            raise InfrastructureError(str(self.unkept))


def run_and_keep(
    plan: Plan,
    environment: Environment,
    folder: RunFolder | FolderIfWanted,
    *,
    run_id: str,
    checkers: Sequence[Checker] | None = None,
    time_limit_s: float = CHECK_TIME_LIMIT_S,
    label: str | None = None,
    code: str | None = None,
    replay: str | None = None,
    link_proxy: str | None = None,
    listener: Callable[[Op], None] | None = None,
    conducting: Callable[..., Outcome] | None = None,
    observer: Observer | None = None,
) -> KeptRun:
    """Conduct a run, judge it by `checkers` (default: the plan's) and keep it.

    `conducting` is called in place of `conduct`, with the same arguments. `code` is the digest of
    the code. `replay` is the command that repeats the run. Raises like `conduct` if there is
    nothing to judge.
    """
    started, begin_s = dt.datetime.now(tz=dt.UTC), time.monotonic()
    ready = folder if isinstance(folder, RunFolder) else None
    if ready is not None:
        ready.write_case(plan.case)
    outcome = (conducting or conduct)(
        plan,
        environment,
        run_id=run_id,
        folder=ready,
        label=label,
        link_proxy=link_proxy,
        listener=listener,
        observer=observer,
    )
    judges = plan.checkers if checkers is None else checkers
    judgement = judge(outcome.history, plan.case, judges, time_limit_s=time_limit_s)
    record = new_record(
        run_id,
        environment,
        outcome,
        judgement,
        started=started,
        wall_s=time.monotonic() - begin_s,
        label=label,
        code=code,
    )
    kept = KeptRun(outcome=outcome, judgement=judgement, record=record, folder=None)
    try:
        if isinstance(folder, RunFolder):
            kept = msgspec.structs.replace(kept, folder=folder.path)
            finish_run(folder, record, judgement, replay=replay)
        elif (staged := folder(outcome, judgement)) is not None:
            path = _keep_staged(staged, plan, environment, kept)
            kept = msgspec.structs.replace(kept, folder=path)
    # the disk is full, or a value cannot be stored
    except (InfrastructureError, HistoryError) as error:
        return msgspec.structs.replace(kept, unkept=error)
    return kept


def new_record(
    run_id: str,
    environment: Environment,
    outcome: Outcome,
    judgement: Judgement,
    *,
    started: dt.datetime,
    wall_s: float,
    label: str | None = None,
    code: str | None = None,
    warnings: tuple[str, ...] = (),
) -> RunRecord:
    """Return the record of a judged run, which is the content of its `run.json`."""
    return RunRecord(
        run=run_id,
        environment=environment.name,
        started=started.isoformat(),
        wall_s=wall_s,
        verdict=judgement.verdict,
        digest=outcome.history.digest(),
        ops=len(outcome.history.pairs),
        versions=versions_of(code),
        warnings=warnings,
        label=label,
        interrupted=outcome.interrupted,
        simulated_s=outcome.wall_ns / 1e9 if environment.name == SIM else None,
        failure=failure_of(judgement.results),
        frozen=outcome.frozen,
    )


def versions_of(code: str | None) -> dict[str, str]:
    """Return the versions of the software that made a run.

    `code` is the digest of the code in a soak.
    """
    digest = {} if code is None else {"code": code}
    return {"harness": __version__, "python": platform.python_version(), **digest}


def finish_run(
    folder: RunFolder, record: RunRecord, judgement: Judgement, *, replay: str | None = None
) -> None:
    """Write the verdict, and then `run.json`. With `run.json`, the stored run is complete."""
    extra = {} if replay is None else {"replay": replay}
    folder.write_results(list(judgement.results), {"verdict": judgement.verdict, **extra})
    folder.finish(record)


def _keep_staged(folder: RunFolder, plan: Plan, environment: Environment, kept: KeptRun) -> Path:
    failed = not kept.judgement.verdict.holds
    try:
        folder.write_case(plan.case)
        folder.seal(kept.outcome.history, label=kept.record.label)
        if failed:
            _replay_for_logs(plan, environment, folder, kept.outcome)
            finish_run(folder, kept.record, kept.judgement)
        else:
            folder.finish(kept.record)
        return folder.publish(latest=failed)
    except BaseException:
        folder.discard()
        raise


def _replay_for_logs(
    plan: Plan, environment: Environment, folder: RunFolder, outcome: Outcome
) -> None:
    """Run a failed seed once more, bit for bit, and put the nodes' logs into `folder`.

    Most seeds pass, so logs are only made once a seed has failed. A run that cannot be replayed has
    no logs, and its page says so.
    """
    try:
        again = conduct(
            plan, environment, run_id=folder.run_id, folder=None, logs_below=folder.path
        )
        same = again.history.digest() == outcome.history.digest()
    except HarnessError:
        same = False
    if not same:
        shutil.rmtree(folder.path / "logs", ignore_errors=True)
