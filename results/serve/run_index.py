"""What stands in a store, a row a run, without reading any history.

A row comes from `case.json` and `run.json`. Both are read again only when a file of the run
changed (their times and sizes are the signature), so that looking at 10,000 runs a second time is
nothing but asking the file system. A run that cannot be understood is a row as well: it says what
is wrong, and counts for no verdict. Links are never followed, neither folders nor files: a store
may come from elsewhere. Everything has a bound: files, texts, runs.
"""

from __future__ import annotations

import datetime as dt
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from harness.case import Case
from harness.errors import UsageError
from harness.ops import CheckResult, Verdict
from harness.signatures import Failure, failure_of
from harness.store import RunRecord
from results.facts.setting import code_of, setting_of

__all__ = [
    "BROKEN",
    "OUTCOMES",
    "RUNS_MAX",
    "UNFINISHED",
    "Index",
    "RunRow",
    "ScanCache",
    "StoredChecks",
    "cut",
    "folders_in",
    "is_plain_name",
    "read_bounded",
    "scan",
    "versions_text",
]

RUNS_MAX: Final = 100_000
FILE_BYTES_MAX: Final = 8 << 20
TEXT_CHARS_MAX: Final = 200
NAMES_MAX: Final = 20
BROKEN: Final = "broken"
UNFINISHED: Final = "unfinished"
OUTCOMES: Final = (*(verdict.value for verdict in reversed(Verdict)), UNFINISHED, BROKEN)
"""Every outcome a row can have, in the order of tables."""
_PARQUET_MAGIC: Final = b"PAR1"
_PARQUET_BYTES_MIN: Final = 12

T = TypeVar("T", Case, RunRecord)


class StoredChecks(msgspec.Struct, frozen=True):
    """The part of `results.json` that tells what checkers said."""

    checkers: list[CheckResult]


_Stamp = tuple[int, int]
_Signature = tuple[_Stamp | None, ...]
_FILES: Final = ("case.json", "run.json", "history.parquet")


class RunRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run. `outcome` is its verdict, or `unfinished`, or `broken` with `problem` telling why.

    What could not be read is `None`, an empty text or an empty tuple.
    """

    key: str  # "name/run"
    name: str
    run: str
    outcome: str
    problem: str | None = None
    started: str = ""
    label: str | None = None
    environment: str = ""
    target: str = ""
    profile: str = ""
    workload: str = ""
    nemeses: tuple[str, ...] = ()
    bugs: tuple[str, ...] = ()
    seed: int | None = None
    faults: int | None = None
    ops: int | None = None
    wall_s: float | None = None
    simulated_s: float | None = None
    interrupted: bool = False
    digest: str = ""
    versions: str = ""
    code: str = ""  # what tells versions of the code apart, see `code_of`
    setting: str = ""  # equal for runs whose cases differ in nothing but the seed
    checker: str = ""  # of the worst finding, where the run is not valid
    signature: str = ""
    reason: str = ""


class Index(msgspec.Struct, frozen=True):
    """All rows, newest first, and what is to be said about the whole."""

    rows: tuple[RunRow, ...]
    notes: tuple[str, ...]


class ScanCache:
    """Rows of the last scan, by run, with the signature under which each holds."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.rows: dict[str, tuple[_Signature, RunRow]] = {}


def is_plain_name(name: str) -> bool:
    """Whether a name may stand in a path below the store: no dot file, no separator, UTF-8."""
    if not name or name.startswith(".") or len(name) > 255:
        return False
    if any(character in name for character in "/\\\0"):
        return False
    return name.isprintable()


def scan(store: Path, cache: ScanCache, *, runs_max: int = RUNS_MAX) -> Index:
    """Look at every run of `store`; raises `UsageError` when there is no such folder."""
    known, notes = cache.rows, list[str]()
    rows: dict[str, tuple[_Signature, RunRow]] = {}
    try:
        names = folders_in(store)
    except OSError as error:
        raise UsageError(f"cannot read the store {str(store)!r}: {error.strerror}") from error
    for name in names:
        try:
            runs = folders_in(store / name)
        except OSError as error:
            notes.append(f"{_shown(name)}: cannot be read: {error.strerror}")
            continue
        for run in runs:
            if len(rows) >= runs_max:
                break
            folder = store / name / run
            key = f"{name}/{run}"
            signature = _signature(folder)
            if not any(signature) and not _looks_like_run(folder):
                continue
            before = known.get(key)
            if before is not None and before[0] == signature:
                rows[key] = before
            else:
                rows[key] = (signature, _row(folder, name, run))
        if len(rows) >= runs_max:
            notes.append(f"the store has {runs_max} runs or more; only so many are shown")
            break
    cache.rows = rows
    ordered = sorted((row for _, row in rows.values()), key=lambda row: (row.started, row.key))
    return Index(tuple(reversed(ordered)), tuple(notes[:NAMES_MAX]))


def folders_in(path: Path) -> list[str]:
    """Sorted names of real folders; what begins with a dot is the harness's, links are nobody's."""
    with os.scandir(path) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        )


def _signature(folder: Path) -> _Signature:
    stamps: list[_Stamp | None] = []
    prefix = str(folder)
    for name in _FILES:
        try:
            found = os.lstat(f"{prefix}/{name}")
        except OSError:
            stamps.append(None)
        else:
            stamps.append((found.st_mtime_ns, found.st_size))
    return tuple(stamps)


def _looks_like_run(folder: Path) -> bool:
    """Whether something of a run lies in a folder without the three files: not every folder is one.

    What holds folders only (as somebody's grouping of series) is none.
    """
    try:
        with os.scandir(folder) as entries:
            return any(not entry.is_dir(follow_symlinks=False) for entry in entries)
    except OSError:
        return True


