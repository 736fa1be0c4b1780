"""Opens a lake or a store as tables, for notebooks and jobs: `results.open(URI)`.

runs = results.open("s3://team/lake").only(label="nightly", day="2026-11-01..")
   runs.table("operations").pandas(["f", "latency_ns"])
   runs.sql("SELECT f, count(*) FROM operations GROUP BY f")

`open` returns one state of a lake, with the same runs in every table, even if other processes
append and merge in the meantime. The runs of a store are first copied into its lake
(`results.lake.transfer.store_lake`). Files are read on demand. Reading a table that is too large
for memory raises an error.

`results.lake.tables.schema` (docs/lake-tables.md) describes the columns. The tables here lack the
column `batch`, because they already exclude all rows that a lake does not count.
"""

from __future__ import annotations

import functools
import html
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds

from harness.errors import UsageError, counted, listed
from harness.ops import History
from results.lake.log.files import LOG_FOLDER, MAIN
from results.lake.log.storage_errors import troubles
from results.lake.transfer.store_lake import lake_of_store
from results.notebook import drawings
from results.notebook.choice import EVERYTHING, Choice, Filters, chosen, require
from results.notebook.columns import frame_of, module
from results.notebook.drawings import Drawing
from results.notebook.lake_tables import REPORT, LakeTables

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

ROWS_MAX: Final = 5_000_000
"""The default maximum of rows in a pandas table. These rows take a few GB of memory."""
LISTED_MAX: Final = 10
"""The maximum number of labels in the summary of `Runs`."""


