"""Converts stored columns for analyses, to lists, categories and dates.

`relation_of` returns rows as a DuckDB relation, with lists, and with the paths of pages. `frame_of`
converts an Arrow table to a data frame. `Table.arrow` returns the stored columns, unconverted.
"""

from __future__ import annotations

import glob
import importlib
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from harness.errors import UsageError
from results.questions.engines import quoted

if TYPE_CHECKING:
    import duckdb
    import pandas as pd

JOINED: Final = frozenset({"nemeses", "asked", "bugs", "checkers", "active"})
"""Columns with names joined by `+`, which become lists. An empty text becomes an empty list."""
CATEGORIES: Final = frozenset(
    {"verdict", "type", "f", "workload", "environment", "target", "profile"}
)
PAGE: Final = "report.html"


def relation_of(
    rows: ds.Dataset, connection: duckdb.DuckDBPyConnection, *, folder: str, pages: str | None
) -> duckdb.DuckDBPyRelation:
    """Return the rows as a relation of a DuckDB connection, read on demand.

    `folder` is the SQL expression for a run's folder. `pages` is a pattern for the paths of the
    pages of all runs, or `None` if this machine has no pages. Both matter only if the rows have a
    column `folder`.
    """
    columns = {
        field.name: f"CASE WHEN \"{field.name}\" = '' THEN [] ELSE split(\"{field.name}\", '+') END"
        for field in rows.schema
        if field.name in JOINED and pa.types.is_string(field.type)
    }
    page = ""
    if "folder" in rows.schema.names:
        columns["folder"] = folder
        path = f"{folder} || '/{PAGE}'"
        files = f"SELECT file FROM glob({quoted(pages or '')})"  # noqa: S608 - it is quoted
        there = "false" if pages is None else f"{path} IN ({files})"
        page = f", CASE WHEN {there} THEN {path} END AS page"
    relation: duckdb.DuckDBPyRelation = connection.from_arrow(rows)
    if not columns:
        return relation
    replaced = ", ".join(f'{text} AS "{name}"' for name, text in columns.items())
    return relation.project(f"* REPLACE ({replaced}){page}")


def pages_below(folder: str) -> str:
    """Return the pattern for pages of runs in `folder/NAME/RUN`."""
    return f"{glob.escape(folder)}/*/*/{PAGE}"


def frame_of(rows: pa.Table) -> pd.DataFrame:
    """Convert rows to a data frame with nullable types. Integers with nulls stay integers."""
    pandas = module("pandas")
    lists = []
    for place, field in enumerate(rows.schema):
        column = rows.column(place)
        if field.name in CATEGORIES and pa.types.is_string(field.type):
            column = column.dictionary_encode()
        elif pa.types.is_decimal(field.type) and field.type.scale == 0:
            column = column.cast(pa.int64())
        elif pa.types.is_list(field.type):
            lists.append(place)
        rows = rows.set_column(place, field.name, column)
    types = {
        pa.string(): pandas.StringDtype(), pa.bool_(): pandas.BooleanDtype(),
        pa.int64(): pandas.Int64Dtype(), pa.int32(): pandas.Int32Dtype(),
        pa.float64(): pandas.Float64Dtype(),
    }  # fmt: skip
    frame: pd.DataFrame = rows.to_pandas(types_mapper=types.get, date_as_object=False)
    for place, values in enumerate(frame.dtypes):
        if isinstance(values, pandas.CategoricalDtype):
            ordered = frame.iloc[:, place].cat.reorder_categories(sorted(values.categories))
            frame.isetitem(place, ordered.array)
    for place in lists:
        frame.isetitem(place, pandas.Series(rows.column(place).to_pylist(), dtype=object))
    return frame


def module(name: str) -> Any:
    """Import a module that the extra `report` installs; raise `UsageError` if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"results.open needs {name}: pip install 'catalog-harness[report]'"
        ) from error