def read_bounded(path: Path, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """The content of a plain file; raises `ValueError` or `OSError` for anything else."""
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(number, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("is not a plain file")
        if found.st_size > bytes_max:
            raise ValueError(f"has {found.st_size} bytes; at most {bytes_max} are read")
        return file.read(bytes_max)


def _row(folder: Path, name: str, run: str) -> RunRow:
    problems: list[str] = []
    case = _decoded(folder / "case.json", Case, problems)
    record = None
    if os.path.lexists(folder / "run.json"):
        record = _decoded(folder / "run.json", RunRecord, problems)
    problems += _trouble_of_history(folder)
    if record is not None and not _utc(record.started):
        problems.append(f"run.json: started is {cut(record.started)!r}, which is not a time")
    if not (is_plain_name(name) and is_plain_name(run)):
        problems.append("its folder has a name that cannot stand in an address; rename it")
    if problems:
        outcome = BROKEN
    elif record is None:
        outcome = UNFINISHED
        problems.append("cut short or still running: there is no run.json")
    else:
        outcome = record.verdict.value
    return _filled(folder, (name, run), case, record, outcome, "; ".join(problems) or None)


def _filled(
    folder: Path,
    names: tuple[str, str],
    case: Case | None,
    record: RunRecord | None,
    outcome: str,
    problem: str | None,
) -> RunRow:
    name, run = (_shown(part) for part in names)
    row = RunRow(key=f"{name}/{run}", name=name, run=run, outcome=outcome, problem=problem)
    if case is not None:
        row = msgspec.structs.replace(
            row,
            target=cut(case.target),
            profile=cut(case.profile),
            workload=cut(case.workload),
            nemeses=tuple(cut(item) for item in case.nemeses[:NAMES_MAX]),
            bugs=tuple(cut(item) for item in case.bugs[:NAMES_MAX]),
            seed=case.seed,
            faults=None if case.faults is None else len(case.faults),
            setting=setting_of(case, None if record is None else record.environment),
        )
    if record is not None:
        versions = versions_text(record.versions)
        row = msgspec.structs.replace(
            row,
            started=_utc(record.started),
            label=None if record.label is None else cut(record.label),
            environment=cut(record.environment),
            ops=record.ops,
            wall_s=record.wall_s,
            simulated_s=record.simulated_s,
            interrupted=record.interrupted,
            digest=cut(record.digest),
            versions=cut(versions),
            code=cut(code_of(record.versions) or ""),
        )
        failure = record.failure or _older_failure(folder, record)
        if failure is not None:
            row = msgspec.structs.replace(
                row,
                checker=cut(failure.checker),
                signature=cut(failure.signature),
                reason=cut(failure.reason),
            )
    if not row.started:
        row = msgspec.structs.replace(row, started=_created(folder))
    return row


def _older_failure(folder: Path, record: RunRecord) -> Failure | None:
    """What `results.json` says of a run whose `run.json` was written before it said so itself.

    The signature then lacks faults and operations, for which the history would have to be read.
    """
    if record.verdict.holds:
        return None
    try:
        content = read_bounded(folder / "results.json")
        return failure_of(msgspec.json.decode(content, type=StoredChecks).checkers)
    except (OSError, msgspec.MsgspecError, UnicodeError, ValueError, RecursionError):
        return None


def versions_text(versions: Mapping[str, str]) -> str:
    """The versions of a record on one line."""
    return " ".join(f"{key} {value}" for key, value in sorted(versions.items()))


def _decoded(path: Path, kind: type[T], problems: list[str]) -> T | None:
    try:
        return msgspec.json.decode(read_bounded(path), type=kind)
    except FileNotFoundError:
        problems.append(f"{path.name} is missing")
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror}")
    except (msgspec.MsgspecError, UnicodeError, UsageError, RecursionError, ValueError) as error:
        problems.append(f"{path.name}: {cut(str(error))}")
    return None


def _trouble_of_history(folder: Path) -> list[str]:
    """What is wrong with the history as far as a glance can tell: both ends of the file."""
    path = folder / "history.parquet"
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        others = ("ops.log", "history")  # not sealed yet, or sealed in buckets
        return [] if any((folder / name).exists() for name in others) else ["there is no history"]
    except OSError as error:
        return [f"history.parquet cannot be read: {error.strerror}"]
    with os.fdopen(number, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            return ["history.parquet is not a plain file"]
        if found.st_size < _PARQUET_BYTES_MIN:
            return [f"history.parquet is torn: it has {found.st_size} bytes"]
        head = file.read(len(_PARQUET_MAGIC))
        file.seek(-len(_PARQUET_MAGIC), os.SEEK_END)
        if head != _PARQUET_MAGIC or file.read() != _PARQUET_MAGIC:
            return ["history.parquet is torn or no Parquet file"]
    return []


def _created(folder: Path) -> str:
    """When the run began, as far as its files tell: `case.json` is written first."""
    for path in (folder / "case.json", folder):
        try:
            return dt.datetime.fromtimestamp(path.lstat().st_mtime, tz=dt.UTC).isoformat()
        except (OSError, ValueError, OverflowError):
            continue
    return ""


def _utc(text: str) -> str:
    """A time in ISO 8601 as one in UTC, so that texts sort as times; empty where it is none."""
    try:
        time = dt.datetime.fromisoformat(text)
        return time.astimezone(dt.UTC).isoformat() if time.tzinfo is not None else ""
    except (ValueError, OverflowError):
        return ""


def _shown(name: str) -> str:
    """A file's name as text that can be printed and encoded, whatever bytes it is made of."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def cut(text: str) -> str:
    """A text within the bound of those in a row."""
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"
