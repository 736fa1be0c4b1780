"""Computes, key by key, the pairs of register versions that the original Elle relates by real time.

Elle's relation has fewer pairs than the complete real-time relation and takes longer to compute. If
the work or the time reaches its limit, callers use the complete relation, which is also correct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from checkers.elle.infer.accesses import NOTHING, Accesses, Edges
from checkers.elle.infer.columns import NEVER, IntArray, LongArray

WALK_STEPS_MAX: Final = 4_000_000
DEADLINE_EVERY_RUNS: Final = 64


def never() -> bool:
    """Return false. This is the default of `deadline_passed`: a deadline that never passes."""
    return False


def walked_pairs(
    accesses: Accesses, keys: IntArray, deadline_passed: Callable[[], bool] = never
) -> Edges | None:
    """Return the pairs of versions that the original Elle relates by real time, for `keys`.

    In the reduced real-time graph, a path must lead from a transaction that left the first version
    to a transaction that found the second. No other transaction on this key may be in between.
    Returns `None` if the work is too much or the deadline has passed.
    """
    if not len(keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    columns = accesses.columns
    runs = int(columns.start.max(initial=0)) + 1
    ok = np.flatnonzero(columns.end != NEVER)
    # for run t: the first end among the transactions that began after run t
    hidden = np.full(runs + 1, NEVER, np.int64)
    late = ok[columns.start[ok] > 0]
    np.minimum.at(hidden, columns.start[late] - 1, columns.end[late])
    hidden = np.minimum.accumulate(hidden[::-1])[::-1]
    by_end = ok[np.argsort(columns.end[ok], kind="stable")]
    bounds = np.searchsorted(columns.end[by_end], np.arange(runs + 1))
    order = np.argsort(accesses.key, kind="stable")
    cuts = np.searchsorted(accesses.key[order], np.stack([keys, keys + 1]))
    sources: list[int] = []
    targets: list[int] = []
    work = WALK_STEPS_MAX
    for low, high in cuts.T.tolist():
        rows = np.sort(order[low:high])
        work = _walk_key(
            accesses, rows, (by_end, bounds, hidden), (sources, targets), work, deadline_passed
        )
        if work < 0:
            return None
    # Encode each pair as one number, because sorting pairs takes ten times as long.
    pairs = np.unique(np.array(sources, np.int64) * accesses.count + np.array(targets, np.int64))
    return pairs // accesses.count, pairs % accesses.count


def _walk_key(
    accesses: Accesses,
    rows: LongArray,
    order: tuple[LongArray, LongArray, LongArray],
    pairs: tuple[list[int], list[int]],
    work: int,
    deadline_passed: Callable[[], bool],
) -> int:
    """Add the pairs of versions of one key to `pairs`; return the remaining `work`.

    The result is negative if no work is left or the deadline has passed.
    """
    columns = accesses.columns
    by_end, bounds, hidden = order
    last, met = accesses.last[rows].tolist(), accesses.found[rows].tolist()
    txns = accesses.txn[rows]
    place = {txn: i for i, txn in enumerate(txns.tolist())}
    begin = columns.start[txns].tolist()
    at_run: dict[int, list[int]] = {}
    for i, run in enumerate(begin):
        at_run.setdefault(run, []).append(i)
    reached: dict[int, int] = {}
    buffer: list[tuple[int, int]] = []
    for run in range(min(begin), max(begin) + 1):
        buffer = [entry for entry in buffer if entry[0] >= run]
        if run:
            for txn in by_end[bounds[run - 1] : bounds[run]].tolist():
                mine = place.get(txn)
                bits = reached.get(int(columns.start[txn]), 0) if mine is None else 1 << mine
                if bits:
                    buffer.append((int(hidden[run - 1]), bits))
        work -= len(buffer) + 1
        if run % DEADLINE_EVERY_RUNS == 0 and deadline_passed():
            return -1
        if work < 0:
            return work
        mask = 0
        for _, bits in buffer:
            mask |= bits
        reached[run] = mask
        for i in at_run.get(run, ()):
            if met[i] < 0:
                continue
            work -= mask.bit_count()
            if work < 0:
                return work
            sources = {last[j] for j in _bits(mask)} - {NOTHING, met[i]}
            if sources:
                pairs[0].extend(sources)
                pairs[1].extend([met[i]] * len(sources))
    return work


def _bits(mask: int) -> list[int]:
    positions = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return positions