def open(  # noqa: A001 - `results.open` reads naturally
    uri: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> Runs:
    """Open a lake (a folder, or `s3://BUCKET/PREFIX`) in its present state, or a store.

    A warning lists the runs of a store that cannot be read. `storage_options` override the `AWS_*`
    variables of the environment. Raises `UsageError` if the place is neither a lake nor a store, if
    another release made the lake, or if a library is missing. Raises `InfrastructureError` if the
    storage does not answer.
    """
    text = str(uri)
    remote = "://" in text and not text.startswith("file://")
    file = text.startswith("file://")
    local = Path(unquote(urlsplit(text).path) if file else text).expanduser()
    if not text or not (remote or local.is_dir()):
        raise UsageError(
            f"there is neither a lake nor a store at {text!r}; give the URI of `--lake` or the "
            "folder of `--store`"
        )
    with troubles(text):
        is_lake = remote or (local / MAIN / LOG_FOLDER).is_dir()
    if is_lake:
        return Runs(LakeTables(text, storage_options), EVERYTHING)
    update = lake_of_store(local)
    problems = {problem.run: problem.text for problem in update.problems.kept}
    if problems:
        warnings.warn(
            f"{counted(update.problems.total, 'run')} of {text} left out, see `problems`: "
            f"{listed(sorted(problems), limit=3)}",
            stacklevel=2,
        )
    return Runs(LakeTables(update.uri, store=local, problems=problems), EVERYTHING)


@dataclass(frozen=True, eq=False, repr=False)
class Runs:
    """Some runs of a lake, as tables. `open` returns all runs, and `only` selects fewer runs."""

    _source: LakeTables
    _choice: Choice

    def __repr__(self) -> str:
        lines = [f"{name}: {text}" for name, text in self._summary.items()]
        return "\n  ".join([f"Runs of {self._source.place!r}", *lines])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>"
            for name, text in self._summary.items()
        )
        return f"<p>Runs of <code>{html.escape(self._source.place)}</code></p><table>{rows}</table>"

    @functools.cached_property
    def _summary(self) -> dict[str, str]:
        columns = self.table(MAIN).arrow().to_table(columns=["verdict", "label"])
        counts = {}
        for name in columns.column_names:
            values = Counter(value or "none" for value in columns[name].to_pylist()).items()
            most = sorted(values, key=lambda item: (-item[1], item[0]))
            counts[name] = listed([f"{value} {n:,}" for value, n in most], limit=LISTED_MAX)
        rows = [
            name if name.startswith(REPORT) else f"{name} {self._source.rows(name, self._choice):,}"
            for name in self.tables
        ]
        problems = {"left out": counted(len(self.problems), "run")} if self.problems else {}
        return {
            "runs": f"{columns.num_rows:,}", "verdicts": counts["verdict"],
            "labels": counts["label"], "tables": ", ".join(rows), **problems,
        }  # fmt: skip

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables. `report.NAME` has results of `harness report`."""
        return self._source.tables()

    @property
    def problems(self) -> Mapping[str, str]:
        """The runs of a store that could not be read, with the reasons."""
        return self._source.problems

    def only(self, **filters: Unpack[Filters]) -> Runs:
        """Return the runs that pass all filters: `runs`, `target`, `label` and `day`.

        `label=None` selects runs without a label. Several values are alternatives. Raises
        `UsageError` for a key, target or label that does not exist.
        """
        choice = chosen(filters)
        self._source.check(choice)
        return Runs(self._source, self._choice.narrowed(choice))

    def table(self, name: str) -> Table:
        """Return the table with this name, without reading it. Raises `UsageError` if unknown."""
        if name not in self.tables:
            raise UsageError(f"there is no table {name!r}; there are {', '.join(self.tables)}")
        return Table(name, self._source, self._choice)

    def histories(self) -> Iterator[tuple[str, History]]:
        """Yield the key and the history of each run, ordered by key: the input of checkers.

        Raises `HistoryError` if the rows do not match the recorded history.
        """
        from results.lake.tables.rebuild import history_of
        from results.lake.transfer.export import rows_of_runs

        digests = self.table("runs").arrow().to_table(columns=["run", "digest"]).sort_by("run")
        for run, digest, rows in zip(
            *(digests[name].to_pylist() for name in ("run", "digest")),
            rows_of_runs(lambda name: self.table(name).arrow(), digests["run"].to_pylist()),
            strict=True,
        ):
            yield run, history_of(rows, digest=digest)

    @functools.cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """The connection for `sql`. A query may also name data frame variables of the caller."""
        return self.duckdb().execute("SET python_scan_all_frames = true")

    def sql(self, query: str) -> pd.DataFrame:
        """Run a query over the tables; return a data frame with the types of `Table.pandas`."""
        return frame_of(self._connection.sql(query).to_arrow_table())

    def latency(self, by: Sequence[str] = ("f", "label"), *, where: str = "type = 'ok'") -> Drawing:
        """Draw latency quantiles of operations, one row per group.

        `by` and `where` are SQL over the columns of `operations` and over `during` (`fault` or
        `no fault`).
        """
        return drawings.latency(self.sql, by, where)

    def availability(
        self, by: Sequence[str] = ("nemesis", "label"), *, where: str = "phase = 'chaos'"
    ) -> Drawing:
        """Draw the shares of reads and mutations that were answered, one row per group.

        `by` and `where` are SQL over the columns of `operations` and over `nemesis`, which is each
        nemesis that has an active fault, or `no fault`.
        """
        return drawings.availability(self.sql, by, where)

    def timeline(self, run: str) -> Drawing:
        """Draw one run over time: completed operations and faults.

        `run` is a value of the column `run`, or `NAME/ID`. Raises `UsageError` for an unknown run.
        """
        keys = self.table(MAIN).arrow().to_table(columns=["run"])["run"].to_pylist()
        matches = [key for key in keys if run in {key, key.partition("@")[0]}]
        require("run", () if matches else (run,), keys)
        ((key, history),) = self.only(runs=matches[:1]).histories()
        return drawings.timeline(history, key)

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Return a connection (`connection`, or a new one) in which every table is a view."""
        if connection is None:
            connection = module("duckdb").connect()
            assert connection is not None
            connection.execute("SET TimeZone = 'UTC'")
        for name in self.tables:
            connection.register(name, self.table(name).duckdb(connection))
        return connection


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The rows of some runs in one table, read on demand."""

    name: str
    _source: LakeTables
    _choice: Choice

    def __repr__(self) -> str:
        rows = counted(self._source.rows(self.name, self._choice), "row")
        return f"Table {self.name!r} of {self._source.place!r}: {rows}"

    @property
    def schema(self) -> pa.Schema:
        """The stored columns, which docs/lake-tables.md explains."""
        return self.arrow().schema

    def arrow(self) -> ds.Dataset:
        """Return the rows as an Arrow dataset: `.to_table(columns=, filter=)`, `.count_rows()`."""
        return self._source.dataset(self.name, self._choice)

    def pandas(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: ds.Expression | None = None,
        rows_max: int = ROWS_MAX,
    ) -> pd.DataFrame:
        """Read the rows into a data frame with nullable types. Integers with nulls stay integers.

        `columns` defaults to all columns except the long column `case`. `where` is an Arrow
        expression over stored columns, such as `pyarrow.compute.field("f") == "create"`. Raises
        `UsageError` for unknown columns, and for more than `rows_max` rows.
        """
        rows = (
            self._source.rows(self.name, self._choice)
            if where is None
            else self.arrow().count_rows(filter=where)
        )
        if rows > rows_max:
            raise UsageError(
                f"{self.name} has {counted(rows, 'row')} here, and rows_max is {rows_max}; choose "
                "fewer runs (`only`) or rows (`where`), raise rows_max, or ask in SQL (`sql`)"
            )
        duckdb = module("duckdb")
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        relation = self._source.relation(self.name, self._choice, connection, where)
        names = [name for name in columns or relation.columns if columns or name != "case"]
        missing = [name for name in names if name not in relation.columns]
        if missing:
            existing = ", ".join(relation.columns)
            raise UsageError(f"{self.name} has no column {missing[0]!r}; it has {existing}")
        return frame_of(relation.select(*map(duckdb.ColumnExpression, names)).to_arrow_table())

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a relation of `connection` (default: DuckDB's global connection)."""
        return self._source.relation(self.name, self._choice, connection or module("duckdb"))

    def spark(self, session: SparkSession) -> DataFrame:
        """Return the rows as a Spark data frame. All executors must reach the lake's files."""
        return self._source.spark(session, self.name, self._choice)
