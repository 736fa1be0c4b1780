"""The questions of a report, which are SQL files, and the engine that answers them by DuckDB.

An engine answers queries by name, from registered tables and from earlier answers. On Spark, each
task has a DuckDB of its own (`results.spark.range_answers`), and the answers of tasks are added up.
These sums must be exact, so `results/questions/sql/*.sql` calculate with integers or exact
decimals. Every question has a total order. Integers are returned as int64.

| `kind_of`   | meaning                                                                   |
|-------------|---------------------------------------------------------------------------|
| base        | a table in `BASES`, which the engine keeps because other queries read it  |
| cells       | a query `..._cells`: counts and sums, with few rows for any number of     |
|             | runs, made in one pass over a large table, and used by several questions  |
| question    | a question that the engine answers from its tables and bases              |
| of cells    | a question about cells and other answers, answered in the driver process  |
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

import pyarrow as pa

from harness.errors import UsageError
from results.facts.schema import schema

BASES: Final = ("judged", "failing_runs", "slowest")
"""Queries whose answers other queries read as tables, in this order."""
MEMORY_MAX: Final = "512MB"
"""DuckDB's memory limit if it has a scratch folder. Python and pyarrow need further memory."""
OF_RUNS: Final = ("judged", "failing_runs", "slowest", "changed_verdicts", "latency_by_run")
"""Answers that list single runs."""
COMPARED: Final = ("baseline_runs", "slowest", "latency_by_run")
"""Queries that a comparison of two labels needs, with the rows of all runs."""
COMPARED_ONLY: Final = ("baseline_runs",)
OF_CELLS_FIRST: Final = ("percentiles",)
"""Questions about cells whose answers other questions read."""
Kind = Literal["base", "cells", "question", "of cells"]
_OF_CELLS: Final = re.compile(rf"\b(?:\w+_cells|{'|'.join(OF_CELLS_FIRST)})\b")
_COMMENT: Final = re.compile(r"--[^\n]*")


class Extent(NamedTuple):
    """The extent of a report: limits of its lists, and whether it compares labels."""

    most: int | None = None  # maximum number of rows in lists of runs; `None` for all
    compared: bool = False  # whether two labels are compared, which needs rows of all runs

    def names(self) -> list[str]:
        return [name for name in query_names() if self.compared or name not in COMPARED_ONLY]

    def limit(self, name: str) -> str:
        """Return the SQL limit clause for an answer; empty if the answer is complete."""
        whole = self.most is None or (self.compared and name in COMPARED)
        return "" if whole or name not in OF_RUNS else f"\nLIMIT {self.most}"


class Engine(Protocol):
    """Answers all queries of a report except the kind `of cells`."""

    def answer(self, name: str, extent: Extent) -> pa.Table | None:
        """Answer a query, with integers as int64. Return `None` if only other queries need it."""
        ...


def query_names() -> list[str]:
    """Return the names of all queries: bases, cells, questions, questions of cells."""
    folder = resources.files("results.questions") / "sql"
    names = sorted(item.name.removesuffix(".sql") for item in folder.iterdir())
    first = (*BASES, *OF_CELLS_FIRST)
    rest = [name for name in names if name not in first]
    cells, questions, of_cells = (
        [name for name in rest if kind_of(name) == kind]
        for kind in ("cells", "question", "of cells")
    )
    return [*BASES, *cells, *questions, *OF_CELLS_FIRST, *of_cells]


@functools.cache
def kind_of(name: str) -> Kind:
    """Return the kind of a query; the module's docstring explains the kinds."""
    if name in BASES:
        return "base"
    if name.endswith("_cells"):
        return "cells"
    return "of cells" if _OF_CELLS.search(_COMMENT.sub("", query(name))) else "question"


@functools.cache
def query(name: str) -> str:
    """Read the SQL text of a query."""
    return (resources.files("results.questions") / "sql" / f"{name}.sql").read_text(
        encoding="utf-8"
    )


