"""What is in a store, from footers, digests of bytes and small files: no op is decoded.

A store is `NAME/RUN/`, see `harness.store`. Symbolic links and names that begin with a dot are no
runs. Whatever looks like a run but cannot be read becomes a `Problem` that names it; nothing is
left out silently, and a run without `run.json` (cut short) is still there, with what its log or its
sealed history holds. So is a seed of a soak that left no run: its case lies in `NAME/.soak/`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec

from harness.case import Case, load_case
from harness.errors import HarnessError, UsageError
from harness.store import RunRecord
from harness.store.footer import BY_KEY, Footer, cost_of
from harness.store.keyed import bucket_paths
from results.judging.contents import Group, digest_of, read_contents
from results.lake.log.refusals import failure_of

__all__ = [
    "NO_LOSS",
    "PROBLEMS_MAX",
    "RUNNING",
    "SEED_WITHOUT_RUN",
    "SOURCE_BUCKETS",
    "SOURCE_LOG",
    "SOURCE_PARQUET",
    "Problem",
    "Problems",
    "RunInfo",
    "Scan",
    "folders_in",
    "is_seen",
    "problem_lines",
    "run_folders",
    "scan_run",
    "scan_store",
]

PROBLEMS_MAX: Final = 1_000
TEXT_CHARS_MAX: Final = 2_000
SOURCE_PARQUET: Final = "history.parquet"
SOURCE_BUCKETS: Final = "history"
SOURCE_LOG: Final = "ops.log"
SEED_WITHOUT_RUN: Final = "seed"
"""The kind of problem of a soak's seed that crashed, or whose run could not be kept."""
RUNNING: Final = "running"
"""The kind of problem of a run that a live process still writes."""
NO_LOSS: Final = frozenset({"record", "unfinished", RUNNING})
"""Kinds of problems after which a run is judged all the same, or by a later report."""
_LOG_BYTES_PER_OP: Final = 200
_CONCURRENCY_GUESS: Final = 10

_Files = Mapping[str, tuple[Footer, tuple[Group, ...]]]


class Problem(msgspec.Struct, frozen=True, order=True):
    """Something that could not be read or judged. `run` is `NAME/RUN`, or a path in the store."""

    run: str
    # "case", "record", "history", "unfinished", "checker", "facts", "lost", "seed", "refused", ...
    kind: str
    text: str


class Problems:
    """A bounded list: the first `PROBLEMS_MAX` are kept, all are counted."""

    def __init__(self) -> None:
        self._kept: dict[Problem, None] = {}
        self.total = 0

    def add(self, problem: Problem) -> None:
        """Keep it, or only count it; the same one counts once."""
        text = problem.text
        if len(text) > TEXT_CHARS_MAX:
            text = f"{text[:TEXT_CHARS_MAX]}... ({len(text)} characters)"
        problem = msgspec.structs.replace(problem, text=text)
        if problem in self._kept:
            return
        self.total += 1
        if len(self._kept) < PROBLEMS_MAX:
            self._kept[problem] = None

    @property
    def kept(self) -> tuple[Problem, ...]:
        """Those kept, sorted."""
        return tuple(sorted(self._kept))


