"""Finds the order of versions that reads show, and the pairs of writers whose order is open.

The search in `orders` uses this module. It shares no code with the inference of anomalies, so that
a bug in one of the two does not affect the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Final

from checkers.elle.infer.columns import FAIL, NEVER, NIL, OK, Columns

NO_WRITER: Final = -1
"""The number in place of a writer for an initial version, which no transaction wrote."""

Pair = tuple[int, int, int]
"""A key, and two transactions that wrote the key."""


class Facts:
    """The writers and readers of versions, and the known part of the order of versions.

    For each key, `chain` has the writers in the order that reads show. `free` has the later
    writers, whose order is unknown. `readers` maps a key and the writer of a version to the
    version's readers. The writer of the initial version is `NO_WRITER`.
    """

    def __init__(self, columns: Columns, without: frozenset[int]) -> None:
        self.lists = columns.writes_are == "append"
        self.readers: dict[tuple[int, int], set[int]] = {}
        self.chain: dict[int, list[int]] = {}
        self.free: dict[int, list[int]] = {}
        self.happened: list[int] = []
        self._columns = columns
        self._writer: dict[tuple[int, int], int] = {}
        keys, values, txns = columns.key.tolist(), columns.value.tolist(), columns.txn.tolist()
        types = columns.type.tolist()
        writes = columns.write.tolist()
        for mop, write in enumerate(writes):
            if write:
                self._writer[keys[mop], values[mop]] = txns[mop]
        seen: set[int] = set()
        longest: dict[int, list[int]] = {}
        for mop, write in enumerate(writes):
            if write or types[txns[mop]] != OK or txns[mop] in without:
                continue
            key, reader = keys[mop], txns[mop]
            every = self._shown(mop, values[mop])
            visible = [value for value in every if self._writer.get((key, value)) not in without]
            if not self.lists and visible != every:
                continue
            if len(visible) > len(longest.get(key, ())):
                longest[key] = visible
            writers = [self._writer.get((key, value), NO_WRITER) for value in visible]
            seen.update(writers)
            last = next((w for w in reversed(writers) if w != reader), NO_WRITER)
            if self.lists or not writers or writers[-1] != reader:
                self.readers.setdefault((key, last), set()).add(reader)
        live = [
            (kind == OK or (kind != FAIL and txn in seen)) and txn not in without
            for txn, kind in enumerate(types)
        ]
        self.happened = [txn for txn, lives in enumerate(live) if lives]
        for key, visible in longest.items() if self.lists else ():
            order = [self._writer.get((key, value), NO_WRITER) for value in visible]
            kept = [writer for writer in order if writer != NO_WRITER and live[writer]]
            self.chain[key] = kept[:1] + [two for first, two in pairwise(kept) if first != two]
        for (key, _), txn in sorted(self._writer.items()):
            free = self.free.setdefault(key, [])
            if live[txn] and txn not in free and txn not in self.chain.get(key, ()):
                free.append(txn)

    def _shown(self, mop: int, value: int) -> list[int]:
        if self.lists:
            return list(self._columns.read_list(mop).tolist())
        return [] if value == NIL else [value]


def known_pairs(facts: Facts) -> Iterator[Pair]:
    """Yield each pair of writers whose versions are neighbours in the known order of a key."""
    for key, free in facts.free.items():
        chain = [NO_WRITER, *facts.chain.get(key, ())]
        yield from ((key, first, two) for first, two in pairwise(chain))
        yield from ((key, chain[-1], last) for last in free)


def open_pairs(facts: Facts) -> Iterator[Pair]:
    """Yield the pairs of writers of a key whose order is unknown."""
    for key, free in facts.free.items():
        yield from ((key, former, two) for former, two in combinations(free, 2))


def places(facts: Facts, size: int) -> tuple[dict[tuple[int, int], int], list[int]]:
    """Return the writers after each version, and the writers before each transaction's versions.

    Each set of writers is a bit mask. Only the known order counts.
    """
    later: dict[tuple[int, int], int] = {}
    earlier = [0] * size
    for key, free in facts.free.items():
        chain = facts.chain.get(key, [])
        later |= {(key, writer): 0 for writer in free}
        mask = sum(1 << writer for writer in free)
        for writer in reversed(chain):
            later[key, writer] = mask
            mask |= 1 << writer
        later[key, NO_WRITER] = mask
        mask = 0
        for writer in chain:
            earlier[writer] |= mask
            mask |= 1 << writer
        for writer in free:
            earlier[writer] |= mask
    return later, earlier


def ordered(columns: Columns, happened: list[int], order: str) -> Iterator[tuple[int, int]]:
    """Yield the pairs (before, after) of transactions by `order`: "process" or "realtime".

    For real time, numbers from the number of transactions on are *gates*. A gate marks the start of
    a run. Transactions that ended before the run have an edge to the gate, and the gate has edges
    to all later transactions.
    """
    start, end = columns.start.tolist(), columns.end.tolist()
    sure = [txn for txn in happened if end[txn] != NEVER]
    if order == "process":
        last: dict[int, int] = {}
        for txn in sorted(happened, key=lambda txn: int(start[txn])):
            process = int(columns.process[txn])
            if process in last:
                yield last[process], txn
            if end[txn] != NEVER:
                last[process] = txn
    if order == "realtime":
        runs = sorted({int(start[txn]) for txn in happened})
        gates = range(len(columns), len(columns) + len(runs))
        yield from pairwise(gates)
        yield from ((gates[bisect_left(runs, start[txn])], txn) for txn in happened)
        for txn in sure:
            following = bisect_right(runs, end[txn])
            if following < len(runs):
                yield txn, gates[following]


def shows_own_overwritten(columns: Columns) -> bool:
    """Return whether a register read shows a value that its own transaction had overwritten."""
    keys, values, txns = columns.key.tolist(), columns.value.tolist(), columns.txn.tolist()
    writes, types = columns.write.tolist(), columns.type.tolist()
    wrote: dict[tuple[int, int], list[int]] = {}
    for mop, write in enumerate(writes):
        versions = wrote.setdefault((txns[mop], keys[mop]), [])
        if write:
            versions.append(values[mop])
        elif types[txns[mop]] == OK and values[mop] in versions[:-1]:
            return True
    return False
