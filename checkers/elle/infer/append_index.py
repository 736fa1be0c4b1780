"""The version orders of append-only lists, and the version that each read saw. See `append`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checkers.elle.infer.accesses import Writers
from checkers.elle.infer.columns import FAIL, OK, Columns, IntArray, LongArray
from checkers.elle.search.kernels import BoolArray, expand, slices_equal


@dataclass(slots=True)
class AppendIndex:
    """The version orders of all keys, and the version of each read and append.

    Versions are numbered over all keys. Key `k` has the versions first[k] to first[k+1] - 1, and
    first[k] is the empty list. `element` is the last element of each version, and `writer` is the
    append of this element. Both are -1 for an empty list.
    """

    columns: Columns
    writers: Writers
    first: LongArray
    element: IntArray
    writer: IntArray
    reads: IntArray  # the micro-operation of each read of an ok transaction
    straying: BoolArray
    contradicts: BoolArray
    # per read: the version that it returned; -1 if its last element is not in the order
    version: LongArray
    position: LongArray
    stray_row: LongArray  # per element in a stray read: the position of this read in `reads`
    stray_value: IntArray
    stray_writer: IntArray
    # per key: the position in `reads` of the read that defines the order, or -1
    longest: LongArray

    def key_of(self, version: LongArray) -> IntArray:
        return (np.searchsorted(self.first, version, side="right") - 1).astype(np.int32)


def _longest(columns: Columns, writers: Writers, reads: IntArray) -> LongArray:
    """Return for each key the position of its longest read; -1 if all reads are empty.

    If several longest reads differ, the read with the most elements from ok transactions is chosen.
    """
    key, length = columns.key[reads], columns.list_length[reads]
    best = np.zeros(len(columns.keys), np.int32)
    np.maximum.at(best, key, length)
    rows = np.flatnonzero((length == best[key]) & (length > 0))
    longest = np.full(len(columns.keys), -1, np.int64)
    longest[key[rows[::-1]]] = rows[::-1]
    start = columns.list_start[reads]
    same = slices_equal(columns.pool, start[rows], start[longest[key[rows]]], length[rows])
    contested = np.unique(key[rows[~same]])
    rivals = rows[np.isin(key[rows], contested)]
    ranked: dict[int, tuple[int, int]] = {}
    for row in rivals.tolist():
        mop = int(reads[row])
        seen = columns.read_list(mop)
        writer = writers.find(np.full(len(seen), key[row], np.int32), seen)
        written = writer >= 0
        sure = int((columns.type[columns.txn[writer[written]]] == OK).sum())
        rank = (len(seen) - sure, row)
        ranked[int(key[row])] = min(ranked.get(int(key[row]), rank), rank)
    for number, (_, row) in ranked.items():
        longest[number] = row
    return longest


def _repeated(key: IntArray, value: IntArray) -> LongArray:
    code = (key.astype(np.int64) << 32) | value.astype(np.int64)
    order = np.argsort(code, kind="stable")
    same = code[order][1:] == code[order][:-1]
    return np.sort(order[1:][same])


def index_appends(columns: Columns) -> AppendIndex:
    """Infer the version order of each key from the reads of lists.

    Raises `Refused` if one value was appended to a key twice.
    """
    writers = Writers(columns)
    keys = len(columns.keys)
    reads = np.flatnonzero(~columns.write & (columns.type[columns.txn] == OK)).astype(np.int32)
    key, length = columns.key[reads], columns.list_length[reads]
    start = columns.list_start[reads]
    longest = _longest(columns, writers, reads)
    read_keys = np.flatnonzero(longest >= 0)
    has = longest[key] >= 0
    base = np.zeros(len(reads), np.int64)
    base[has] = start[longest[key[has]]]
    contradicts = np.zeros(len(reads), np.bool_)
    contradicts[has] = ~slices_equal(columns.pool, start[has], base[has], length[has])

    # A key's order is its longest read without repetitions. A key without a read may have a single
    # append.
    size = np.zeros(keys, np.int64)
    size[read_keys] = length[longest[read_keys]]
    order_key = np.repeat(np.arange(keys, dtype=np.int32), size)
    order_value = columns.pool[expand(start[longest[read_keys]], size[read_keys])]
    repeated = _repeated(order_key, order_value)
    tainted = np.zeros(keys, np.bool_)
    tainted[order_key[repeated]] = True
    order_key, order_value = np.delete(order_key, repeated), np.delete(order_value, repeated)
    single = _single_appends(columns, longest)
    at = np.searchsorted(order_key, columns.key[single])
    order_key = np.insert(order_key, at, columns.key[single])
    order_value = np.insert(order_value, at, columns.value[single])

    size = np.bincount(order_key, minlength=keys)
    first = np.zeros(keys + 1, np.int64)
    np.cumsum(size + 1, out=first[1:])
    element = np.full(int(first[-1]), -1, np.int32)
    writer = np.full(int(first[-1]), -1, np.int32)
    rank = np.arange(len(order_key)) - np.searchsorted(order_key, order_key)
    place = first[order_key] + 1 + rank
    element[place] = order_value
    writer[place] = writers.find(order_key, order_value)
    position = np.full(len(columns.txn), -1, np.int64)
    written = place[writer[place] >= 0]
    position[writer[written]] = written

    straying = contradicts | tainted[key]
    rows = np.flatnonzero(straying)
    stray_row = np.repeat(rows, length[rows])
    stray_value = columns.pool[expand(start[rows], length[rows])]
    stray_writer = writers.find(key[stray_row], stray_value)
    version = first[key] + length
    last = np.flatnonzero(np.append(stray_row[1:] != stray_row[:-1], True)[: len(stray_row)])
    version[rows] = -1
    version[rows[length[rows] == 0]] = first[key[rows[length[rows] == 0]]]
    version[stray_row[last]] = _seen_version(
        key[stray_row[last]], stray_value[last], first, element, place
    )
    return AppendIndex(
        columns, writers, first, element, writer, reads, straying, contradicts, version, position,
        stray_row, stray_value, stray_writer, longest,
    )  # fmt: skip


def _single_appends(columns: Columns, longest: LongArray) -> LongArray:
    """For each key with a single append and only empty reads, return this append.

    Appends of failed transactions do not count.
    """
    possible = np.flatnonzero(columns.write & (columns.type[columns.txn] != FAIL))
    alone = np.bincount(columns.key[possible], minlength=len(columns.keys)) == 1
    wanted: LongArray = possible[(alone & (longest < 0))[columns.key[possible]]]
    return wanted[np.argsort(columns.key[wanted], kind="stable")]


def _seen_version(
    key: IntArray, value: IntArray, first: LongArray, element: IntArray, place: LongArray
) -> LongArray:
    """Return for each i the version of key[i] that ends in value[i]; -1 if there is none."""
    if not len(place) or not len(key):
        return np.full(len(key), -1, np.int64)
    owner = (np.searchsorted(first, place, side="right") - 1).astype(np.int64)
    codes = (owner << 32) | element[place].astype(np.int64)
    order = np.argsort(codes, kind="stable")
    wanted = (key.astype(np.int64) << 32) | value.astype(np.int64)
    at = np.minimum(np.searchsorted(codes[order], wanted), len(codes) - 1)
    match = order[at]
    return np.where(codes[match] == wanted, place[match], -1)
