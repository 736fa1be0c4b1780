"""Infers version orders, dependencies and anomalies without cycles, for lists that only grow.

A read of a list shows all earlier appends to its key. The longest read of a key is the key's
version order, and the length of any other read shows which version it saw. Reads that contradict
this order (*strays*) are compared element by element.

This follows jepsen-io/elle, `list_append.clj` at ccdee6f (Kingsbury, Alvaro, "Elle", VLDB 2020).
Appends that no read saw come after the last append that a read saw. A key with a single append
needs no read. Unlike Elle, this module has the anomaly `garbage-read` for an element that was never
appended.
"""

from __future__ import annotations

import numpy as np

from checkers.elle.findings import Inference
from checkers.elle.infer.accesses import collisions, intermediate_writes
from checkers.elle.infer.append_cases import AppendExplainer, AppendTexts
from checkers.elle.infer.append_index import AppendIndex, index_appends
from checkers.elle.infer.columns import FAIL, INFO, NIL, OK, Columns, IntArray, LongArray
from checkers.elle.search.graph import RW, WR, WW, GraphBuilder
from checkers.elle.search.kernels import BoolArray, slices_equal


def _edges(index: AppendIndex, builder: GraphBuilder) -> None:
    columns = index.columns
    live = columns.type != FAIL
    # An append replaced the version before it. An append that no read shows replaced the last known
    # version.
    appends = np.flatnonzero(columns.write & live[columns.txn])
    key = columns.key[appends]
    made = index.position[appends]
    replaced = np.where(made >= 0, made - 1, index.first[key + 1] - 1)
    txn = columns.txn[appends]
    before = index.writer[replaced]
    has_before = before >= 0
    has_before[has_before] = live[columns.txn[before[has_before]]]
    builder.add(columns.txn[before[has_before]], txn[has_before], WW)

    reads = columns.txn[index.reads]
    last = _last_writers(index)
    seen = last >= 0
    seen[seen] = live[columns.txn[last[seen]]]
    builder.add(columns.txn[last[seen]], reads[seen], WR)

    by_read = np.argsort(index.version, kind="stable")
    by_read = by_read[np.searchsorted(index.version[by_read], 0) :]
    by_append = np.argsort(replaced, kind="stable")
    builder.add_products(
        (index.version[by_read], reads[by_read]), (replaced[by_append], txn[by_append]), RW
    )


def _last_writers(index: AppendIndex) -> IntArray:
    last = np.full(len(index.reads), -1, np.int32)
    seen = index.version >= 0
    last[seen] = index.writer[index.version[seen]]
    # A stray may end in an element outside the version order, so strays have their own writers.
    ends = np.append(index.stray_row[1:] != index.stray_row[:-1], True)[: len(index.stray_row)]
    last[index.stray_row[ends]] = index.stray_writer[ends]
    return last


def infer_append(columns: Columns) -> Inference:
    """Infer dependencies and anomalies from appends to lists and reads of lists.

    Raises `Refused` if one value was appended to a key twice.
    """
    index = index_appends(columns)
    builder = GraphBuilder(columns)
    _edges(index, builder)
    inference = Inference(builder, {}, AppendExplainer(index).explain, (WW, WR, RW))
    texts = AppendTexts(index)
    last = _last_writers(index)
    inference.add("G1a", _g1a(index), texts.g1a)
    inference.add("G1b", _g1b(index, last), texts.g1b)
    inference.add("garbage-read", _garbage(index), texts.garbage)
    inference.add("duplicate-elements", _duplicates(index), texts.duplicate)
    inference.add("incompatible-order", _incompatible(index), texts.incompatible)
    inference.add("dirty-update", _dirty(index), texts.dirty)
    groups = _Groups(index)
    inference.add("internal", groups.internal(), texts.internal)
    inference.add("future-read", groups.future(), texts.future)
    collisions, members = groups.lost_updates()
    inference.add("lost-update", collisions, lambda i: texts.lost_update(members[i]))
    return inference


