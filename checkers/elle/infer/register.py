"""Infers dependencies between transactions over registers, from values and the order of versions.

A read shows which write it saw (`wr`), since writes are unique per key. The order of a key's
versions comes from the sources in `versions`. An edge from version v to version w gives `ww` from
the writer of v to the writer of w, and `rw` from the readers of v to the writer of w. Only a
transaction's first access to a key, if it is a read, and its last write to the key count.

This follows jepsen-io/elle, `rw_register.clj` at ccdee6f. Declared initial values are an addition.
So is `unknown_writes`, with which a write without an answer counts if it was read. With
`every_rule`, three rules that Elle has only for lists also apply: `future-read` exists, a key that
would need two initial values has a `garbage-read`, and a transaction's read of its own write causes
no `lost-update`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checkers.elle.findings import Inference
from checkers.elle.infer.accesses import (
    NOTHING,
    Accesses,
    Edges,
    Writers,
    accesses_of,
    collisions,
    intermediate_writes,
)
from checkers.elle.infer.columns import FAIL, NIL, OK, Columns, IntArray, LongArray
from checkers.elle.infer.register_cases import RegisterExplainer, RegisterTexts
from checkers.elle.infer.versions import (
    VersionOrder,
    commit_edges,
    initial_edges,
    sequential_edges,
    wfr_edges,
)
from checkers.elle.search.graph import RW, WR, WW, GraphBuilder
from checkers.elle.search.walk import never, walked_pairs

NOTES_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class RegisterOptions:
    """The assumptions about single registers that the caller makes; see `check_rw_register`."""

    linearizable_keys: bool = False
    sequential_keys: bool = False
    wfr_keys: bool = False
    transaction_order: Mapping[int, int] | None = None
    initial_values: Mapping[Any, Any] | None = None
    unknown_writes: bool = False
    every_rule: bool = False
    deadline_passed: Callable[[], bool] = never


def infer_register(columns: Columns, options: RegisterOptions) -> Inference:
    """Infer dependencies and anomalies from writes and reads of registers.

    Raises `Refused` if one value was written to a key twice.
    """
    writers = Writers(columns)
    initial = _initial(columns, options.initial_values)
    unwritten = _unwritten(columns, writers, initial)
    garbage = np.full(len(unwritten), options.initial_values is not None)
    accesses = accesses_of(columns, initial)
    first = accesses.nil
    if options.every_rule and options.initial_values is None:
        garbage = _several_initial(columns, unwritten)
        first = np.union1d(first, accesses.version[unwritten[~garbage]])
    order = _order(accesses, first, options)
    dependencies = _Dependencies(accesses, order, options)
    builder = dependencies.build(order.nearest_written(dependencies.written))
    texts = RegisterTexts(columns, writers, accesses, order)
    inference = Inference(
        builder,
        {},
        RegisterExplainer(accesses, order).explain,
        (WR, WW, RW),
        refine=dependencies.refine,
    )
    inference.add("cyclic-versions", np.arange(len(order.cycles), dtype=np.int32), texts.cyclic)
    _local_anomalies(inference, accesses, writers, texts, every_rule=options.every_rule)
    inference.add("garbage-read", unwritten[garbage], texts.garbage)
    inference.notes = tuple(texts.unwritten(int(mop)) for mop in unwritten[~garbage][:NOTES_MAX])
    return inference


def _initial(columns: Columns, declared: Mapping[Any, Any] | None) -> dict[int, int]:
    """Map the numbers of keys to the numbers of their declared initial values."""
    if not declared:
        return {}
    keys = {_hashable(name): number for number, name in enumerate(columns.keys)}
    values = {_hashable(name): number for number, name in enumerate(columns.values)}
    return {
        keys[_hashable(key)]: values[_hashable(value)]
        for key, value in declared.items()
        if _hashable(key) in keys and _hashable(value) in values
    }


def _hashable(name: Any) -> tuple[str, str]:
    return type(name).__name__, repr(name)


def _order(accesses: Accesses, first: LongArray, options: RegisterOptions) -> VersionOrder:
    order = VersionOrder(accesses, [], [])
    order.add("initial-state", initial_edges(accesses, first))
    if options.transaction_order is not None:
        order.add("transaction-order", commit_edges(accesses, options.transaction_order))
    if options.wfr_keys:
        order.add("wfr-keys", wfr_edges(accesses))
    if options.sequential_keys:
        order.add("sequential-keys", sequential_edges(accesses))
    if options.linearizable_keys:
        order.add_realtime(options.deadline_passed)
    return order


class _Dependencies:
    def __init__(self, accesses: Accesses, order: VersionOrder, options: RegisterOptions) -> None:
        self._accesses = accesses
        self._order = order
        self._deadline_passed = options.deadline_passed
        rows = np.flatnonzero((accesses.ok | options.unknown_writes) & (accesses.wrote >= 0))
        self._writer = np.full(accesses.count, NOTHING, np.int32)
        self._writer[accesses.wrote[rows]] = accesses.txn[rows]
        self.written = self._writer >= 0
        rows = np.flatnonzero(accesses.read >= 0)
        rows = rows[np.argsort(accesses.read[rows], kind="stable")]
        self._read, self._reader = accesses.read[rows], accesses.txn[rows]

    def build(self, realtime: Edges) -> GraphBuilder:
        """Build the edges between transactions from all edges between versions.

        `realtime` has the edges of `linearizable-keys` that the version order does not contain.
        """
        builder = GraphBuilder(self._accesses.columns)
        seen = self._writer[self._read]
        by_value = seen >= 0
        builder.add(seen[by_value], self._reader[by_value], WR)
        builder.add_loops(seen[by_value & (seen == self._reader)])
        every = [edges for _, edges in self._order.edges] + [realtime]
        source = np.concatenate([edges[0] for edges in every])
        target = np.concatenate([edges[1] for edges in every])
        useful = self._writer[target] >= 0
        source, target = source[useful], target[useful]
        both = self._writer[source] >= 0
        builder.add(self._writer[source[both]], self._writer[target[both]], WW)
        by_source = np.argsort(source, kind="stable")
        # As in the original Elle, a dependency of a transaction on itself makes the graph nonempty.
        builder.touched |= bool((both | np.isin(source, self._read)).any())
        builder.add_products(
            (self._read, self._reader),
            (source[by_source], self._writer[target[by_source]]),
            RW,
        )
        return builder

    def refine(self, txns: IntArray) -> GraphBuilder | None:
        """Rebuild the graph with exactly the real-time pairs of the original Elle.

        Only the keys that `txns` accessed get these pairs. Returns `None` if nothing changes, or if
        the pairs take too much work. The complete real-time relation, which the graph then keeps,
        is also correct.
        """
        order = self._order
        if order.time is None or not len(txns):
            return None
        assert order.exact_keys is not None
        among = np.isin(self._accesses.txn, txns)
        keys = np.setdiff1d(np.unique(self._accesses.key[among]), order.exact_keys)
        walked = walked_pairs(self._accesses, keys.astype(np.int32), self._deadline_passed)
        return None if walked is None else self.build(walked)


def _local_anomalies(
    inference: Inference,
    accesses: Accesses,
    writers: Writers,
    texts: RegisterTexts,
    *,
    every_rule: bool,
) -> None:
    columns = accesses.columns
    reads = np.flatnonzero(~columns.write & (columns.type[columns.txn] == OK)).astype(np.int32)
    writer = writers.find(columns.key[reads], columns.value[reads])
    written = writer >= 0
    failed = written.copy()
    failed[written] = columns.type[columns.txn[writer[written]]] == FAIL
    inference.add("G1a", reads[failed], texts.g1a)
    foreign = columns.txn[writer] != columns.txn[reads]
    inference.add("G1b", reads[written & intermediate_writes(columns)[writer] & foreign], texts.g1b)
    if every_rule:
        inference.add("future-read", reads[written & ~foreign & (writer > reads)], texts.future)

    mops, group = columns.by_key(np.flatnonzero(columns.type[columns.txn] == OK))
    follows = np.append(False, group[1:] == group[:-1])[: len(group)]
    version = accesses.version[mops]
    wrong = follows & ~columns.write[mops]
    wrong[1:] &= version[1:] != version[:-1]
    internal = np.sort(mops[wrong])
    _, earliest = np.unique(columns.txn[internal], return_index=True)
    inference.add("internal", internal[earliest].astype(np.int32), texts.internal)

    updates = _updates(accesses, mops, group)
    if every_rule:
        writer = writers.find(columns.key[updates], columns.value[updates])
        updates = updates[(writer < 0) | (columns.txn[writer] != columns.txn[updates])]
    members = collisions(accesses.version[updates], updates)
    inference.add(
        "lost-update",
        np.arange(len(members), dtype=np.int32),
        lambda number: texts.lost_update(members[number]),
    )


def _updates(accesses: Accesses, mops: LongArray, group: LongArray) -> LongArray:
    """Return each transaction's first read of each key that the transaction wrote afterwards."""
    columns = accesses.columns
    if not len(mops):
        return mops
    opens = np.append(True, group[1:] != group[:-1])
    row = np.cumsum(opens) - 1
    here = np.arange(len(mops))
    is_read = ~columns.write[mops]
    lead = np.full(int(row[-1]) + 1, len(mops), np.int64)
    np.minimum.at(lead, row[is_read], here[is_read])
    final = np.full(len(lead), -1, np.int64)
    np.maximum.at(final, row[~is_read], here[~is_read])
    reads: LongArray = mops[lead[final > lead]]
    return reads


def _several_initial(columns: Columns, unwritten: IntArray) -> npt.NDArray[np.bool_]:
    """Return for each read in `unwritten` whether its key would have several initial values.

    Nil counts as a value.
    """
    reads = np.flatnonzero(~columns.write & (columns.type[columns.txn] == OK))
    rows = np.concatenate([unwritten, reads[columns.value[reads] == NIL]]).astype(np.int64)
    pairs = np.unique(np.stack([columns.key[rows], columns.value[rows]]), axis=1)
    count = np.bincount(pairs[0], minlength=len(columns.keys))
    several: npt.NDArray[np.bool_] = count[columns.key[unwritten]] > 1
    return several


def _unwritten(columns: Columns, writers: Writers, initial: Mapping[int, int]) -> IntArray:
    """Return the reads of values that no transaction wrote, except declared initial values."""
    reads = np.flatnonzero(~columns.write & (columns.type[columns.txn] == OK)).astype(np.int32)
    declared = np.full(len(columns.keys), NIL, np.int32)
    declared[list(initial)] = list(initial.values())
    key, value = columns.key[reads], columns.value[reads]
    stray = (value != NIL) & (value != declared[key]) & (writers.find(key, value) < 0)
    return np.asarray(reads[stray], np.int32)
