"""Finds the histories in the paths that `harness check` gets as arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec

from harness.errors import EXIT_USAGE, UsageError
from harness.formats import SUFFIXES, is_history_file

FILES_MAX: Final = 1_000_000
PATH_CHARS_MAX: Final = 200
_OF_JEPSEN: Final = frozenset(
    {"history.txt", "jepsen.log", "results.edn", "test.fressian", "test.jepsen"}
)


class Task(msgspec.Struct, frozen=True):
    """One history to judge. Its path is a run's folder (`is_run`) or a file."""

    path: Path
    is_run: bool


class Failed(msgspec.Struct, frozen=True):
    """A history that got no verdict. `exit_code` is `EXIT_USAGE` or `EXIT_CRASH`."""

    reason: str
    exit_code: int


class LeftAside(msgspec.Struct, frozen=True):
    """The files that were skipped because they are not histories: the number and the first."""

    files: int = 0
    first: Path | None = None


def find_tasks(paths: Iterable[Path]) -> tuple[list[Task], LeftAside, list[Failed]]:
    """Return the histories at `paths`, the skipped files, and the paths that cannot be read.

    A folder with a `case.json` is one run, and a test's folder in Jepsen's store is one history.
    Other folders are searched for files whose suffix and content show a history. Inside folders,
    symbolic links and hidden names are skipped. Raises `UsageError` for a path without a history.
    """
    tasks: list[Task] = []
    failures: list[Failed] = []
    aside = LeftAside()
    for path in paths:
        before = len(tasks) + len(failures)
        for entry in _search(path):
            if isinstance(entry, Task):
                tasks.append(entry)
            elif isinstance(entry, Failed):
                failures.append(entry)
            else:
                aside = LeftAside(aside.files + 1, aside.first or entry)
            if len(tasks) + len(failures) > FILES_MAX:
                raise UsageError(
                    f"{str(path)!r} holds more than {FILES_MAX} histories; check them in parts"
                )
        if len(tasks) + len(failures) == before:
            raise UsageError(
                f"{str(path)!r} is not a run folder (it holds no case.json), and there is no "
                "history in it; histories in folders have ops and one of the suffixes "
                f"{', '.join(sorted(SUFFIXES))}; name a file to check it with any suffix"
            )
    return tasks, aside, failures


def _search(path: Path) -> Iterator[Task | Path | Failed]:
    """Yield the histories, skipped files and unreadable paths at `path` or below it."""
    try:
        if path.is_dir():
            yield from _walk(path)
        elif path.exists():
            yield _file_task(path)
        else:
            raise UsageError(f"{str(path)!r} does not exist")
    except OSError as error:
        place = str(error.filename or path)
        text = place if len(place) <= PATH_CHARS_MAX else f"{place[:PATH_CHARS_MAX]}..."
        yield Failed(f"cannot read {text!r}: {error.strerror}", EXIT_USAGE)


def _walk(folder: Path) -> Iterator[Task | Path | Failed]:
    """Yield the histories, skipped files and unreadable paths below `folder`.

    Hidden names are skipped, because a store uses them for other data, such as the journal of a
    soak.
    """
    if (folder / "case.json").exists():
        yield Task(folder, is_run=True)
        return
    entries = [e for e in sorted(folder.iterdir()) if not e.name.startswith(".")]
    recorded = _jepsen_history({entry.name for entry in entries})
    for entry in entries:
        if entry.is_symlink():
            continue
        if recorded is not None:
            yield _file_task(entry) if entry.name == recorded else entry
        elif entry.is_dir():
            yield from _search(entry)
        elif entry.is_file():
            is_history = entry.name != "results.edn" and is_history_file(entry)
            yield _file_task(entry) if is_history else entry


def _jepsen_history(names: AbstractSet[str]) -> str | None:
    """Return the file to judge if `names` are the files of a test in Jepsen's store, else `None`.

    The folder's other files repeat the history or hold results, pictures and node logs.
    """
    for name in ("history.edn", "history.txt", "jepsen.log"):
        if name in names:
            return name if names & (_OF_JEPSEN - {name}) else None
    return None


def _file_task(path: Path) -> Task:
    if path.name == "history.parquet" and (path.parent / "case.json").exists():
        return Task(path.parent, is_run=True)
    return Task(path, is_run=False)