def _saw(index: AppendIndex, marked: BoolArray, stray_marked: BoolArray) -> IntArray:
    far = len(index.element)
    place = np.flatnonzero(marked)
    earliest = np.full(len(index.first) - 1, far, np.int64)
    np.minimum.at(earliest, index.key_of(place), place)
    key = index.columns.key[index.reads]
    hit = ~index.straying & (index.version >= earliest[key])
    hit[index.stray_row[stray_marked]] = True
    return np.flatnonzero(hit).astype(np.int32)


def _has_type(index: AppendIndex, writer: IntArray, wanted: int) -> BoolArray:
    hit = writer >= 0
    hit[hit] = index.columns.type[index.columns.txn[writer[hit]]] == wanted
    return hit


def _g1a(index: AppendIndex) -> IntArray:
    return _saw(
        index, _has_type(index, index.writer, FAIL), _has_type(index, index.stray_writer, FAIL)
    )


def _garbage(index: AppendIndex) -> IntArray:
    return _saw(index, (index.writer < 0) & (index.element >= 0), index.stray_writer < 0)


def _g1b(index: AppendIndex, last: IntArray) -> IntArray:
    columns = index.columns
    intermediate = intermediate_writes(columns)
    foreign = columns.txn[last] != columns.txn[index.reads]
    return np.flatnonzero((last >= 0) & intermediate[last] & foreign).astype(np.int32)


def _duplicates(index: AppendIndex) -> IntArray:
    if not len(index.stray_row):
        return np.zeros(0, np.int32)
    order = np.lexsort((index.stray_value, index.stray_row))
    row, value = index.stray_row[order], index.stray_value[order]
    twice = (row[1:] == row[:-1]) & (value[1:] == value[:-1])
    return np.unique(row[1:][twice]).astype(np.int32)


def _incompatible(index: AppendIndex) -> IntArray:
    rows = np.flatnonzero(index.contradicts)
    key = index.columns.key[index.reads[rows]]
    _, earliest = np.unique(key, return_index=True)
    return np.sort(rows[earliest]).astype(np.int32)


def _dirty(index: AppendIndex) -> IntArray:
    columns = index.columns
    written = np.flatnonzero(index.writer >= 0)
    types = columns.type[columns.txn[index.writer[written]]]
    written, types = written[types != INFO], types[types != INFO]
    key = index.key_of(written)
    dirty = (types[1:] == OK) & (types[:-1] == FAIL) & (key[1:] == key[:-1])
    return np.asarray(written[1:][dirty], np.int32)


