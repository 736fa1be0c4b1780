"""Keys of operations: split from their values, and cut into ranges that are judged one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.errors import HistoryError
from results.facts.intervals import Ints

KEY_RANGE_OPS: Final = 1 << 15
"""Approximate number of operations in a range of keys: one or two seconds of work."""
_decode_pairs: Final = msgspec.json.Decoder(list[tuple[msgspec.Raw, msgspec.Raw]]).decode


def pairs_of(texts: Sequence[bytes]) -> list[tuple[bytes, bytes] | None]:
    """The two parts of each JSON text that is a list of two; `None` for other texts."""
    try:
        pairs = _decode_pairs(b"[" + b",".join(texts) + b"]")
        return [(bytes(first), bytes(other)) for first, other in pairs]
    except msgspec.ValidationError:
        if len(texts) == 1:
            return [None]
    middle = len(texts) // 2
    return pairs_of(texts[:middle]) + pairs_of(texts[middle:])


def cut_keys(
    keys: pa.Array, run: Ints, independent: Sequence[int]
) -> tuple[npt.NDArray[np.int32], Ints, dict[int, list[int]]]:
    """The range of each operation, their order by run and key, and operations by run and range.

    Only runs over `independent` keys are cut and sorted; other runs have the range -1. A range has
    whole keys. Raises `HistoryError` for an operation without a key.
    """
    rank = np.zeros(len(run), np.int64)
    key_range = np.full(len(run), -1, np.int32)
    operations: dict[int, list[int]] = {}
    for number in independent:
        rows = np.flatnonzero(run == number)
        coded = keys.take(pa.array(rows)).dictionary_encode()
        if coded.null_count:
            raise HistoryError("an operation has no key, in a run over independent keys")
        names = coded.dictionary.to_pylist()
        ranks = np.empty(len(names), np.int64)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        rank[rows] = ranks[coded.indices.to_numpy()]
        sizes = np.bincount(rank[rows])
        ranges = max(1, round(len(rows) / KEY_RANGE_OPS))
        _, of_key = np.unique(
            (np.cumsum(sizes) - sizes) * ranges // max(1, len(rows)), return_inverse=True
        )
        key_range[rows] = of_key[rank[rows]]
        operations[number] = np.bincount(key_range[rows]).tolist()
    return key_range, np.lexsort((rank, run)), operations
