"""The writers of values, for both lists and registers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from checkers.elle.findings import Refused
from checkers.elle.infer.columns import NIL, Columns, IntArray, LongArray


class Writers:
    """Finds the write of a value: (key, value) -> micro-operation, or -1."""

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
        """The micro-operations that wrote value[i] to key[i]; -1 for nil or without a writer."""
        if not len(self.codes):
            return np.full(len(key), -1, np.int32)
        wanted = key.astype(np.int64) * self.span + value
        at = np.minimum(np.searchsorted(self.codes, wanted), len(self.codes) - 1)
        matches = (self.codes[at] == wanted) & (value != NIL)
        return np.where(matches, self.mops[at], -1).astype(np.int32)


def intermediate_writes(columns: Columns) -> npt.NDArray[np.bool_]:
    """For each micro-operation, whether its transaction wrote to the same key again later."""
    writes, group = columns.by_key(np.flatnonzero(columns.write))
    followed = np.append(group[1:] == group[:-1], False)[: len(group)]
    intermediate = np.zeros(len(columns.txn), np.bool_)
    intermediate[writes[followed]] = True
    return intermediate


def collisions(identity: LongArray, rows: LongArray) -> list[IntArray]:
    """The groups of two or more rows with equal identity, ascending, sorted by first row."""
    order = np.argsort(identity, kind="stable")
    ordered = identity[order]
    same = ordered[1:] == ordered[:-1]
    order = order[np.append(False, same) | np.append(same, False)] if len(order) else order
    if not len(order):
        return []
    cuts = np.flatnonzero(np.diff(identity[order])) + 1
    groups = [np.sort(rows[group]).astype(np.int32) for group in np.split(order, cuts)]
    return sorted(groups, key=lambda group: int(group[0]))
