"""The folder of a run, which is complete once it has `run.json`."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import os
import re
import shutil
import weakref
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.case import Case, load_case
from harness.errors import HistoryError, InfrastructureError, UsageError
from harness.ops import CheckResult, History, Verdict
from harness.store.footer import read_footer
from harness.store.oplog import OpLog, read_log
from harness.store.parquet import read_parquet, write_parquet
from harness.verdict.signature import Failure

STAGED_SUFFIX: Final = ".part"
SHRUNK_SUFFIX: Final = "-shrunk"
"""The name of a shrunk run is the name of the original run with this suffix."""
OPS_LOG: Final = "ops.log"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `run.json`, a small file that identifies a run and its verdict."""

    schema: int = 1
    run: str
    environment: str
    started: str  # in ISO 8601, UTC
    wall_s: float
    verdict: Verdict
    digest: str
    ops: int  # number of client operations; earlier releases counted lines of the history
    versions: dict[str, str]
    warnings: tuple[str, ...] = ()
    label: str | None = None  # distinguishes runs in reports, such as a version under test
    interrupted: bool = False  # the user stopped the run; only its first part was judged
    simulated_s: float | None = None  # virtual seconds; `None` for a run in real time
    # the worst finding; `None` if the run passed, and in older files
    failure: Failure | None = None
    frozen: str | None = None  # the cluster that a violation froze, with `--freeze`


class StoredRun(msgspec.Struct, frozen=True):
    """A run as read from the store.

    If the run ended early, `record` is `None` and `note` has the reason. `foreign` means that
    record and results belong to another history than the stored one; `note` says so.
    """

    folder: Path
    case: Case
    history: History
    record: RunRecord | None
    note: str | None
    foreign: bool = False


def new_run_id(seed: int) -> str:
    """Return a unique name for a run: UTC time to the millisecond, seed, and process number."""
    now = dt.datetime.now(tz=dt.UTC)
    return f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03}-{seed}-{os.getpid()}"


def shrunk_name(run: str) -> str:
    """Return the name of the run that `harness shrink` makes. Both runs have the same parent."""
    return f"{run[: 100 - len(SHRUNK_SUFFIX)]}{SHRUNK_SUFFIX}"


def check_name(text: str, flag: str) -> None:
    """Raise `UsageError` if `text` cannot be the name of a folder in a store."""
    if not _NAME.fullmatch(text):
        raise UsageError(
            f"{flag} is {text!r}; use up to 100 letters, digits, '.', '_' and '-', "
            "beginning with a letter or digit"
        )


def check_place(store: Path, name: str) -> None:
    """Raise `UsageError` if `store` or `store/name` exists but is not a folder.

    A lack of space or permission is only noticed when a file is written.
    """
    places = [(store / name, "--name"), *((each, "--store") for each in (store, *store.parents))]
    for path, flag in places:
        with contextlib.suppress(OSError):  # a path that cannot be read cannot be written either
            if (path.exists() or path.is_symlink()) and not path.is_dir():
                raise UsageError(
                    f"{str(path)!r} is not a folder, so no run can be kept in "
                    f"{str(store / name)!r}; choose another {flag}"
                )


