"""How DuckDB reads the tables of a lake, and what it says of files that it cannot read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from harness.errors import InfrastructureError, clipped
from results.engines import quoted
from results.lake.judged import RESULTS
from results.lake.trouble import said_of
from results.rights import RefusedError

if TYPE_CHECKING:
    from results.lake.snapshot import Snapshot

__all__ = ["readable", "source_of"]

BATCH_ROWS: Final = 1 << 14


def source_of(sql: Any, found: Snapshot, table: str, columns: Sequence[str]) -> str:
    """Columns of a table's rows in SQL, to be read once, by one statement of the connection `sql`.

    They are read as they are asked for: a table may be larger than the memory. Of files that lie
    here DuckDB reads what it needs, and their dictionaries stay. Columns that a file of an older
    version lacks are null.
    """
    files, name = found.files(table), f"rows_of_{table}"
    if found.place.local and files:
        sql.register(name, found.schemas[table].empty_table())
        paths = ", ".join(quoted(file.uri) for file in files)
        own = ", ".join(f'"{column}"' for column in columns)
        return f"""
            (SELECT {own} FROM (
                SELECT * FROM read_parquet(
                    [{paths}], union_by_name = true, hive_partitioning = false
                ) UNION ALL BY NAME SELECT * FROM {name}
            ))
        """  # noqa: S608
    scanner = found.dataset(table).scanner(
        [*columns], batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
    )
    sql.register(name, scanner.to_reader())
    return name


@contextlib.contextmanager
def readable(uri: str) -> Iterator[None]:
    """A file that DuckDB cannot read, or has no room for, leaves as `InfrastructureError`.

    One that we may not read leaves as `UsageError`.
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
            f"what the lake {uri} holds cannot be read: {clipped(text, 300)}; see `harness lake "
            f"check` (results may be removed as a whole: {uri}/{RESULTS}; they are found again)"
        ) from error