def unordered(name: str) -> tuple[str, str]:
    """Split a query into its SQL without ORDER BY, and the order; cells have no order."""
    if kind_of(name) == "cells":
        return query(name), ""
    rows, _, order = query(name).rpartition("ORDER BY")
    return rows, order.strip()


def in_any_order(found: pa.Table) -> pa.Table:
    """Return cells sorted by all columns. For so few rows, sorting in SQL would take longer."""
    return found.sort_by([(column, "ascending") for column in found.column_names])


def in_order(name: str) -> str:
    """Return SQL for the rows of a kept answer, in the order of the answer's query."""
    return f"SELECT * FROM {name} ORDER BY {unordered(name)[1]}"  # noqa: S608


def _normal(table: pa.Table) -> pa.Table:
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
    """An engine on an in-memory DuckDB in this process."""

    def __init__(self, scratch: Path | None = None, threads: int | None = None) -> None:
        """Open DuckDB. With `scratch`, memory is limited, and DuckDB spills to this folder.

        `threads` defaults to the number of cores. Raises `UsageError` without DuckDB.
        """
        try:
            import duckdb
        except ImportError as error:
            raise UsageError(
                "reports need DuckDB, which is not installed: pip install 'catalog-harness[report]'"
            ) from error
        config: dict[str, Any] = (
            {} if scratch is None else {"temp_directory": str(scratch), "memory_limit": MEMORY_MAX}
        )
        if threads is not None:
            config["threads"] = threads
        self.connection = duckdb.connect(config=config)

    def register(
        self, table: str, paths: Sequence[Path], where: str = "true", run: str = "run"
    ) -> None:
        """Create a view over the files. Columns that an older file lacks are null.

        `where` is an SQL condition in which a row is called `here`. `run` is the SQL expression for
        the column `run`.
        """
        if not paths:
            self.connection.register(table, schema(table).empty_table())
            return
        files = ", ".join(quoted(str(path)) for path in paths)
        empty = f"no_{table}"
        self.connection.register(empty, schema(table).empty_table())
        columns = ", ".join(f'"{name}"' for name in schema(table).names if name != "run")
        self.connection.execute(
            f"""
            CREATE OR REPLACE VIEW "{table}" AS SELECT {run} AS run, {columns} FROM (
                SELECT * FROM read_parquet(
                    [{files}], union_by_name = true, hive_partitioning = false
                ) UNION ALL BY NAME SELECT * FROM "{empty}"
            ) here WHERE {where}
            """  # noqa: S608
        )

    def take(self, table: str, rows: pa.Table) -> None:
        """Register an in-memory table under this name."""
        self.connection.register(table, rows)

    def sql(self, text: str) -> pa.Table:
        return _normal(self.connection.sql(text).to_arrow_table())

    def run(self, text: str) -> None:
        self.connection.execute(text)

    def write(self, table: str, path: Path) -> None:
        self.run(f'COPY "{table}" TO {quoted(str(path))} (FORMAT parquet, COMPRESSION zstd)')

    def keep(self, table: str, text: str) -> None:
        self.run(f'CREATE OR REPLACE TABLE "{table}" AS {text}')

    def answer(self, name: str, extent: Extent) -> pa.Table | None:
        if name in BASES:
            self.keep_base(name, extent)
        if name == "slowest":
            return None
        if kind_of(name) == "cells":
            return in_any_order(self.sql(query(name)))
        return self.sql((in_order(name) if name in BASES else query(name)) + extent.limit(name))

    def keep_base(self, name: str, extent: Extent) -> None:
        """Keep the answer of one of `BASES` as a table: all its rows, except for `slowest`."""
        limit = extent.limit(name) if name == "slowest" else ""
        self.keep(name, query(name) + limit if limit else unordered(name)[0])

    def close(self) -> None:
        self.connection.close()


def quoted(text: str) -> str:
    """Return `text` as an SQL literal."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def answer_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> pa.Table:
    """Make a table of some columns of rows. `columns` maps names to types (such as `int64`)."""
    types = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64()}
    layout = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    return pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows], layout)
