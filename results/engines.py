"""Where the SQL of a report runs: DuckDB on one machine, Spark on any number, the same files.

`results/sql/*.sql` keep to what both understand alike: integer arithmetic (`<<`, never `/`), no
implicit order of nulls, every query ordered to the last row. `run_sql` gives a table whose integers
are int64 in either engine, so that results compare equal, cell by cell.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from harness.errors import UsageError
from results.schema import ddl, schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BASES",
    "ENGINES",
    "DuckEngine",
    "Engine",
    "SparkEngine",
    "open_engine",
    "query",
    "query_names",
]

ENGINES: Final = ("duckdb", "spark")
BASES: Final = (
    *("judged", "latencies", "percentiles"),
    *("failing_runs", "dated_latency_cells", "availability_cells"),
)
"""Queries whose results the others read as tables, in this order."""


class Engine(Protocol):
    """Answers SQL over Parquet files."""

    name: str

    def register(self, table: str, paths: Sequence[Path]) -> None:
        """Make files of one schema a table."""
        ...

    def sql(self, text: str) -> pa.Table:
        """The answer, with whole numbers as int64."""
        ...

    def keep(self, table: str, text: str) -> None:
        """Make the answer of a query a table."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


def query_names() -> list[str]:
    """The names of all queries, the bases first."""
    folder = resources.files("results") / "sql"
    found = sorted(item.name.removesuffix(".sql") for item in folder.iterdir())
    return [*BASES, *(name for name in found if name not in BASES)]


@functools.cache
def query(name: str) -> str:
    """The text of one query."""
    return (resources.files("results") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def _normal(table: pa.Table) -> pa.Table:
    """Whole numbers of any width as int64, text as plain strings, no metadata."""
    import pyarrow as pa

    fields = []
    for field in table.schema:
        kind = field.type
        if pa.types.is_integer(kind):
            kind = pa.int64()
        elif pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            kind = pa.string()
        fields.append(pa.field(field.name, kind))
    return table.cast(pa.schema(fields))


class DuckEngine:
    """DuckDB, in memory, in this process."""

    name = "duckdb"

    def __init__(self) -> None:
        """Raises `UsageError` where DuckDB is not installed."""
        try:
            import duckdb
        except ImportError as error:
            raise UsageError(
                "reports need DuckDB, which is not installed: pip install 'catalog-harness[report]'"
            ) from error
        self._connection = duckdb.connect()

    def register(self, table: str, paths: Sequence[Path]) -> None:
        """A view over the files."""
        if not paths:
            self._connection.register(table, schema(table).empty_table())
            return
        files = ", ".join(_quoted(str(path)) for path in paths)
        self._connection.execute(
            f'CREATE OR REPLACE VIEW "{table}" AS SELECT * FROM read_parquet([{files}])'  # noqa: S608
        )

    def sql(self, text: str) -> pa.Table:
        """The answer of a query."""
        return _normal(self._connection.sql(text).to_arrow_table())

    def keep(self, table: str, text: str) -> None:
        """A table in memory."""
        self._connection.execute(f'CREATE OR REPLACE TABLE "{table}" AS {text}')

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _quoted(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


class SparkEngine:
    """Spark, wherever its session runs; the files must be visible there."""

    name = "spark"

    def __init__(self, session: Any) -> None:
        """The session stays its owner's to stop."""
        self._session = session
        self._views: list[str] = []
        self._cached: list[Any] = []

    def register(self, table: str, paths: Sequence[Path]) -> None:
        """A temporary view over the files."""
        columns = ddl(schema(table))
        if paths:
            frame = self._session.read.schema(columns).parquet(*(str(path) for path in paths))
        else:
            frame = self._session.createDataFrame([], columns)
        self._view(table, frame)

    def sql(self, text: str) -> pa.Table:
        """The answer of a query."""
        return _normal(self._session.sql(text).toArrow())

    def keep(self, table: str, text: str) -> None:
        """A temporary view, computed once."""
        frame = self._session.sql(text).cache()
        self._cached.append(frame)
        self._view(table, frame)

    def _view(self, table: str, frame: Any) -> None:
        frame.createOrReplaceTempView(table)
        self._views.append(table)

    def close(self) -> None:
        """Forget our views; the session goes on."""
        for frame in self._cached:
            frame.unpersist()
        for table in dict.fromkeys(reversed(self._views)):
            self._session.sql(f"DROP VIEW IF EXISTS `{table}`")


def open_engine(name: str, *, spark_session: Any = None) -> Engine:
    """The engine of that name; Spark needs its session. Raises `UsageError`."""
    if name == "duckdb":
        return DuckEngine()
    if name == "spark":
        assert spark_session is not None
        return SparkEngine(spark_session)
    raise UsageError(f"--engine is {name!r}; it is one of: {', '.join(ENGINES)}")