def problem_lines(problems: Problems) -> Iterator[str]:
    """Each that was kept on a line, and how many were not."""
    for problem in problems.kept:
        yield f"{problem.run}: {problem.text}"
    if problems.total > len(problems.kept):
        yield f"and {problems.total - len(problems.kept)} problems more"


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a store. The numbers come from its footers; those of a log are estimates."""

    folder: Path
    name: str
    run: str
    case: Case
    record: RunRecord | None  # `None` where the run was cut short
    source: str  # one of the names SOURCE_...
    files: tuple[str, ...]  # relative to the folder
    footers: tuple[Footer, ...]  # one a file; a guess for a log
    groups: tuple[tuple[Group, ...], ...]  # those of each file; none of a log
    digest: str  # of what the files hold, whatever their footers say
    label: str | None
    n_ops: int
    cost: int

    @property
    def key(self) -> str:
        """`NAME/RUN`: what the column `run` of every table holds."""
        return f"{self.name}/{self.run}"

    @property
    def keyed(self) -> bool:
        """Whether its history lies in buckets of keys."""
        return self.source == SOURCE_BUCKETS


class Scan(msgspec.Struct, frozen=True):
    """All runs, sorted by key, and what is wrong in the store; how many runs could not be read."""

    runs: tuple[RunInfo, ...]
    problems: Problems
    unread: int = 0


def scan_store(store: Path) -> Scan:
    """Look at every run; raises `UsageError` where there is no store, or none for us."""
    if not store.is_dir():
        raise UsageError(f"{str(store)!r} is not a folder; give the --store of `harness run`")
    problems = Problems()
    if is_seen(store / ".soak"):  # the store itself is one name's folder
        _seeds_without_runs(
            store, store.resolve().name, {*_children(store, store, problems)}, problems
        )
    found: list[RunInfo] = []
    unread = 0
    for name, run, folder in run_folders(store, problems):
        info = scan_run(folder, name, run, problems)
        if info is not None:
            found.append(info)
        elif not _has_no_case(folder):
            unread += 1
    return Scan(tuple(sorted(found, key=lambda info: info.key)), problems, unread)


def _has_no_case(folder: Path) -> bool:
    """Whether it is certainly no run."""
    try:
        return not (folder / "case.json").is_file()
    except OSError:
        return False


def run_folders(store: Path, problems: Problems) -> Iterator[tuple[str, str, Path]]:
    """Every folder that may be a run, as (name, run, folder)."""
    for name in _children(store, store, problems):
        above = store / name
        if is_seen(above / "case.json"):  # the store itself is one name's folder
            yield store.resolve().name, name, above
            continue
        runs = _children(store, above, problems)
        _seeds_without_runs(above, name, {*runs}, problems)
        for run in runs:
            yield name, run, above / run


def _seeds_without_runs(above: Path, name: str, runs: AbstractSet[str], problems: Problems) -> None:
    """Name the seeds of soaks of which nothing but a case is there (`harness.soak.campaign`)."""
    folder = above / ".soak"
    for path in sorted(folder.glob("*.case.json")) if is_seen(folder) else ():
        run = path.name.removesuffix(".case.json")
        if run not in runs:
            text = (
                "a soak's seed that left no run: it crashed, or its run could not be kept, "
                f"whatever its verdict; replay it with `harness run --case {path}`"
            )
            problems.add(Problem(f"{name}/{run}", SEED_WITHOUT_RUN, text))


def _children(store: Path, folder: Path, problems: Problems) -> list[str]:
    where = str(folder.relative_to(store)) if folder != store else "."
    try:
        names = folders_in(folder)
    except OSError as error:
        if folder == store:
            raise failure_of(error, f"{str(store)!r} cannot be listed: {error.strerror}") from error
        problems.add(Problem(where, "history", f"cannot be listed: {error.strerror}"))
        return []
    known = [name for name in names if _is_text(name)]
    if len(known) < len(names):
        odd = next(name for name in names if not _is_text(name))
        text = f"holds a folder whose name is not UTF-8, {odd!a}; rename it"
        problems.add(Problem(where, "history", text))
    return known


def folders_in(path: Path) -> list[str]:
    """Sorted names of real folders: links are not followed, dot folders are the harness's own."""
    with os.scandir(path) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        )


def is_seen(path: Path) -> bool:
    """Whether it is there, as far as we may look."""
    try:
        return path.exists()
    except OSError:
        return False