class RunFolder:
    """The folder of one run. Raises `UsageError` for bad names, `InfrastructureError` for disk
    errors.

    A staged run is built under a hidden name, which readers ignore, and `publish` renames it. So
    after a kill at any moment the store has the whole run or nothing of it.

    The folder of a run that is not staged is locked until `finish` or the end of the process
    (`is_being_written`).
    """

    def __init__(
        self, store: Path, name: str, run_id: str, *, staged: bool = False, latest: bool = True
    ) -> None:
        """Create the folder `store/name/run_id`, and make `store/name/latest` link to it.

        For a staged run, `publish` does both. Without `latest`, the link stays as it is.
        """
        check_name(name, "--name")
        check_name(run_id, "run")
        self.name = name
        self.run_id = run_id
        self._seed: int | None = None
        self._may_be_latest = latest
        parent = store / name
        self.path = parent / (f".{run_id}.{os.getpid()}{STAGED_SUFFIX}" if staged else run_id)
        try:
            if staged:
                # a dead process that had the same PID may have left this folder
                shutil.rmtree(self.path, ignore_errors=True)
            self.path.mkdir(parents=True)
            self._unlock = None if staged else weakref.finalize(self, os.close, _locked(self.path))
            if not staged:
                self._point_latest()
        except OSError as error:
            raise self._refusal(error) from error

    def publish(self, *, latest: bool) -> Path:
        """Rename a staged run to its final name; returns the new path.

        An older run with that name is replaced.
        """
        final = self.path.parent / self.run_id
        old = self.path.with_name(f"{self.path.name}.old{STAGED_SUFFIX}")
        try:
            if final.exists():
                final.rename(old)
            self.path.rename(final)
            self.path = final
            if latest:
                self._point_latest()
        except OSError as error:
            raise self._refusal(error) from error
        shutil.rmtree(old, ignore_errors=True)
        return final

    def discard(self) -> None:
        """Remove a staged run that will not be published."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _point_latest(self) -> None:
        if not self._may_be_latest:
            return
        temporary = self.path.parent / f".latest-{self.run_id}-{os.getpid()}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(self.run_id)
        temporary.replace(self.path.parent / "latest")

    def _refusal(self, error: OSError) -> InfrastructureError:
        return InfrastructureError(
            f"cannot create the run folder {self.path.parent / self.run_id}: {error.strerror}; "
            "free some space or choose another --store"
        )

    def write_case(self, case: Case) -> None:
        self._seed = case.seed
        self._replace("case.json", case.encode())

    def open_log(self) -> OpLog:
        return OpLog(self.path / OPS_LOG)

    def seal(self, history: History, *, label: str | None = None) -> None:
        """Write `history.parquet`, and then remove `ops.log`."""
        path = self.path / "history.parquet"
        write_parquet(path, history, run=self.run_id, seed=self._seed, label=label)
        (self.path / OPS_LOG).unlink(missing_ok=True)

    def write_results(self, results: list[CheckResult], extra: dict[str, Any]) -> None:
        content = {"checkers": [msgspec.to_builtins(result) for result in results], **extra}
        self._replace(
            "results.json", msgspec.json.format(msgspec.json.encode(content, order="sorted"))
        )

    def finish(self, record: RunRecord) -> None:
        """Write `run.json`. With this file, the run is complete."""
        self._replace("run.json", msgspec.json.format(msgspec.json.encode(record, order="sorted")))
        if self._unlock is not None:
            self._unlock()

    def _replace(self, name: str, data: bytes) -> None:
        temporary = self.path / f".{name}.part"
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path / name)
        except OSError as error:
            raise InfrastructureError(
                f"cannot write {self.path / name}: {error.strerror}; free some space or choose "
                "another --store"
            ) from error


def is_being_written(folder: Path) -> bool:
    """Whether a live process is still writing the run in `folder`, according to its lock."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # the file system does not support locks
        return False
    finally:
        os.close(descriptor)
    return False


def _locked(folder: Path) -> int:
    """Open a folder and lock it if its file system supports locks; returns the descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def load_run(path: Path | str) -> StoredRun:
    """Read a run's folder, sealed or incomplete.

    Raises `UsageError` if it is not the folder of a run, and `HistoryError` if its history is
    damaged.
    """
    try:
        return _load_run(Path(path))
    except OSError as error:
        raise UsageError(f"cannot read the run folder {str(path)!r}: {error.strerror}") from error


def _load_run(path: Path) -> StoredRun:
    # Only plain files are read: a pipe or a device in a foreign folder may never end.
    if not path.is_dir():
        raise UsageError(f"{str(path)!r} is not a run folder; give a folder below the store")
    if not (path / "case.json").is_file():
        raise UsageError(f"{str(path)!r} holds no case.json, so it is not a run folder")
    case = load_case(path / "case.json")
    record: RunRecord | None = None
    if (path / "run.json").is_file():
        try:
            record = msgspec.json.decode((path / "run.json").read_bytes(), type=RunRecord)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HistoryError(f"{str(path / 'run.json')!r} is not valid: {error}") from error
    if (path / "history.parquet").is_file():
        # this also checks the digest in the footer
        history = read_parquet(path / "history.parquet")
        if record is None:
            return StoredRun(path, case, history, None, "the run was sealed but not finished")
        other = _another(path / "history.parquet", record)
        return StoredRun(path, case, history, record, other, foreign=other is not None)
    if not (path / "ops.log").is_file():
        raise HistoryError(f"{str(path)!r} holds neither history.parquet nor ops.log")
    ops, torn = read_log(path / "ops.log")
    note = torn or "the run was cut short: its history comes from the op log"
    try:
        history = History(ops)
    except HistoryError as error:
        raise HistoryError(f"{str(path / 'ops.log')!r}: {error}") from error
    return StoredRun(path, case, history, record, note)


def _another(path: Path, record: RunRecord) -> str | None:
    """Return a note if `record` does not describe the history in the sealed file."""
    sealed_as = read_footer(path).digest
    if not sealed_as or sealed_as == record.digest:
        return None
    return (
        f"{path.name} has a different history ({sealed_as[:12]}...) than run.json and results.json "
        f"describe ({record.digest[:12]}...), so their verdict does not count"
    )