class _Groups:
    def __init__(self, index: AppendIndex) -> None:
        self.index = index
        columns = index.columns
        mops, code = columns.by_key(np.flatnonzero(columns.type[columns.txn] == OK))
        opens = np.append(True, code[1:] != code[:-1])[: len(code)]
        lone = opens & np.append(opens[1:], True)[: len(code)]
        self.mops = mops[~lone]
        opens = opens[~lone]
        self.group = np.cumsum(opens) - 1
        self.first = np.flatnonzero(opens)[self.group] if len(opens) else np.zeros(0, np.int64)
        self.here = np.arange(len(self.mops))
        self.is_read = ~columns.write[self.mops]
        row = np.full(len(columns.txn), -1, np.int64)
        row[index.reads] = np.arange(len(index.reads))
        self.row = row[self.mops]

    def _previous_read(self) -> LongArray:
        if not len(self.mops):
            return np.zeros(0, np.int64)
        last = np.maximum.accumulate(np.where(self.is_read, self.here, -1))
        before = np.append(-1, last[:-1])
        return np.where(before >= self.first, before, -1)

    def internal(self) -> IntArray:
        columns, index = self.index.columns, self.index
        before = self._previous_read()
        wrong = np.zeros(len(self.mops), np.bool_)
        length = columns.list_length[self.mops]
        start = columns.list_start[self.mops]
        # All operations between a read and the previous read of its group are appends, so the
        # difference of their positions gives the number of these appends.
        reads = np.flatnonzero(self.is_read & (self.here > self.first))
        origin = np.where(before[reads] >= 0, before[reads], self.first[reads] - 1)
        appended = reads - origin - 1
        based = before[reads] >= 0
        wrong[reads] = length[reads] < appended
        full = reads[based]
        base = before[full]
        wrong[full] = length[full] != length[base] + appended[based]
        compare = full[~wrong[full]]
        base = before[compare]
        # A client may represent an empty list either as nil or as [], but must not use both.
        empty = length[compare] == 0
        unlike = columns.value[self.mops[compare]] != columns.value[self.mops[base]]
        wrong[compare[empty & unlike]] = True
        strays = index.straying[self.row[compare]] | index.straying[self.row[base]]
        compare, base = compare[strays], base[strays]
        wrong[compare] = ~slices_equal(columns.pool, start[compare], start[base], length[base])
        after = np.minimum.accumulate(np.where(self.is_read, self.here, len(self.mops))[::-1])[::-1]
        appends = np.flatnonzero(~self.is_read & (after < len(self.mops)))
        reader = after[appends]
        inside = self.group[reader] == self.group[appends]
        appends, reader = appends[inside], reader[inside]
        offset = length[reader] - (reader - appends)
        fits = offset >= 0
        appends, reader, offset = appends[fits], reader[fits], offset[fits]
        elements = columns.pool[start[reader] + offset]
        wrong[reader[elements != columns.value[self.mops[appends]]]] = True
        rows = np.sort(self.row[wrong])
        txn = columns.txn[index.reads[rows]]
        _, earliest = np.unique(txn, return_index=True)
        return rows[earliest].astype(np.int32)

    def future(self) -> IntArray:
        """Return each transaction's first append of an element that it had read before."""
        columns, index = self.index.columns, self.index
        rows = np.where(self.is_read, self.row, 0)
        plain = self.is_read
        if len(index.reads):
            plain = self.is_read & ~index.straying[rows]
            reach = np.where(plain, index.version[rows], -1)
        else:
            reach = np.full(len(self.mops), -1, np.int64)
        span = np.int64(len(index.element) + 1)
        farthest = np.maximum.accumulate(reach + 1 + self.group * span) - 1 - self.group * span
        made = index.position[self.mops]
        hit = ~self.is_read & (made >= 0) & (farthest >= made)
        appends = self.mops[hit].astype(np.int32)
        seen = index.stray_writer >= 0
        reader = index.reads[index.stray_row[seen]]
        writer = index.stray_writer[seen]
        early = (columns.txn[reader] == columns.txn[writer]) & (writer > reader)
        appends = np.union1d(appends, writer[early]).astype(np.int32)
        _, earliest = np.unique(columns.txn[appends], return_index=True)
        return appends[earliest]

    def lost_updates(self) -> tuple[IntArray, list[IntArray]]:
        """Find groups of transactions that read the same version and then each appended to the
        list.

        Returns an array with the numbers of the groups, and each group as rows of reads.
        """
        columns, index = self.index.columns, self.index
        before = self._previous_read()
        leads = np.flatnonzero(self.is_read & (before < 0))
        last = np.append(self.group[1:] != self.group[:-1], True)[: len(self.group)]
        writes_after = np.zeros(len(self.mops), np.bool_)
        final_append = np.maximum.accumulate(np.where(~self.is_read, self.here, -1))
        ends = np.flatnonzero(last)
        writes_after[leads] = final_append[ends[self.group[leads]]] > leads
        rows = self.row[leads[writes_after[leads]]]
        # As in the original Elle, a read of nil differs from a read of an empty list.
        nil = columns.value[index.reads[rows]] == NIL
        identity = 2 * index.version[rows] + nil
        lists: dict[tuple[int, bool, bytes], int] = {}
        for position in np.flatnonzero(index.straying[rows]).tolist():
            mop = int(index.reads[rows[position]])
            content = (int(columns.key[mop]), bool(nil[position]), columns.read_list(mop).tobytes())
            identity[position] = -1 - lists.setdefault(content, len(lists))
        members = collisions(identity, rows)
        return np.arange(len(members), dtype=np.int32), members
