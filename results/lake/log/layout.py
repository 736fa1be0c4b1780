"""Chooses encodings, compression and statistics of Parquet columns that make small files.

Strings repeat within a file, so they get dictionaries. Most numbers rarely repeat, so a dictionary
would make them larger. Positions increase by small steps, so they get delta encoding. Spark and
DuckDB read both encodings.

Footers have the minimum and maximum of columns by which engines filter: runs, positions, times,
kinds. No query filters by values or long texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

LEVEL: Final = 6
"""The zstd level for most columns. Level 1 makes repetitive data a tenth larger."""
LEVEL_QUICK: Final = 1
"""The zstd level for columns for which a higher level takes at least twice the time.

A higher level would not shrink times and ids, and would shrink waits and answers by 3 to 7 %.
"""
LEVEL_NOTES: Final = 9
"""The zstd level for the column `value_rest`. Its snapshots of all nodes still compress quickly."""
_RISING: Final = frozenset({"index"})
_FEW: Final = frozenset(
    {
        *("number", "process", "lines", "key_range", "asked_partitions"),
        *("asked_replicas", "answer_term"),
        *("answer_schema_version", "answer_applied_schema_version", "answer_revision"),
        "answer_column_ids.list.element",
    }
)
"""Numeric columns with few distinct values in a file."""
_DISTINCT: Final = frozenset({"value_rest", "answer_rest"})
"""JSON columns whose values hardly ever repeat, but are similar."""
_IDS: Final = frozenset({"asked_nonce", "answer_table_id"})
"""Columns whose strings have similar lengths. Their encoding stores the lengths compactly."""
_QUICK: Final = frozenset(
    {
        *("invoke_ns", "latency_ns", "wait_ns", "left_ns"),
        *("error", "answer_rest", "answer_table_id"),
    }
)
_PAGE_BYTES: Final = 8 << 20
_PAGE_ROWS: Final = 1 << 20
"""Limits that make a page as large as a row group, because our readers read whole row groups."""
_VALUES: Final = ("asked_", "answer_", "value_")
_TEXTS: Final = frozenset(
    {"error", "outcome", "odd", "note", "case", "versions", "digest", "reason", "counterexample"}
)
"""Columns without statistics. No query filters by these, or by columns with a `_VALUES` prefix."""


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """Return the options of `pyarrow.parquet.ParquetWriter` for a table with this schema."""
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
    """Yield the path and type of each Parquet column that stores the table column `path`."""
    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind
