"""What `harness check` does with one path: find it, read it, judge it, draw it.

Each history stands for itself: one that cannot be read, or whose check breaks down, costs its own
verdict (`Failed` says why) and never another's.
"""

from __future__ import annotations

import hashlib
import re
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.checking import checkers_of, judge, result_of_check
from harness.cli.counterexample_page import render_page
from harness.counterexample import counterexample_of
from harness.errors import (
    EXIT_CRASH,
    EXIT_USAGE,
    HarnessError,
    HistoryError,
    UsageError,
    located,
)
from harness.formats import Source, is_history_name, model_for, open_history
from harness.ops import CheckResult, Counterexample, History, ModelSettings, Verdict
from harness.plugins import HistoryModel, PreparedCheck
from harness.registry import load_plugin
from harness.store import StoredRun, load_run

__all__ = ["CheckRequest", "Failed", "Outcome", "Prepared", "Task", "find_tasks", "judge_task"]

FILES_MAX: Final = 1_000_000
PATH_CHARS_MAX: Final = 200
PAGE_NAME: Final = "counterexample.html"
_OP: Final = re.compile(r"op (\d+)\b")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; `model` is `None` where each history is to suggest its own."""

    model: str | None = None
    settings: ModelSettings = ModelSettings()
    time_limit_s: float
    html: Path | None = None


class Task(msgspec.Struct, frozen=True):
    """One history: a run's folder, or a file."""

    path: Path
    is_run: bool


