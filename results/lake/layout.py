"""How columns are laid out in a Parquet file, so that a run stays small.

Text repeats within a file and goes through dictionaries. Numbers hardly do: times and positions are
a third larger with a dictionary that overflows than without one. Positions rise by small steps,
which is what delta encoding is for; Spark and DuckDB read both.

Footers say the least and greatest value of what engines filter by: runs, positions, times, kinds.
Of values and long texts nobody asks for them, and they would be half of a footer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["parquet_options"]

LEVEL: Final = 3
"""Of zstd: operations are a tenth smaller than at 1, at the same cost; snapshots are not."""
_RISING: Final = frozenset({"index"})
_FEW: Final = frozenset({"number", "process", "lines", "answer_schema_version", "answer_term"})
"""Numbers of which a file has few different ones."""
_DISTINCT: Final = frozenset({"value_rest"})
"""Snapshots of the target's state, of a hundred thousand bytes each: no two are equal."""
_VALUES: Final = ("asked_", "answer_", "value_")
_TEXTS: Final = frozenset(
    {"error", "outcome", "odd", "note", "case", "versions", "digest", "reason", "counterexample"}
)
"""With `_VALUES`: what engines do not skip row groups by."""


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """What `pyarrow.parquet.ParquetWriter` is to be told."""
    import pyarrow as pa

    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    return {
        "compression": "zstd",
        "use_dictionary": [
            path
            for path, kind in leaves
            if path in _FEW or (pa.types.is_string(kind) and path not in _DISTINCT)
        ],
        "write_statistics": [
            path for path, _ in leaves if not path.startswith(_VALUES) and path not in _TEXTS
        ],
        "column_encoding": {path: "DELTA_BINARY_PACKED" for path, _ in leaves if path in _RISING},
        "compression_level": {path: 1 if path in _DISTINCT else LEVEL for path, _ in leaves},
    }


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The columns of a Parquet file that a column of a table becomes."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind
