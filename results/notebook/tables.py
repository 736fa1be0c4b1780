"""A lake or a store as tables for notebooks and jobs: `results.open(URI)`.

    runs = results.open("s3://team/lake").only(label="nightly", day="2026-11-01..")
    runs.table("operations").pandas(["f", "latency_ns"])
    runs.duckdb().sql("SELECT f, count(*) FROM operations GROUP BY f")

`open` returns one state of a lake, with the same runs in every table, even if other processes
append and merge in the meantime. The runs of a store go into its lake first
(`results.lake.transfer.store_lake`). Files are read on demand, and files of other targets, labels,
days and runs never. A table that would not fit into memory is refused rather than cut: a mean over
half of the rows looks like any other.

`results.lake.tables.schema` (docs/lake-tables.md) describes the columns. Rows here have no `batch`:
rows that a lake does not count are left out already.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds

from harness.errors import UsageError, counted, listed
from harness.ops import History
from results.lake.log.files import LOG_FOLDER, MAIN
from results.lake.log.storage_errors import troubles
from results.lake.transfer.store_lake import lake_of_store
from results.notebook.choice import EVERYTHING, Choice, Filters, chosen
from results.notebook.lake_tables import LakeTables

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

ROWS_MAX: Final = 5_000_000
"""Rows in one pandas table: a few GB of memory."""


def open(  # noqa: A001 - `results.open` reads naturally
    uri: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> Runs:
    """The runs of a lake (a folder, or `s3://BUCKET/PREFIX`) as it is now, or of a store.

    A store's runs that cannot be read are named in a warning. `storage_options` override the
    environment's `AWS_*`. Raises `UsageError` where there is neither lake nor store, for another
    release's lake, or where a library is missing, and `InfrastructureError` where the storage does
    not answer.
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
    return Runs(LakeTables(update.uri, problems=problems), EVERYTHING)


@dataclass(frozen=True, eq=False, repr=False)
class Runs:
    """Some runs, as tables. Use `open`, and `only` for fewer of them."""

    _source: LakeTables
    _choice: Choice

    def __repr__(self) -> str:
        return f"<Runs of {self._source.uri!r}>"

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables; `report.NAME` are the results of `harness report`."""
        return self._source.tables()

    @property
    def problems(self) -> Mapping[str, str]:
        """Runs of a store that are left out, each with the reason."""
        return self._source.problems

    def only(self, **filters: Unpack[Filters]) -> Runs:
        """The runs that pass all filters: `runs`, `target`, `label` and `day`.

        `label=None` selects runs without a label; several values are alternatives. Raises
        `UsageError` for a key, target or label that does not exist.
        """
        choice = chosen(filters)
        self._source.check(choice)
        return Runs(self._source, self._choice.narrowed(choice))

    def table(self, name: str) -> Table:
        """A table; nothing of it is read yet. Raises `UsageError` that names those there are."""
        if name not in self.tables:
            raise UsageError(f"there is no table {name!r}; there are {', '.join(self.tables)}")
        return Table(name, self._source, self._choice)

    def histories(self) -> Iterator[tuple[str, History]]:
        """The key and the history of each run, by key: what checkers take.

        Raises `HistoryError` for rows that do not make the history that was recorded.
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

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyConnection:
        """A connection (a new one, or yours) in which every table is a view of its name."""
        if connection is None:
            connection = _module("duckdb").connect()
        assert connection is not None
        for name in self.tables:
            connection.register(name, self.table(name).arrow())
        return connection


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The rows of some runs in one table, read on demand."""

    name: str
    _source: LakeTables
    _choice: Choice

    def __repr__(self) -> str:
        return f"<Table {self.name!r} of {self._source.uri!r}>"

    @property
    def schema(self) -> pa.Schema:
        """Its columns; docs/lake-tables.md has what they mean."""
        return self.arrow().schema

    def arrow(self) -> ds.Dataset:
        """The rows as an Arrow dataset: `.to_table(columns=, filter=)`, `.count_rows()`."""
        return self._source.dataset(self.name, self._choice)

    def pandas(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: ds.Expression | None = None,
        rows_max: int = ROWS_MAX,
    ) -> pd.DataFrame:
        """The rows as a data frame, in types with missing values: integers stay integers.

        `where` is an Arrow expression, such as `pyarrow.compute.field("f") == "create"`. Raises
        `UsageError` for columns that are not there, and for more than `rows_max` rows.
        """
        pandas = _module("pandas")
        dataset = self.arrow()
        missing = [name for name in columns or () if name not in dataset.schema.names]
        if missing:
            existing = ", ".join(dataset.schema.names)
            raise UsageError(f"{self.name} has no column {missing[0]!r}; it has {existing}")
        rows = dataset.count_rows(filter=where)
        if rows > rows_max:
            raise UsageError(
                f"{self.name} has {rows} rows here, and rows_max is {rows_max}; choose fewer runs "
                "(`only`) or rows (`where`), raise rows_max, or ask in SQL (`duckdb`)"
            )
        types = {
            pa.string(): pandas.StringDtype(), pa.bool_(): pandas.BooleanDtype(),
            pa.int64(): pandas.Int64Dtype(), pa.int32(): pandas.Int32Dtype(),
            pa.float64(): pandas.Float64Dtype(),
        }  # fmt: skip
        kept = dataset.to_table(columns=None if columns is None else list(columns), filter=where)
        frame: pd.DataFrame = kept.to_pandas(types_mapper=types.get)
        return frame

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The rows as a relation of a connection (default: DuckDB's own), read on demand."""
        module = _module("duckdb")
        relation: duckdb.DuckDBPyRelation = (connection or module).from_arrow(self.arrow())
        return relation

    def spark(self, session: SparkSession) -> DataFrame:
        """The rows as a Spark data frame over the files, which all executors must reach."""
        return self._source.spark(session, self.name, self._choice)


def _module(name: str) -> Any:
    """A library of the extra `report`."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"this needs {name}: pip install 'catalog-harness[report]'") from error