class Prepared(msgspec.Struct, frozen=True):
    """A history that was read and understood. One of `run` and `check` is there, or both."""

    history: History
    model: str
    format: str
    run: StoredRun | None = None
    check: Any = None  # a PreparedCheck


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one history; `report` is what `--json` prints."""

    verdict: Verdict
    report: dict[str, Any]
    results: tuple[CheckResult, ...]
    page: str | None = None
    warning: str | None = None


class Failed(msgspec.Struct, frozen=True):
    """A history without a verdict; `exit_code` is that of a usage error or of a crash."""

    reason: str
    exit_code: int


class LeftAside(msgspec.Struct, frozen=True):
    """Files in folders whose suffix is none of a history: how many, and the first."""

    files: int = 0
    first: Path | None = None


# --- finding ---------------------------------------------------------------------------------


def find_tasks(paths: Iterable[Path]) -> tuple[list[Task], LeftAside, list[Failed]]:
    """The histories at `paths`, in order, what in folders was left aside, and what is closed to us.

    A folder with a `case.json` is one run; others are searched for files whose suffix says that
    they may be histories. Inside folders, links are not followed and hidden names are skipped.
    Raises `UsageError` for paths that hold no history.
    """
    tasks: list[Task] = []
    failures: list[Failed] = []
    aside = LeftAside()
    for path in paths:
        before = len(tasks) + len(failures)
        for found in _search(path):
            if isinstance(found, Task):
                tasks.append(found)
            elif isinstance(found, Failed):
                failures.append(found)
            else:
                aside = LeftAside(aside.files + 1, aside.first or found)
            if len(tasks) + len(failures) > FILES_MAX:
                raise UsageError(
                    f"{str(path)!r} holds more than {FILES_MAX} histories; check them in parts"
                )
        if len(tasks) + len(failures) == before:
            raise UsageError(
                f"{str(path)!r} is not a run folder (it holds no case.json), and there is no "
                "history in it; a history has the suffix .edn, .log, .txt, .tsv or .parquet, "
                "or is named itself"
            )
    return tasks, aside, failures


def _search(path: Path) -> Iterator[Task | Path | Failed]:
    """What is at `path` or below it, sorted; what may not be looked into is one failure."""
    try:
        if path.is_dir():
            yield from _walk(path)
        elif path.exists():
            yield _file_task(path)
        else:
            raise UsageError(f"{str(path)!r} does not exist")
    except OSError as error:
        place = str(error.filename or path)
        shown = place if len(place) <= PATH_CHARS_MAX else f"{place[:PATH_CHARS_MAX]}..."
        yield Failed(f"cannot read {shown!r}: {error.strerror}", EXIT_USAGE)


def _walk(folder: Path) -> Iterator[Task | Path | Failed]:
    """The tasks below `folder`, and the files that are left aside.

    Hidden names are skipped: there a store keeps what is no history, such as the journal of a soak
    and the results of reports.
    """
    if (folder / "case.json").exists():
        yield Task(folder, is_run=True)
        return
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir():
            yield from _search(entry)
        elif entry.is_file():
            yield _file_task(entry) if is_history_name(entry) else entry


def _file_task(path: Path) -> Task:
    if path.name == "history.parquet" and (path.parent / "case.json").exists():
        return Task(path.parent, is_run=True)
    return Task(path, is_run=False)


# --- reading ---------------------------------------------------------------------------------


def _prepare(task: Task, request: CheckRequest) -> Prepared:
    """Read a history and understand all of it; raises `HistoryError` and `UsageError`."""
    if task.is_run:
        return _prepare_run(task, request)
    source = open_history(task.path)
    history = History(source, foreign=True)
    if not history:
        raise HistoryError(f"{task.path}: there is no operation in it; a history has operations")
    try:
        name = request.model or model_for(source.format, history)
        model: HistoryModel = load_plugin("models", name)
        check = model.prepare(history, request.settings)
    except HistoryError as error:
        raise _located(task.path, source, error) from error
    except UsageError as error:
        raise UsageError(f"{task.path}: {error}") from error
    return Prepared(history, name, source.format, check=check)


def _prepare_run(task: Task, request: CheckRequest) -> Prepared:
    run = load_run(task.path)
    if request.model is None:
        if request.settings != ModelSettings():
            raise UsageError(
                f"{task.path} is a run, which its own checkers judge; settings of models need "
                "--model or --elle"
            )
        names = ",".join(checker.name for checker in checkers_of(run.case))
        return Prepared(run.history, names, "run", run=run)
    model: HistoryModel = load_plugin("models", request.model)
    try:
        check = model.prepare(run.history, request.settings)
    except HistoryError as error:
        raise HistoryError(f"{task.path}: {error}") from error
    return Prepared(run.history, request.model, "run", run=run, check=check)


def _located(path: Path, source: Source, error: HistoryError) -> HistoryError:
    """The error with line and column, where it names an op and the format has lines."""
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
    """Judge one history, and draw it where it is invalid and there is a place for the page."""
    try:
        return _judge_task(task, request)
    except UsageError as error:
        return Failed(str(error), EXIT_USAGE)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the others still want their verdict
        own = "" if isinstance(error, HarnessError) else f"\n{traceback.format_exc(limit=-3)}"
        return Failed(f"{task.path}: {type(error).__name__}: {error}{own}", EXIT_CRASH)


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
        told = _reuse(task.path, reused)
        warning = told if warning is None else f"{told}; {warning}"
    return Outcome(verdict=verdict, report=report, results=results, page=page, warning=warning)


def _reuse(path: Path, times: int) -> str:
    """What is said of a history whose processes go on after `info`, as our own never do."""
    return (
        f"{path}: a process was used again after an operation of it ended in info "
        f"({times} time{'s' * (times != 1)}); such operations may take effect at any later time"
    )


def _checked(
    prepared: Prepared, time_limit_s: float, *, draw: bool
) -> tuple[CheckResult, Counterexample | None]:
    """The model's judgement, with what it drew."""
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
    told = [result for result in results if result.verdict is verdict]
    check: PreparedCheck | None = prepared.check
    report: dict[str, Any] = {
        "path": str(task.path),
        "model": prepared.model,
        "verdict": verdict.value,
        "operations": len(prepared.history.pairs) if check is None else check.operations,
        "configurations": sum(_configurations(result) for result in results),
        "seconds": round(seconds, 6),
        "reason": "; ".join(result.reason for result in told),
        "anomalies": _listed(results, "anomalies"),
        "not": _listed(results, "not"),
        "format": prepared.format,
        "certificate": _certificate(told),
    }
    if prepared.run is not None:
        run = prepared.run
        report |= {
            "schema_version": 1,
            "run": str(run.folder),
            "ops": len(run.history),
            "history_sha256": run.history.digest(),
            "note": run.note,
            "recorded_verdict": None if run.record is None else run.record.verdict.value,
            "checkers": [msgspec.to_builtins(result) for result in results],
        }
    return report


def _listed(results: tuple[CheckResult, ...], name: str) -> list[Any]:
    """What the results list under `name` in their details, which are free."""
    found = [result.details.get(name) for result in results]
    return [item for listed in found if isinstance(listed, (list, tuple)) for item in listed]


def _configurations(result: CheckResult) -> int:
    count = result.details.get("configurations", 0)
    return count if isinstance(count, int) else 0


def _certificate(told: list[CheckResult]) -> dict[str, Any] | None:
    """The proof of the verdict, of the first checker that has one."""
    for result in told:
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
    """Write the page; its path, or a warning. A page that cannot be written spoils no verdict."""
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
    except Exception as error:  # noqa: BLE001 - a drawing of a model of any kind
        return None, f"the picture of {task.path} cannot be drawn: {error!r}"
    return str(place), None


def page_name(path: Path) -> str:
    """A file name of its own for the page about `path`."""
    digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{_UNSAFE.sub('_', str(path)).strip('._')[-100:]}-{digest}.html"
