"""Reads and judges one history for `harness check`, and draws it if it is invalid.

A history that cannot be read, or whose check crashes, becomes a `Failed` with the reason. The other
histories are still judged.
"""

from __future__ import annotations

import hashlib
import re
import time
import traceback
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import IMPORTED
from harness.cli.check.counterexample_page import render_page
from harness.cli.check.find_tasks import Failed, Task
from harness.cli.check.guess import guessed
from harness.errors import (
    EXIT_CRASH,
    EXIT_USAGE,
    HarnessError,
    HistoryError,
    UsageError,
    counted,
    located,
)
from harness.formats import Source, model_for, open_history
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Verdict
from harness.plugins import PreparedCheck
from harness.store import StoredRun, load_run
from harness.verdict.explain import counterexample_of
from harness.verdict.judge import checkers_of, judge, load_model, result_of_check

PAGE_NAME: Final = "counterexample.html"
_OP: Final = re.compile(r"op (\d+)\b")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `harness check`. Without a `model`, each history's model is guessed."""

    model: str | None = None
    settings: ModelSettings = ModelSettings()
    time_limit_s: float
    html: Path | None = None


class Prepared(msgspec.Struct, frozen=True):
    """A parsed history, and the prepared check by its model.

    If `check` is `None`, the checkers of the run judge the history.
    """

    history: History
    model: str
    format: str
    run: StoredRun | None = None
    check: Any = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one history. `report` is the object that `--json` prints."""

    verdict: Verdict
    report: dict[str, Any]
    results: tuple[CheckResult, ...]
    page: str | None = None
    warning: str | None = None


# --- reading ---------------------------------------------------------------------------------


def _prepare(task: Task, request: CheckRequest) -> Prepared:
    if task.is_run:
        return _prepare_run(task, request)
    source = open_history(task.path)
    history = History(source, foreign=True)
    if not history:
        raise HistoryError(f"{task.path}: it contains no operations, so it is not a history")
    try:
        name = request.model or model_for(source.format, history, request.settings.independent)
        if request.model is None:
            check = guessed(name, history, request.settings)
        else:
            check = load_model(name).prepare(history, request.settings)
    except HistoryError as error:
        raise located_in(task.path, source, error) from error
    except UsageError as error:
        raise UsageError(f"{task.path}: {error}") from error
    return Prepared(history, name, source.format, check=check)


def _prepare_run(task: Task, request: CheckRequest) -> Prepared:
    run = load_run(task.path)
    name = request.model or run.case.model
    if name is None:
        if request.settings != ModelSettings():
            raise UsageError(
                f"{task.path} is a run, which its own checkers judge; options for models need "
                "--model or --elle, too"
            )
        names = ",".join(checker.name for checker in checkers_of(run.case))
        return Prepared(run.history, names, "run", run=run)
    settings = request.settings
    if settings.independent is None:
        settings = msgspec.structs.replace(settings, independent=run.case.independent)
    try:
        check = load_model(name).prepare(run.history, settings)
    except HistoryError as error:
        raise HistoryError(f"{task.path}: {error}") from error
    return Prepared(run.history, name, "run", run=run, check=check)


def located_in(path: Path, source: Source, error: HistoryError) -> HistoryError:
    """Add line and column to an error that names an operation, if the file's format has lines."""
    match = _OP.match(str(error))
    if match is None:
        text = str(error)
        return error if str(path) in text else HistoryError(f"{path}: {text}")
    position = source.position(int(match[1]))
    if position is None:
        return HistoryError(f"{path}: {error}")
    return located(path, *position, str(error))


# --- judging ---------------------------------------------------------------------------------


def judge_task(task: Task, request: CheckRequest) -> Outcome | Failed:
    """Judge one history; if it is invalid, also write a page that shows it."""
    try:
        return _judge_task(task, request)
    except UsageError as error:
        return Failed(str(error), EXIT_USAGE)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - other histories are still judged
        trace = "" if isinstance(error, HarnessError) else f"\n{traceback.format_exc(limit=-3)}"
        return Failed(f"{task.path}: {type(error).__name__}: {error}{trace}", EXIT_CRASH)


