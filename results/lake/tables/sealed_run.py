"""Reads a stored run for a lake, with its identity, its case, and its history's columns.

The columns (`harness.store.parquet`) come from a sealed file, or from the log of a run that was cut
short.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import stat
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from harness.case import Case, load_case
from harness.errors import HistoryError
from harness.ops import CheckResult, History
from harness.store import RunRecord, read_log
from harness.store.parquet import read_sealed, table_of

KEY_DIGITS: Final = 12
FILE_BYTES_MAX: Final = 64 << 20
FINISHED: Final = "finished"
TORN: Final = "torn"
"""The state of a run that has no run.json, although no process is writing the run any more."""
DAMAGED: Final = "damaged"
"""The state of a run whose run.json cannot be read."""
FOREIGN: Final = "foreign"
"""The state of a run whose history differs from the history that run.json describes."""
TROUBLES: Final = {
    TORN: ("unfinished", "has no run.json: it was cut short"),
    DAMAGED: ("record", "its run.json cannot be read; the run is judged without it"),
    FOREIGN: (
        "record",
        "its history is not the one that run.json describes; the history is judged as it is",
    ),
}
"""Map each bad state of a run to the kind and the text of the problem that a report shows."""


class _Results(msgspec.Struct):
    """The part of `results.json` that a lake needs."""

    checkers: tuple[CheckResult, ...]


_UNREADABLE: Final = (
    OSError, HistoryError, msgspec.DecodeError, UnicodeDecodeError, RecursionError,
)  # fmt: skip


class About(msgspec.Struct, frozen=True, kw_only=True):
    """Name, case, record and state of a stored run. `trouble` explains a bad state."""

    name: str
    id: str
    case: Case
    record: RunRecord | None
    label: str | None = None
    state: str = FINISHED
    trouble: str = ""

    @property
    def day(self) -> dt.date | None:
        """The UTC day on which the run started; `None` if unknown."""
        return None if self.record is None else day_of(self.record.started)


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A run with the columns of its history, sorted by index, and the results of its checkers."""

    about: About
    table: Any
    digest: str
    results: tuple[CheckResult, ...] = ()
    folder: str | None = None  # the run's folder in the lake

    @property
    def size_bytes(self) -> int:
        """Approximate size of the run's columns in memory."""
        return int(self.table.get_total_buffer_size())

    @property
    def key(self) -> str:
        return run_key(self.about, self.digest)


def run_key(about: About, digest: str) -> str:
    """Return the key `NAME/ID@DIGITS`. The digits hash the history, the target, label and day.

    The id alone repeats if a soak runs the same seed in another store or version of the code. Runs
    with equal keys are in one partition, so a lake searches only this partition.
    """
    return f"{about.name}/{about.id}@{_digits(about.case.system, about.label, about.day, digest)}"


@functools.lru_cache(maxsize=1_000)  # the same key is computed many times
def _digits(*content: str | dt.date | None) -> str:
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:KEY_DIGITS]


def started_of(text: str) -> dt.datetime:
    """Parse a `RunRecord.started`. Raises `HistoryError` if it is not a time."""
    try:
        started = dt.datetime.fromisoformat(text)
        return started.astimezone(dt.UTC) if started.tzinfo else started.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError) as error:
        raise HistoryError(
            f"started is {text!r}; it must be a time such as 2026-01-31T12:00:00+00:00"
        ) from error


def day_of(text: str) -> dt.date:
    """Return the UTC day of a `RunRecord.started`; raise `HistoryError` if it is not a time."""
    return started_of(text).date()


def read_about(folder: Path, name: str | None = None) -> About:
    """Read the case and the record of a run's folder. `name` defaults to the parent folder's name.

    Raises `HistoryError` or `UsageError`.
    """
    _require_plain(folder)
    case = load_case(folder / "case.json")
    record: RunRecord | None = None
    state, trouble = FINISHED, ""
    try:
        record = msgspec.json.decode((folder / "run.json").read_bytes(), type=RunRecord)
        _ = day_of(record.started)
    except FileNotFoundError:
        state, trouble = TORN, TROUBLES[TORN][1]
    except _UNREADABLE as error:
        record = None
        state, trouble = DAMAGED, f"run.json is not valid: {error}"
    place = folder if name is not None else folder.resolve()
    about = About(
        name=name or place.parent.name,
        id=place.name,
        case=case,
        record=record,
        label=None if record is None else record.label,
        state=state,
        trouble=trouble,
    )
    for what, value in (("the label", about.label), ("the target", case.system)):
        if value == "":
            raise HistoryError(
                f"{str(folder)!r}: {what} is '', and an empty text cannot name a partition of a "
                "lake; give a name in case.json and run.json"
            )
    return about


def _require_plain(folder: Path) -> None:
    """Raise `HistoryError` for a link (it may lead anywhere) or a pipe (it may block forever)."""
    for name in ("case.json", "run.json", "results.json", "history.parquet", "ops.log"):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG((folder / name).lstat().st_mode):
                raise HistoryError(f"{name} is a link, or not a plain file, and is not read")


def read_source(folder: Path, about: About | None = None) -> Source:
    """Read a run's folder. Raises `HistoryError` or `UsageError` if that is impossible.

    If the record does not describe the history, the state is `FOREIGN` and the verdict is left out.
    """
    about = about or read_about(folder)
    record = about.record
    sealed = folder / "history.parquet"
    digest: str | None = None if record is None else record.digest
    if sealed.is_file():
        table, footer = read_sealed(sealed)
        digest = footer.digest or digest
        if record is None and footer.label is not None:
            about = msgspec.structs.replace(about, label=footer.label)
    elif (folder / "ops.log").is_file():
        history = History(read_log(folder / "ops.log")[0])
        table, digest = table_of(history)[0], history.digest()
    else:
        raise HistoryError(f"{str(folder)!r} holds neither history.parquet nor ops.log")
    if record is not None and digest != record.digest:
        assert digest is not None
        trouble = (
            f"its history ({digest[:12]}...) is not the one that run.json describes "
            f"({record.digest[:12]}...), so the verdict in run.json does not count"
        )
        about = msgspec.structs.replace(about, state=FOREIGN, trouble=trouble)
    foreign = about.state == FOREIGN
    return Source(
        about=about,
        table=table,
        digest=digest or _digest(folder, table),
        results=() if foreign else _results(folder / "results.json"),
    )


def source_of(history: History, about: About, *, results: tuple[CheckResult, ...] = ()) -> Source:
    """Make the source of a run from its history in memory."""
    return Source(about=about, table=table_of(history)[0], digest=history.digest(), results=results)


def _digest(folder: Path, table: pa.Table) -> str:
    from harness.store.parquet import ops_of_table

    return History(ops_of_table(folder, table)).digest()


def _results(path: Path) -> tuple[CheckResult, ...]:
    if not path.is_file():
        return ()
    if path.stat().st_size > FILE_BYTES_MAX:
        raise HistoryError(f"{str(path)!r} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Results).checkers
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HistoryError(f"{str(path)!r} is not valid: {error}") from error
