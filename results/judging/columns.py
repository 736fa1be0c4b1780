"""Buckets as columns: what a checker with `check_columns` is given, and rows as ops where needed.

Row groups end where keys do (`harness.store.keyed`), so that each can be read, judged and let go of
by itself. Texts that repeat (types, kinds of operation, keys, values) stay numbers of a dictionary;
nothing is made an object but the rows of keys that a checker wants to see closely.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.errors import HistoryError
from harness.ops import History
from harness.store.footer import first_line, open_sealed
from harness.store.keyed import key_slices
from harness.store.parquet import ops_of_table

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from results.facts.intervals import Ints

__all__ = ["Columns", "read_columns"]

TYPES: Final = ("invoke", "ok", "fail", "info")
_DICTIONARIES: Final = ("type", "f", "key", "value")
_READ: Final = ("index", "process", "type", "f", "key", "value")


@dataclasses.dataclass(frozen=True)
class Columns:
    """The rows of some keys, sorted by (key, index); see `checkers` for what the columns mean."""

    path: Path
    group: int
    keys: Sequence[str]  # JSON
    starts: Ints
    processes: Ints
    types: npt.NDArray[np.uint8]
    fs: Ints
    f_names: Sequence[str]
    values: Ints
    value_texts: Sequence[str]

    def operations(self) -> Ints:
        """How many operations each key has."""
        import numpy as np

        if not len(self.keys):
            return np.zeros(0, np.int64)
        found: Ints = np.add.reduceat(self.types == 0, self.starts[:-1], dtype=np.int64)
        return found

    def histories(self, numbers: Sequence[int]) -> Iterator[History]:
        """The histories of some keys, without the key in their values; raises `HistoryError`."""
        table: pa.Table | None = None
        for number in numbers:
            if table is None:
                with open_sealed(self.path) as file:
                    table = _read(self.path, file, self.group, None).drop_columns(["key"])
            begin, end = int(self.starts[number]), int(self.starts[number + 1])
            yield History(ops_of_table(self.path, table.slice(begin, end - begin)))


def read_columns(path: Path, begin: int, end: int) -> Iterator[Columns]:
    """The row groups `begin..end`, one by one; raises `HistoryError` for what is none of ours."""
    with open_sealed(path, memory_map=True, dictionaries=_DICTIONARIES) as file:
        for group in range(begin, end):
            yield _columns(path, group, _read(path, file, group, _READ))


def _read(path: Path, file: Any, group: int, columns: Sequence[str] | None) -> pa.Table:
    import pyarrow as pa

    try:
        names = None if columns is None else list(columns)
        return file.read_row_group(group, columns=names, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise HistoryError(f"{str(path)!r} is damaged: {first_line(error)}") from error


def _columns(path: Path, group: int, table: pa.Table) -> Columns:
    import numpy as np

    starts, sizes = key_slices(table)
    rows = int(sizes.sum())
    keys = table.column("key").take(starts).to_pylist() if len(starts) else []
    table = table.slice(0, rows)  # without those that have no key
    for name in ("index", "process", "type", "f", "value"):
        if table.column(name).null_count:
            raise HistoryError(f"{str(path)!r} holds a row that is not an op: its {name} is null")
    if len(set(keys)) != len(keys):
        raise HistoryError(f"{str(path)!r} is not a bucket: its rows are not sorted by key")
    rising = np.diff(table.column("index").to_numpy()) > 0
    rising[starts[1:] - 1] = True
    if not rising.all():
        raise HistoryError(f"{str(path)!r} is not a bucket: the rows of a key do not rise by index")
    kinds, kind_names = _numbers(table.column("type"))
    if any(name not in TYPES for name in kind_names):
        raise HistoryError(f"{str(path)!r} holds ops of the types {kind_names}")
    codes = np.array([TYPES.index(name) for name in kind_names], np.uint8)
    fs, f_names = _numbers(table.column("f"))
    values, value_texts = _numbers(table.column("value"))
    return Columns(
        path=path,
        group=group,
        keys=keys,
        starts=np.concatenate([starts, [rows]]).astype(np.int64),
        processes=table.column("process").to_numpy(),
        types=codes[kinds] if len(codes) else np.zeros(0, np.uint8),
        fs=fs,
        f_names=f_names,
        values=values,
        value_texts=value_texts,
    )


def _numbers(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    """A column of text as numbers of its distinct texts."""
    import numpy as np
    import pyarrow as pa

    if not len(column):
        return np.zeros(0, np.int64), []
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    return whole.indices.to_numpy().astype(np.int64), whole.dictionary.to_pylist()