def _judge_task(task: Task, request: CheckRequest) -> Outcome:
    prepared = _prepare(task, request)
    begin = time.perf_counter()
    counterexample: Counterexample | None = None
    if prepared.check is None:
        assert prepared.run is not None, "a run or a check was prepared"
        run = prepared.run
        judgement = judge(
            run.history, run.case, checkers_of(run.case), time_limit_s=request.time_limit_s
        )
        results, verdict = judgement.results, judgement.verdict
    else:
        draw = task.is_run or request.html is not None
        result, counterexample = _checked(prepared, request.time_limit_s, draw=draw)
        results, verdict = (result,), result.verdict
    report = _report(task, prepared, verdict, results, time.perf_counter() - begin)
    page: str | None = None
    warning: str | None = None
    if verdict is Verdict.INVALID:
        invalid = [result for result in results if result.verdict is Verdict.INVALID]
        page, warning = _draw(task, request, prepared, invalid, counterexample)
        if page is not None:
            report["html"] = page
    reused = prepared.history.reused
    if reused:
        reuse = _reuse(task.path, reused)
        warning = reuse if warning is None else f"{reuse}; {warning}"
    return Outcome(verdict=verdict, report=report, results=results, page=page, warning=warning)


def _reuse(path: Path, times: int) -> str:
    """Return the warning about a process that goes on after an `info` in a foreign history."""
    return (
        f"{path}: a process was used again after one of its operations ended in info "
        f"({counted(times, 'time')}); such operations may take effect at any later time"
    )


def _checked(
    prepared: Prepared, time_limit_s: float, *, draw: bool
) -> tuple[CheckResult, Counterexample | None]:
    check: PreparedCheck = prepared.check
    drawn: list[Counterexample | None] = []

    def judged() -> CheckResult:
        result, counterexample = check.check(time_limit_s=time_limit_s, draw=draw)
        drawn.append(counterexample)
        return result

    return result_of_check(prepared.model, judged), drawn[0] if drawn else None


def _report(
    task: Task,
    prepared: Prepared,
    verdict: Verdict,
    results: tuple[CheckResult, ...],
    seconds: float,
) -> dict[str, Any]:
    decisive = [result for result in results if result.verdict is verdict]
    check: PreparedCheck | None = prepared.check
    report: dict[str, Any] = {
        "path": str(task.path),
        "model": prepared.model,
        "verdict": verdict.value,
        "operations": len(prepared.history.pairs) if check is None else check.operations,
        "configurations": sum(_configurations(result) for result in results),
        "seconds": round(seconds, 6),
        "reason": "; ".join(result.reason for result in decisive),
        "anomalies": sorted(_listed(results, "anomalies")),
        "not": _listed(results, "not"),
        "notes": _listed(results, "notes"),
        "format": prepared.format,
        "certificate": _certificate(decisive),
    }
    if prepared.run is not None:
        run = prepared.run
        report |= {
            "schema_version": 1,
            "run": str(run.folder),
            "ops": len(run.history.pairs),
            "history_sha256": run.history.digest(),
            "note": run.note,
            "recorded_verdict": _recorded_verdict(run),
            "checkers": [msgspec.to_builtins(result) for result in results],
        }
    return report


def _recorded_verdict(run: StoredRun) -> str | None:
    """Return the verdict that is stored with a run; `None` for an imported or unfinished run."""
    if run.record is None or run.case.target == IMPORTED:
        return None
    return run.record.verdict.value


def _listed(results: tuple[CheckResult, ...], name: str) -> list[Any]:
    lists = [result.details.get(name) for result in results]
    return [item for items in lists if isinstance(items, (dict, list, tuple)) for item in items]


def _configurations(result: CheckResult) -> int:
    count = result.details.get("configurations", 0)
    return count if isinstance(count, int) else 0


def _certificate(results: list[CheckResult]) -> dict[str, Any] | None:
    """Return the proof of the verdict from the first checker that gives one, or `None`."""
    for result in results:
        proof = result.details.get("proof")
        if isinstance(proof, dict):
            return proof
    return None


# --- drawing ---------------------------------------------------------------------------------


def _draw(
    task: Task,
    request: CheckRequest,
    prepared: Prepared,
    invalid: list[CheckResult],
    counterexample: Counterexample | None,
) -> tuple[str | None, str | None]:
    """Write a page about an invalid history into the folder of `--html`, or else into the run's
    folder.

    Returns the page's path and a warning; either may be `None`. A history outside a run's folder
    gets a page only with `--html`. A failed write does not change the verdict.
    """
    if request.html is not None:
        place = request.html / page_name(task.path)
    elif task.is_run:
        place = task.path / PAGE_NAME
    else:
        return None, None
    try:
        drawn = counterexample or counterexample_of(invalid)
        text = render_page(
            prepared.history, invalid, drawn, path=str(task.path), model=prepared.model
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    except OSError as error:
        return None, f"the picture cannot be written to {place}: {error.strerror}"
    except Exception as error:  # noqa: BLE001 - models of other packages draw, too
        return None, f"the picture of {task.path} cannot be drawn: {error!r}"
    return str(place), None


def page_name(path: Path) -> str:
    """Return a file name for the page about `path`; different paths have different names."""
    digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{_UNSAFE.sub('_', str(path)).strip('._')[-100:]}-{digest}.html"
