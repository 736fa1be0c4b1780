"""Rows as an Arrow table of given columns: how answers are kept that SQL did not give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa


def answer_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> pa.Table:
    """The columns (name and type: string, int64 or float64) of some rows, which may have more."""
    types = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64()}
    layout = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    return pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows], layout)
