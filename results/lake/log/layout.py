"""Layout of columns in a Parquet file, which keeps runs small.

Texts repeat within a file and get dictionaries. Numbers rarely repeat: with a dictionary that
overflows, times and positions are a third larger than without one. Positions rise by small steps,
so they get delta encoding; Spark and DuckDB read both.

Footers have the minimum and maximum of columns that engines filter by: runs, positions, times,
kinds. No query filters by values and long texts, whose bounds would take half of a footer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

LEVEL: Final = 6
"""Of zstd: a tenth smaller than at 1 for dictionaries and what else repeats in small steps."""
LEVEL_QUICK: Final = 1
"""Where a higher one takes twice the time or more: of times and ids it finds nothing, of waits and
answers 3 to 7 % more."""
LEVEL_NOTES: Final = 9
"""Of `value_rest`, most of which are snapshots of all nodes: a level more costs no time there."""
_RISING: Final = frozenset({"index"})
_FEW: Final = frozenset(
    {
        *("number", "process", "lines", "key_range", "asked_partitions"),
        *("asked_replicas", "answer_term"),
        *("answer_schema_version", "answer_applied_schema_version", "answer_revision"),
        "answer_column_ids.list.element",
    }
)
"""Numbers of which a file has few different ones."""
_DISTINCT: Final = frozenset({"value_rest", "answer_rest"})
"""JSON that is hardly ever the same twice, but alike."""
_IDS: Final = frozenset({"asked_nonce", "answer_table_id"})
"""Texts of much the same length: their lengths apart take nothing, between them they do."""
_QUICK: Final = frozenset(
    {
        *("invoke_ns", "latency_ns", "wait_ns", "left_ns"),
        *("error", "answer_rest", "answer_table_id"),
    }
)
_PAGE_BYTES: Final = 8 << 20
_PAGE_ROWS: Final = 1 << 20
"""A page is compressed for itself; ours are as large as a row group, as everybody reads these."""
_VALUES: Final = ("asked_", "answer_", "value_")
_TEXTS: Final = frozenset(
    {"error", "outcome", "odd", "note", "case", "versions", "digest", "reason", "counterexample"}
)
"""With `_VALUES`: what engines do not skip row groups by."""


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Options for `pyarrow.parquet.ParquetWriter`."""
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    plain = _DISTINCT | _IDS
    return {
        "compression": "zstd",
        "use_dictionary": [
            path
            for path, kind in leaves
            if path in _FEW or (pa.types.is_string(kind) and path not in plain)
        ],
        "write_statistics": [
            path for path, _ in leaves if not path.startswith(_VALUES) and path not in _TEXTS
        ],
        "column_encoding": {
            path: "DELTA_BINARY_PACKED" if path in _RISING else "DELTA_LENGTH_BYTE_ARRAY"
            for path, _ in leaves
            if path in _RISING | _IDS
        },
        "compression_level": {path: _level(path) for path, _ in leaves},
        "data_page_size": _PAGE_BYTES,
        "max_rows_per_page": _PAGE_ROWS,
    }


def _level(path: str) -> int:
    if path == "value_rest":
        return LEVEL_NOTES
    return LEVEL_QUICK if path in _QUICK else LEVEL


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The columns of a Parquet file that a column of a table becomes."""
    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind
