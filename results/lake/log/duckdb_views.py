"""Lets DuckDB read the tables of a lake, with clear errors for unreadable files."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from harness.errors import InfrastructureError, clipped
from results.lake.log.files import RESULTS, FileRef
from results.lake.log.location import Place
from results.lake.log.refusals import RefusedError
from results.lake.log.snapshot import Snapshot
from results.lake.log.storage_errors import said_of, troubles
from results.questions.engines import quoted

BATCH_ROWS: Final = 1 << 14
CHUNK: Final = 1 << 20
AT_ONCE: Final = 8
STARTED: Final = """
    strftime(r.started AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S')
        || CASE WHEN epoch_us(r.started) % 1000000 = 0 THEN ''
                ELSE strftime(r.started AT TIME ZONE 'UTC', '.%f') END
        || '+00:00'
"""
"""SQL for the start time of a run (row `r` of `runs`) as text: ISO 8601, in UTC."""
CODE: Final = """
    CASE WHEN json_valid(r.versions) THEN COALESCE(
        NULLIF(r.versions->>'$.commit', ''), NULLIF(r.versions->>'$.code', ''),
        'harness ' || NULLIF(r.versions->>'$.harness', '')) END
"""
"""SQL for the version of the code that a run (row `r` of `runs`) used.

The version is the commit if recorded, otherwise the digest by which a soak identifies code,
otherwise the version of the harness.
"""


def source_of(sql: Any, found: Snapshot, table: str, columns: Sequence[str]) -> str:
    """Return a FROM operand for one statement of `sql`. It reads columns of a lake's table.

    Rows are read on demand, since a table may be larger than the memory. A column that a file lacks
    is null.
    """
    files, name = found.files(table), f"rows_of_{table}"
    if found.place.local and files:
        sql.register(name, found.schemas[table].empty_table())
        paths = ", ".join(quoted(file.uri) for file in files)
        selected = ", ".join(f'"{column}"' for column in columns)
        return f"""
            (SELECT {selected} FROM (
                SELECT * FROM read_parquet(
                    [{paths}], union_by_name = true, hive_partitioning = false
                ) UNION ALL BY NAME SELECT * FROM {name}
            ))
        """  # noqa: S608
    scanner = found.dataset(table).scanner(
        [*columns], filter=found.in_range(), batch_size=BATCH_ROWS, batch_readahead=2,
        fragment_readahead=1,
    )  # fmt: skip
    sql.register(name, scanner.to_reader())
    return name


def at_hand(found: Snapshot, folder: Path) -> Snapshot:
    """Return the same snapshot with local files.

    Files of an object store are copied to `folder` once, so that later reads need no requests to
    the store. Other files in `folder` are removed. Raises the errors of the store.
    """
    place = found.place
    if place.local:
        return found

    def copied(file: FileRef) -> FileRef:
        path = folder / file.table / file.name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            with (
                troubles(file.uri),
                place.files.open_input_stream(f"{file.table}/{file.name}") as source,
                part.open("wb") as copy,
            ):
                shutil.copyfileobj(source, copy, CHUNK)
            part.rename(path)
        return dataclasses.replace(file, uri=str(path))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        copies = {name: pool.map(copied, files) for name, files in found.tables.items()}
        tables = {name: tuple(files) for name, files in copies.items()}
    kept = {file.uri for files in tables.values() for file in files}
    for path in folder.glob("*/*"):
        if str(path) not in kept:
            path.unlink()
    return dataclasses.replace(found, tables=tables, place=Place(str(folder)))


@contextlib.contextmanager
def readable(uri: str) -> Iterator[None]:
    """Convert errors that DuckDB raises in the block: an unreadable file, or a full disk or memory.

    Raises `UsageError` if access to a file is denied, else `InfrastructureError`.
    """
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        lost = isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException)
        text = " ".join(str(error).split())
        if isinstance(refused := said_of(error, uri), RefusedError):
            raise refused from error
        torn = isinstance(error, duckdb.InvalidInputException) and ".parquet" in text
        if not (lost or torn or "reading the stream" in text):
            raise
        raise InfrastructureError(
            f"a file of the lake {uri} cannot be read: {clipped(text, 300)}; see `harness lake "
            f"check` (you may remove the folder {uri}/{RESULTS}: a report computes results again)"
        ) from error