def _is_text(name: str) -> bool:
    """Whether a file's name can be written anywhere; Linux takes any bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def scan_run(folder: Path, name: str, run: str, problems: Problems) -> RunInfo | None:
    """One run, or `None` and at least one problem."""
    key = f"{name}/{run}"

    def problem(kind: str, error: object) -> None:
        problems.add(Problem(key, kind, str(error)))

    try:
        there = (folder / "case.json").is_file()
    except OSError as error:
        problem("case", f"cannot be read: {error.strerror}")
        return None
    if not there:
        problem("case", "holds no case.json, so it is not a run; move it out of the store")
        return None
    try:
        case = load_case(folder / "case.json")
    except HarnessError as error:
        problem("case", error)
        return None
    record: RunRecord | None = None
    if (folder / "run.json").is_file():
        try:
            record = msgspec.json.decode((folder / "run.json").read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem("record", f"run.json is not valid: {error}; the run is judged without it")
    else:
        problem("unfinished", "has no run.json: it was cut short, or is still going on")
    try:
        source, files = _history_of(folder)
        info = _info(folder, name, run, case, record, source, files)
    except (HarnessError, OSError) as error:
        problem("history", error)
        return None
    if record is not None and info.source == SOURCE_PARQUET:
        sealed_as = info.footers[0].digest
        if sealed_as and sealed_as != record.digest:
            problem(
                "record",
                f"{SOURCE_PARQUET} is another history ({sealed_as[:12]}...) than the one that "
                f"run.json tells of ({record.digest[:12]}...); it is judged as it is",
            )
    return info


def _history_of(folder: Path) -> tuple[str, _Files]:
    """Where the history is, and what each of its files holds; raises `HistoryError`."""
    if (folder / SOURCE_PARQUET).is_file():
        read = read_contents(folder / SOURCE_PARQUET)
        if read[0].order == BY_KEY:
            raise UsageError(f"{SOURCE_PARQUET} is a bucket of keys, which belongs into history/")
        return SOURCE_PARQUET, {SOURCE_PARQUET: read}
    paths = bucket_paths(folder / SOURCE_BUCKETS)
    if paths:
        found = {f"{SOURCE_BUCKETS}/{path.name}": read_contents(path) for path in paths}
        files = dict(sorted(found.items(), key=lambda item: item[1][0].bucket))
        footers = [footer for footer, _ in files.values()]
        numbers = [footer.bucket for footer in footers]
        buckets = footers[0].buckets
        if any(footer.order != BY_KEY for footer in footers) or numbers != list(range(buckets)):
            raise UsageError(
                f"history/ holds the buckets {numbers[:20]} of {buckets}; restore what is missing "
                "from a copy"
            )
        return SOURCE_BUCKETS, files
    if not (folder / SOURCE_LOG).is_file():
        raise UsageError("holds neither history.parquet nor history/ nor ops.log")
    with (folder / SOURCE_LOG).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        n_ops = file.tell() // _LOG_BYTES_PER_OP
    guess = Footer(
        digest=f"log:{digest}",
        n_ops=n_ops,
        max_key_ops=n_ops,
        cost=cost_of(n_ops, _CONCURRENCY_GUESS),
    )
    return SOURCE_LOG, {SOURCE_LOG: (guess, ())}


def _info(
    folder: Path,
    name: str,
    run: str,
    case: Case,
    record: RunRecord | None,
    source: str,
    files: _Files,
) -> RunInfo:
    footers = tuple(footer for footer, _ in files.values())
    digest = digest_of(*files[source]) if source in files else _joined(files.values())
    label = record.label if record is not None and record.label is not None else footers[0].label
    return RunInfo(
        folder=folder,
        name=name,
        run=run,
        case=case,
        record=record,
        source=source,
        files=tuple(files),
        footers=footers,
        groups=tuple(groups for _, groups in files.values()),
        digest=digest,
        label=label,
        n_ops=sum(footer.n_ops for footer in footers),
        cost=sum(footer.cost for footer in footers),
    )


def _joined(files: Iterable[tuple[Footer, tuple[Group, ...]]]) -> str:
    """The digest of all buckets together."""
    text = "\n".join(digest_of(footer, groups) for footer, groups in files)
    return f"buckets:{hashlib.sha256(text.encode()).hexdigest()}"
