"""Writes the files of a report atomically, and leaves all other files in the folder alone.

The file `LISTED` names all files of the report. A later report in the same folder removes the
listed files that it does not write itself, so that old and new files are never mixed. A folder that
has files but no such list belongs to the user, so a report refuses it before any work is done.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import UsageError
from results.questions.engines import query, query_names

LISTED: Final = ".report-files.json"
PAGE: Final = "report.html"


def accept_output(output: Path) -> None:
    """Raise `UsageError` if a report in `output` would mix with other files, or replace them."""
    try:
        if output.exists() and not output.is_dir():
            raise UsageError(f"--output {str(output)!r} is a file; give a folder")
        if not output.is_dir() or (output / LISTED).is_file():
            return
        there = sorted(path.name for path in output.iterdir())
    except OSError as error:
        text = f"--output {str(output)!r} cannot be read: {error.strerror}; give another"
        raise UsageError(text) from error
    if there:
        raise UsageError(
            f"--output {str(output)!r} holds {there[0]!r}, which no report wrote there; give an "
            "empty folder or a new one"
        )


def write_report(
    output: Path,
    *,
    tables: Mapping[str, Callable[[Path], object]],
    answers: Mapping[str, pa.Table],
    page: str,
) -> Path:
    """Write all files below `output`, the page last; return the page's path. Raises `OSError`.

    `tables` maps each table's name to a function that writes the table's Parquet file.
    """
    writers: dict[str, Callable[[Path], object]] = {}
    for name, write_table in tables.items():
        writers[f"tables/{name}.parquet"] = write_table
    for name in query_names():
        writers[f"sql/{name}.sql"] = functools.partial(_write_text, query(name))
    for name, table in answers.items():
        writers[f"answers/{name}.parquet"] = functools.partial(
            pq.write_table, table, compression="zstd"
        )
    writers[PAGE] = functools.partial(_write_text, page)
    before = _listed(output)
    # List files before writing them, so that after a crash the next report can remove them.
    _list(output, {*before, *writers})
    for relative, write in writers.items():
        _put(output / relative, write)
    for stale in before - writers.keys():
        with contextlib.suppress(FileNotFoundError):
            (output / stale).unlink()
    _list(output, writers.keys())
    return output / PAGE


def _listed(output: Path) -> set[str]:
    try:
        names = msgspec.json.decode((output / LISTED).read_bytes(), type=list[str])
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return set()
    return {name for name in names if _is_ours(name)}


def _is_ours(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    suffixes = {"tables": ".parquet", "answers": ".parquet", "sql": ".sql"}
    return name == PAGE or (folder in suffixes and Path(file).suffix == suffixes[folder])


def _list(output: Path, names: Iterable[str]) -> None:
    _put(output / LISTED, lambda path: path.write_bytes(msgspec.json.encode(sorted(names))))


def _write_text(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def _put(path: Path, write: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
