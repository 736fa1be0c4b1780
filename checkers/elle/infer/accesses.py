"""The versions of registers, and the versions that each transaction first saw and left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.elle.infer.columns import FAIL, OK, Columns, IntArray, LongArray

NOTHING: Final = -1

Edges = tuple[LongArray, LongArray]


@dataclass(slots=True)
class Accesses:
    """Each transaction's accesses to each key, as other transactions see them; a row per pair.

    `read` is the version of the first access if this is a read (in `ok` transactions only), and
    `wrote` the version of the last write; both are `NOTHING` if there is none. Versions are
    numbered key by key, nil first: `nil[key]` is the nil version of a key. Rows are sorted by
    transaction.
    """

    columns: Columns
    txn: IntArray
    key: IntArray
    read: LongArray
    wrote: LongArray
    version: LongArray  # per micro-operation, NOTHING for reads without an answer
    nil: LongArray
    count: int  # of versions
    value: IntArray  # for each version; NIL for the nil version
    ok: npt.NDArray[np.bool_]

    @property
    def last(self) -> LongArray:
        """The version of the key that each transaction left behind."""
        return np.where(self.wrote >= 0, self.wrote, self.read)

    @property
    def found(self) -> LongArray:
        """The version that a transaction found; a nil read followed by a write counts as the write.

        This follows upstream, and it loses nothing: nil precedes every other version anyway.
        """
        nil_read = (self.read < 0) | (self.read == self.nil[self.key])
        return np.where(nil_read & (self.wrote >= 0), self.wrote, self.read)

    def key_of(self, version: LongArray) -> IntArray:
        return (np.searchsorted(self.nil, version, side="right") - 1).astype(np.int32)


def accesses_of(columns: Columns, initial: Mapping[int, int]) -> Accesses:
    """Number the versions; `initial` maps keys to initial values, which count as nil."""
    span = np.int64(len(columns.values) + 1)
    answered = columns.write | (columns.type[columns.txn] == OK)
    value = columns.value.copy()
    if initial:
        declared = np.full(len(columns.keys), -2, np.int32)
        declared[list(initial)] = list(initial.values())
        value[~columns.write & (value == declared[columns.key])] = -1
    codes = columns.key.astype(np.int64) * span + value + 1
    nils = np.arange(len(columns.keys), dtype=np.int64) * span
    distinct = np.unique(np.concatenate([nils, codes[answered]]))
    version = np.where(answered, np.searchsorted(distinct, codes), NOTHING)

    mops, group = columns.by_key(np.flatnonzero(columns.type[columns.txn] != FAIL))
    opens = np.append(True, group[1:] != group[:-1])[: len(group)]
    first = np.flatnonzero(opens)
    row = np.cumsum(opens) - 1
    head = mops[first]
    read = np.where(columns.write[head], NOTHING, version[head])
    wrote = np.full(len(first), NOTHING, np.int64)
    writes = columns.write[mops]
    wrote[row[writes]] = version[mops[writes]]
    txn = columns.txn[head]
    return Accesses(
        columns=columns,
        txn=txn,
        key=columns.key[head],
        read=read,
        wrote=wrote,
        version=version,
        nil=np.searchsorted(distinct, nils),
        count=len(distinct),
        value=(distinct % span - 1).astype(np.int32),
        ok=columns.type[txn] == OK,
    )
