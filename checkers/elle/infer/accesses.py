"""The register versions that each transaction read and left behind, and who wrote each version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.elle.findings import Refused
from checkers.elle.infer.columns import FAIL, NIL, OK, Columns, IntArray, LongArray

NOTHING: Final = -1

Edges = tuple[LongArray, LongArray]


@dataclass(slots=True)
class Accesses:
    """The accesses that other transactions can see, with one row per transaction and key.

    `read` is the version that the transaction's first access to the key read, and `wrote` the
    version of its last write. Without such a read or write, the column is `NOTHING`. Versions are
    numbered key by key, and `nil[key]` is the nil version of a key. Rows are sorted by transaction.
    """

    columns: Columns
    txn: IntArray
    key: IntArray
    read: LongArray
    wrote: LongArray
    version: LongArray  # per micro-operation: the version written or read; NOTHING if unknown
    nil: LongArray
    count: int  # the number of versions
    value: IntArray
    ok: npt.NDArray[np.bool_]

    @property
    def last(self) -> LongArray:
        """For each row, the version of the key after the transaction's last access to the key."""
        return np.where(self.wrote >= 0, self.wrote, self.read)

    @property
    def found(self) -> LongArray:
        """For each row, the version of the key that the transaction found.

        If the transaction wrote the key without reading it first, or after reading nil, this is the
        written version, as in the original Elle.
        """
        nil_read = (self.read < 0) | (self.read == self.nil[self.key])
        return np.where(nil_read & (self.wrote >= 0), self.wrote, self.read)

    def key_of(self, version: LongArray) -> IntArray:
        return (np.searchsorted(self.nil, version, side="right") - 1).astype(np.int32)


def accesses_of(columns: Columns, initial: Mapping[int, int]) -> Accesses:
    """Number the versions of all keys, and collect the accesses of each transaction.

    `initial` maps keys to their initial values, which count as nil.
    """
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


class Writers:
    """An index of all writes, to find the micro-operation that wrote a value to a key."""

    def __init__(self, columns: Columns) -> None:
        mops = np.flatnonzero(columns.write)
        self.span = np.int64(max(len(columns.values), 1))
        codes = columns.key[mops].astype(np.int64) * self.span + columns.value[mops]
        order = np.argsort(codes, kind="stable")
        self.codes, self.mops = codes[order], mops[order].astype(np.int32)
        again = np.flatnonzero(self.codes[1:] == self.codes[:-1])
        if len(again):
            first, second = self.mops[again[0]], self.mops[again[0] + 1]
            raise Refused(
                f"{columns.render_value(int(columns.value[first]))} is written to key "
                f"{columns.render_key(int(columns.key[first]))} twice, by op "
                f"{columns.index[columns.txn[first]]} and op {columns.index[columns.txn[second]]}; "
                "writes must be unique per key, or reads do not tell who wrote"
            )

    def find(self, key: IntArray, value: IntArray) -> IntArray:
        """Return for each i the micro-operation that wrote value[i] to key[i]; -1 if none did."""
        if not len(self.codes):
            return np.full(len(key), -1, np.int32)
        wanted = key.astype(np.int64) * self.span + value
        at = np.minimum(np.searchsorted(self.codes, wanted), len(self.codes) - 1)
        matches = (self.codes[at] == wanted) & (value != NIL)
        return np.where(matches, self.mops[at], -1).astype(np.int32)


def intermediate_writes(columns: Columns) -> npt.NDArray[np.bool_]:
    """Mark each write after which the same transaction wrote to the same key again."""
    writes, group = columns.by_key(np.flatnonzero(columns.write))
    followed = np.append(group[1:] == group[:-1], False)[: len(group)]
    intermediate = np.zeros(len(columns.txn), np.bool_)
    intermediate[writes[followed]] = True
    return intermediate


def collisions(identity: LongArray, rows: LongArray) -> list[IntArray]:
    """Return the groups of two or more `rows` with equal `identity`, sorted by first row."""
    order = np.argsort(identity, kind="stable")
    ordered = identity[order]
    same = ordered[1:] == ordered[:-1]
    order = order[np.append(False, same) | np.append(same, False)] if len(order) else order
    if not len(order):
        return []
    cuts = np.flatnonzero(np.diff(identity[order])) + 1
    groups = [np.sort(rows[group]).astype(np.int32) for group in np.split(order, cuts)]
    return sorted(groups, key=lambda group: int(group[0]))
