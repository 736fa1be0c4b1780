"""Derives the order of register versions from the assumptions of the caller.

A read of a register shows one value, not the register's history, so the order of a key's versions
comes from assumptions, here called *sources*. Each source adds edges between versions of a key. As
in the original Elle (jepsen-io/elle, `rw_register.clj` at ccdee6f), a source that makes the order
of any key cyclic is reported (`cyclic-versions`), and none of its edges are used:

| source            | edge                                                                   |
|-------------------|------------------------------------------------------------------------|
| initial-state     | nil, or a value without a writer, comes before every other             |
| transaction-order | values in the order in which their writers were committed              |
| wfr-keys          | the version that a transaction read comes before the one it wrote      |
| sequential-keys   | a process's last version of a key comes before its next version        |
| linearizable-keys | a completed transaction's version comes before any later transaction's |

**Real time in less than quadratic time.** `linearizable-keys` relates every pair of transactions on
a key that do not overlap, which is quadratic. So each version gets two times. `exit` is when the
first transaction that left the key at this version completed. `entry` is when the last transaction
that found the key at this version was invoked. Version v precedes w if and only if exit(v) <
entry(w). If two versions precede each other, they contradict each other (the condition on zones of
Gibbons and Korach, 1997). Otherwise, each version needs edges only to its nearest successors.

**The pairs of the original Elle.** Elle misses some real-time pairs. The difference matters only if
the history has a cycle. So the complete relation is used first, and Elle's exact relation
(`walked_pairs`) only for keys with a contradiction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from checkers.elle.infer.accesses import Accesses, Edges
from checkers.elle.infer.columns import NEVER, IntArray, LongArray
from checkers.elle.search.kernels import cyclic_components, expand
from checkers.elle.search.walk import never, walked_pairs

_SIDES: Final = ("left", "right")
NO_EDGES: Final = np.zeros(0, np.int64)


@dataclass(slots=True)
class RealTime:
    """The complete real-time relation between versions: v precedes w if exit[v] < entry[w]."""

    exit: LongArray
    entry: LongArray


def realtime_of(accesses: Accesses) -> RealTime:
    """Compute the runs in which each version was first left (`exit`) and last found (`entry`)."""
    columns = accesses.columns
    first_exit = np.full(accesses.count, NEVER, np.int64)
    rows = np.flatnonzero(accesses.ok & (accesses.last >= 0))
    np.minimum.at(first_exit, accesses.last[rows], columns.end[accesses.txn[rows]].astype(np.int64))
    entry = np.full(accesses.count, -1, np.int64)
    rows = np.flatnonzero(accesses.found >= 0)
    np.maximum.at(entry, accesses.found[rows], columns.start[accesses.txn[rows]].astype(np.int64))
    return RealTime(first_exit, entry)


def contradicting_keys(accesses: Accesses, time: RealTime) -> IntArray:
    """Return the keys with two versions that each precede the other in real time.

    A version's zone lies between its exit and its entry. A zone is forward if the exit comes first,
    and otherwise backward. Two versions contradict each other if both zones are forward and
    overlap, or if a backward zone lies within a forward zone.
    """
    key = accesses.key_of(np.arange(accesses.count))
    used = (time.exit != NEVER) & (time.entry >= 0)
    forward = np.flatnonzero(used & (time.exit < time.entry))
    order = forward[np.lexsort((time.exit[forward], key[forward]))]
    same = key[order[1:]] == key[order[:-1]]
    reach = _running_maximum(key[order], time.entry[order])
    bad = [key[order[1:]][same & (time.exit[order[1:]] < reach[:-1])]]
    backward = np.flatnonzero(used & (time.exit >= time.entry))
    # Backward zone b lies inside forward zone f if exit(f) < entry(b) and exit(b) < entry(f).
    stride = np.int64(max(int(time.exit[used].max(initial=0)), 1) + 2)
    starts = key[order].astype(np.int64) * stride + time.exit[order]
    at = np.searchsorted(starts, key[backward] * stride + time.entry[backward], side="left") - 1
    near = at >= 0
    near[near] = key[order[at[near]]] == key[backward[near]]
    inside = backward[near]
    bad.append(key[inside][time.exit[inside] < reach[at[near]]])
    return np.unique(np.concatenate(bad)).astype(np.int32)


def _running_maximum(group: IntArray, value: LongArray) -> LongArray:
    if not len(group):
        return value
    span = np.int64(int(value.max()) + 2)
    rank = group.astype(np.int64) * span
    highest: LongArray = np.maximum.accumulate(value + rank)
    return highest - rank


def nearest(
    accesses: Accesses,
    time: RealTime,
    targets: npt.NDArray[np.bool_],
    usable: npt.NDArray[np.bool_],
) -> Edges:
    """Return the real-time edges from each version to the nearest versions in `targets`.

    Edges to later targets follow from these edges. `usable` versions must belong to keys without a
    contradiction.
    """
    key = accesses.key_of(np.arange(accesses.count)).astype(np.int64)
    forward = time.exit < time.entry
    # Versions whose exit lies inside a forward zone are handled in the last step. For all other
    # versions, a forward zone's exit may replace its entry.
    entry = np.where(forward, time.exit, time.entry)
    stride = np.int64(max(int(time.entry.max(initial=0)), 1) + 2)
    goals = np.flatnonzero(targets & usable & (time.entry >= 0))
    goals = goals[np.argsort(key[goals] * stride + entry[goals], kind="stable")]
    at = key[goals] * stride + entry[goals]
    sources = np.flatnonzero(usable & (time.exit != NEVER) & (time.exit < stride - 1))
    low = np.searchsorted(at, key[sources] * stride + time.exit[sources], side="right")
    # A goal whose entry is after the exit of the first goal follows the first goal, so it needs no
    # edge.
    capped = np.minimum(time.exit[goals], stride - 1)
    hide = np.append(
        np.minimum.accumulate((key[goals] * stride + capped)[::-1])[::-1], np.iinfo(np.int64).max
    )
    limit = np.minimum(hide[low], key[sources] * stride + stride - 1)
    size = np.maximum(np.searchsorted(at, limit, side="right") - low, 0)
    source, target = np.repeat(sources, size), goals[expand(low, size)]
    # A backward zone that ends inside a forward zone precedes the forward zone.
    zones = np.flatnonzero(forward & targets & usable)
    zones = zones[np.argsort(key[zones] * stride + time.exit[zones], kind="stable")]
    back = sources[~forward[sources]]
    pairs = (
        np.searchsorted(
            key[zones] * stride + time.exit[zones], key[back] * stride + time.exit[back], "right"
        )
        - 1
    )
    near = pairs >= 0
    back, zone = back[near], zones[pairs[near]] if len(zones) else zones
    inside = (key[back] == key[zone]) & (time.exit[back] < time.entry[zone])
    return (
        np.concatenate([source, back[inside]]),
        np.concatenate([target, zone[inside]]),
    )


def initial_edges(accesses: Accesses, first: LongArray) -> Edges:
    """Return the edges from the initial versions (`first`) of each key to its other versions.

    Only versions that were accessed have edges.
    """
    met = np.unique(np.concatenate([accesses.read, accesses.wrote]))
    met = np.setdiff1d(met[met >= 0], first)
    key = accesses.key_of(first)
    order = np.argsort(key, kind="stable")
    low, high = (np.searchsorted(key[order], accesses.key_of(met), side) for side in _SIDES)
    size = high - low
    return first[order][expand(low, size)], np.repeat(met, size)


def wfr_edges(accesses: Accesses) -> Edges:
    """Return the edges from each version that a transaction read to the version that it wrote.

    If a transaction read its own later write, the edge leads from a version to itself. The original
    Elle keeps this edge too.
    """
    rows = accesses.ok & (accesses.read >= 0) & (accesses.wrote >= 0)
    rows &= accesses.read != accesses.nil[accesses.key]
    return accesses.read[rows], accesses.wrote[rows]


def sequential_edges(accesses: Accesses) -> Edges:
    """Return the edges from the version that a process left behind to the version it found next."""
    rows = np.flatnonzero(accesses.ok & (accesses.last >= 0))
    process = accesses.columns.process[accesses.txn[rows]].astype(np.int64)
    group = process * len(accesses.columns.keys) + accesses.key[rows]
    order = np.argsort(group, kind="stable")
    rows, group = rows[order], group[order]
    follows = group[1:] == group[:-1]
    source, target = accesses.last[rows[:-1]][follows], accesses.found[rows[1:]][follows]
    return source[source != target], target[source != target]


def commit_edges(accesses: Accesses, number: Mapping[int, int]) -> Edges:
    """Return the edges between successive written versions of a key in commit order.

    `number` maps the index of an invocation to its place in the commit order. The versions of
    transactions that `number` lacks come first.
    """
    rows = np.flatnonzero(accesses.wrote >= 0)
    index = accesses.columns.index[accesses.txn[rows]]
    least = min(number.values(), default=0) - 1
    place = np.array([number.get(i, least) for i in index.tolist()], np.int64)
    rows = rows[np.lexsort((accesses.txn[rows], place, accesses.key[rows]))]
    follows = accesses.key[rows[1:]] == accesses.key[rows[:-1]]
    return accesses.wrote[rows[:-1]][follows], accesses.wrote[rows[1:]][follows]


@dataclass(slots=True)
class VersionOrder:
    """The edges between versions, by source.

    `cycles` has the versions on each cycle that led to the rejection of a source, with the names of
    the sources that form the cycle. `time` is set if `linearizable-keys` was accepted. The edges of
    this source are in `edges` only for keys in `exact_keys`.
    """

    accesses: Accesses
    edges: list[tuple[str, Edges]]
    cycles: list[tuple[tuple[str, ...], LongArray]]
    time: RealTime | None = None
    exact_keys: IntArray | None = None

    def add(self, name: str, edges: Edges) -> bool:
        """Accept a source unless its `edges` make the order cyclic; return whether it was accepted.

        A rejected source is recorded in `cycles`.
        """
        bad = self._cycles_with(edges)
        if bad:
            self._refuse(name, bad)
        else:
            self.edges.append((name, edges))
        return not bad

    def _refuse(self, name: str, bad: Sequence[LongArray]) -> None:
        sources = (*(source for source, _ in self.edges), name)
        self.cycles += [(sources, members) for members in bad]

    def _cycles_with(self, *more: Edges) -> list[LongArray]:
        every = [edges for _, edges in self.edges] + list(more)
        source = np.concatenate([edges[0] for edges in every])
        target = np.concatenate([edges[1] for edges in every])
        return cyclic_components(self._levels(), source, target)

    def _levels(self) -> LongArray:
        """Guess each version's place in the order: the run in which it was first accessed."""
        accesses = self.accesses
        level = np.full(accesses.count, NEVER, np.int64)
        start = accesses.columns.start[accesses.txn].astype(np.int64)
        for version in (accesses.found, accesses.last):
            rows = version >= 0
            np.minimum.at(level, version[rows], start[rows])
        level += 1
        level[accesses.nil] = 0
        return level

    def add_realtime(self, deadline_passed: Callable[[], bool] = never) -> None:
        """Accept `linearizable-keys` unless the pairs that Elle derives make the order cyclic."""
        accesses = self.accesses
        time = realtime_of(accesses)
        keys = contradicting_keys(accesses, time)
        usable = np.ones(accesses.count, np.bool_)
        usable[np.isin(accesses.key_of(np.arange(accesses.count)), keys)] = False
        every = np.ones(accesses.count, np.bool_)
        bad = self._cycles_with(nearest(accesses, time, every, usable))
        suspects = np.unique(
            np.concatenate([keys, *(accesses.key_of(members[:1]) for members in bad)])
        ).astype(np.int32)
        walked = walked_pairs(accesses, suspects, deadline_passed)
        if walked is None:
            # Walking takes too much work, so use the complete relation, which is also correct.
            if len(suspects):
                self._refuse("linearizable-keys", bad + self._whole_keys(keys))
                return
            walked = (NO_EDGES, NO_EDGES)
        if self.add("linearizable-keys", walked):
            self.time, self.exact_keys = time, suspects

    def _whole_keys(self, keys: IntArray) -> list[LongArray]:
        nil = np.append(self.accesses.nil, self.accesses.count)
        return [np.arange(nil[key], nil[key + 1]) for key in keys.tolist()]

    def in_order(self) -> list[tuple[tuple[str, ...], LongArray]]:
        """Return the cycles by their number of sources, each with its versions by first access."""
        accesses = self.accesses
        first = np.full(accesses.count, len(accesses.version), np.int64)
        accessed = np.flatnonzero(accesses.version >= 0)
        np.minimum.at(first, accesses.version[accessed], accessed)
        ordered = [
            (sources, members[np.argsort(first[members], kind="stable")])
            for sources, members in self.cycles
        ]
        return sorted(ordered, key=lambda cycle: (len(cycle[0]), int(first[cycle[1][0]])))

    def nearest_written(self, written: npt.NDArray[np.bool_]) -> Edges:
        """Return real-time edges to the nearest versions in `written`.

        Keys in `exact_keys` are skipped, since `edges` already has their real-time edges.
        """
        if self.time is None:
            return NO_EDGES, NO_EDGES
        assert self.exact_keys is not None
        key = self.accesses.key_of(np.arange(self.accesses.count))
        return nearest(self.accesses, self.time, written, ~np.isin(key, self.exact_keys))
