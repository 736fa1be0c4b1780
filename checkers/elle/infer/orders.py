"""Searches for an order of versions that a consistency model allows.

Reads do not show the order of a register's versions, nor the order of list appends that no read
contains. A model holds if some order of all versions satisfies its `Rule`.

The search settles each pair of writers whose order follows from known edges, until nothing more
follows. It then tries to order the remaining pairs by time, next by a topological sort, and finally
pair by pair with backtracking. Its bounds are `TRANSACTIONS_MAX`, `PAIRS_MAX`, `STEPS_MAX` and the
time limit of the request. If it reaches a bound, it does not decide the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from checkers.elle.infer.columns import Columns
from checkers.elle.infer.known_order import (
    NO_WRITER,
    Facts,
    Pair,
    known_pairs,
    open_pairs,
    ordered,
    places,
)
from checkers.elle.rules import Rule

TRANSACTIONS_MAX: Final = 2_000
PAIRS_MAX: Final = 100_000
CORE_MAX: Final = 100
STEPS_MAX: Final = 3_000_000
DEADLINE_EVERY_STEPS: Final = 4096


class _Unsatisfiable(Exception):  # noqa: N818 - an answer, not an error
    pass


class _Bound(Exception):  # noqa: N818 - the end of a budget, not an error
    """The search reached its maximum number of steps or its deadline."""


def allowed(
    columns: Columns,
    rule: Rule,
    deadline_passed: Callable[[], bool],
    without: Collection[int] = (),
) -> bool | None:
    """Return whether some order of all versions satisfies `rule`; `None` if a bound was reached.

    The search leaves out the transactions in `without` and all reads of their writes. The caller
    has checked that every read has a known writer and that lists do not contradict each other.
    """
    if len(columns) > TRANSACTIONS_MAX:
        return None
    facts = Facts(columns, frozenset(without))
    if sum(len(free) * (len(free) - 1) // 2 for free in facts.free.values()) > PAIRS_MAX:
        return None
    try:
        return _Search(columns, facts, rule, deadline_passed).run()
    except _Unsatisfiable:
        return False
    except _Bound:
        return None


def contradiction(columns: Columns, rule: Rule, deadline_passed: Callable[[], bool]) -> list[int]:
    """Return a set of transactions for which no order of versions satisfies `rule`.

    The set is minimal, unless the search reached a bound. A history of more than `CORE_MAX`
    transactions is returned whole.
    """
    without: list[int] = []
    for txn in reversed(range(len(columns))) if len(columns) <= CORE_MAX else ():
        if allowed(columns, rule, deadline_passed, [*without, txn]) is False:
            without.append(txn)
    return [txn for txn in range(len(columns)) if txn not in without]


@dataclass(slots=True)
class _State:
    """The order of transactions and versions that a search has settled so far.

    All sets are bit masks. `after` and `before` have the nodes that follow and precede each node.
    `later` maps a key and the writer of a version to the writers of later versions. `earlier` has,
    for each transaction, the writers of versions before its own versions. `pairs` are the pairs of
    writers whose order is still open.
    """

    after: list[int]
    before: list[int]
    later: dict[tuple[int, int], int]
    earlier: list[int]
    pairs: list[Pair]

    def copy(self) -> _State:
        return _State([*self.after], [*self.before], {**self.later}, [*self.earlier], [*self.pairs])


class _Search:
    def __init__(
        self, columns: Columns, facts: Facts, rule: Rule, deadline_passed: Callable[[], bool]
    ) -> None:
        self._facts = facts
        self._kind = rule.kind
        self._deadline_passed = deadline_passed
        self._steps = STEPS_MAX
        self._start, self._end = columns.start.tolist(), columns.end.tolist()
        size = len(columns)
        split = rule.kind in ("si", "prefix")
        # If the rule distinguishes begin and commit, each transaction has two nodes.
        self._begin = [2 * txn if split else txn for txn in range(size)]
        self._commit = [2 * txn + 1 if split else txn for txn in range(size)]
        self._anti = rule.kind in ("si", "prefix", "serial")
        self._bans = rule.kind in ("atomic", "update", "causal", "parallel")
        nodes = 2 * size if split else size
        edges = [
            (self._commit[before] if before < size else before + nodes - size,
             self._begin[after] if after < size else after + nodes - size)
            for before, after in ordered(columns, facts.happened, rule.order)
        ]  # fmt: skip
        nodes = max([nodes, *(1 + max(edge) for edge in edges)])
        edges += [
            (self._commit[writer], self._begin[reader])
            for (_, writer), readers in facts.readers.items()
            for reader in readers
            if NO_WRITER != writer != reader and rule.kind != "writes"
        ]
        self._read_from = (
            _closure(nodes, edges)[1] if rule.kind == "causal" else _direct(nodes, edges)
        )
        edges += zip(self._begin, self._commit, strict=True) if split else ()
        edges += [edge for pair in known_pairs(facts) for edge in self._edges(*pair)]
        self._state = _State(*_closure(nodes, edges), *places(facts, size), list(open_pairs(facts)))

    def run(self) -> bool:
        self._require_invisible()
        saved = self._state.copy()
        with suppress(_Unsatisfiable, _Bound):
            # Pairs that are close in time come first, since they settle most distant pairs.
            for key, first, two in sorted(saved.pairs, key=self._distance):
                if self._end[first] < self._start[two]:
                    self._settle(key, first, two)
                elif self._end[two] < self._start[first]:
                    self._settle(key, two, first)
            return self._complete()
        self._state, self._steps = saved, STEPS_MAX
        return self._complete()

    def _distance(self, pair: Pair) -> int:
        return abs(int(self._start[pair[1]]) - int(self._start[pair[2]]))

    def _complete(self) -> bool:
        choices: list[tuple[_State, Pair]] = []
        while True:
            try:
                self._propagate()
                if not self._state.pairs or self._follows_one_sort():
                    return True
                key, first, two = self._state.pairs.pop()
                choices.append((self._state.copy(), (key, two, first)))
                self._spend(len(self._state.after))
                self._settle(key, first, two)
            except _Unsatisfiable:
                self._back(choices)

    def _back(self, choices: list[tuple[_State, Pair]]) -> None:
        while choices:
            self._state, pair = choices.pop()
            with suppress(_Unsatisfiable):
                self._settle(*pair)
                return
        raise _Unsatisfiable

    def _edges(self, key: int, one: int, two: int) -> list[tuple[int, int]]:
        target = self._commit[two]
        edges = []
        if one != NO_WRITER:
            edges.append(
                (self._commit[one], target if self._kind == "prefix" else self._begin[two])
            )
        if self._anti:
            readers = self._facts.readers.get((key, one), ())
            edges += [(self._begin[reader], target) for reader in readers if reader != two]
        return edges

    def _visible(self, reader: int) -> int:
        """Return the transactions that `reader` must see, as a bit mask."""
        if self._kind == "parallel":
            return self._state.before[reader]
        earlier = self._state.earlier[reader] if self._kind == "update" else 0
        return self._read_from[reader] | earlier

    def _require_invisible(self) -> None:
        """Raise `_Unsatisfiable` if a reader must see an overwrite of a version that it read."""
        for (key, writer), readers in self._facts.readers.items() if self._bans else ():
            later = self._state.later.get((key, writer), 0)
            self._spend(len(readers))
            if any(self._visible(reader) & later & ~(1 << reader) for reader in readers):
                raise _Unsatisfiable

    def _possible(self, key: int, one: int, two: int) -> bool:
        edges, after = self._edges(key, one, two), self._state.after
        readers = self._facts.readers.get((key, one), ()) if self._bans else ()
        self._spend(len(edges) + len(readers))
        return not any(after[target] >> source & 1 for source, target in edges) and not any(
            self._visible(reader) >> two & 1 for reader in readers if reader != two
        )

    def _settle(self, key: int, one: int, two: int) -> None:
        after, before = self._state.after, self._state.before
        for source, target in self._edges(key, one, two):
            if after[source] >> target & 1:
                continue
            if after[target] >> source & 1:
                raise _Unsatisfiable
            beyond, until = after[target] | 1 << target, before[source] | 1 << source
            self._spend(until.bit_count() + beyond.bit_count())
            for node in _bits(until):
                after[node] |= beyond
            for node in _bits(beyond):
                before[node] |= until
        self._state.later[key, one] |= 1 << two
        self._state.earlier[two] |= 1 << one

    def _spend(self, steps: int) -> None:
        before = self._steps // DEADLINE_EVERY_STEPS
        self._steps -= steps
        looks = self._steps // DEADLINE_EVERY_STEPS != before
        if self._steps < 0 or (looks and self._deadline_passed()):
            raise _Bound

    def _propagate(self) -> None:
        changed = True
        while changed:
            changed = False
            left = []
            for key, first, two in self._state.pairs:
                forward, back = self._possible(key, first, two), self._possible(key, two, first)
                if not forward and not back:
                    raise _Unsatisfiable
                if forward and back:
                    left.append((key, first, two))
                    continue
                self._settle(key, *((first, two) if forward else (two, first)))
                changed = True
            self._state.pairs = left
            self._require_invisible()

    def _follows_one_sort(self) -> bool:
        saved = self._state.copy()
        place = [before.bit_count() for before in saved.before]
        try:
            for key, *pair in saved.pairs:
                first, two = sorted(pair, key=lambda txn: (place[self._commit[txn]], txn))
                self._settle(key, first, two)
            self._require_invisible()
        except _Unsatisfiable:
            self._state = saved
            return False
        return True


def _direct(nodes: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    masks = [0] * nodes
    for source, target in edges:
        masks[target] |= 1 << source
    return masks


def _closure(nodes: int, edges: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the nodes after and the nodes before each node, as bit masks.

    Raises `_Unsatisfiable` if the edges form a cycle.
    """
    out: list[set[int]] = [set() for _ in range(nodes)]
    for source, target in edges:
        out[source].add(target)
    entering = [0] * nodes
    for targets in out:
        for target in targets:
            entering[target] += 1
    ready = [node for node in range(nodes) if not entering[node]]
    for node in ready:
        for target in out[node]:
            entering[target] -= 1
            if not entering[target]:
                ready.append(target)
    if len(ready) < nodes:
        raise _Unsatisfiable
    after, before = [0] * nodes, [0] * nodes
    for node in reversed(ready):
        for target in out[node]:
            after[node] |= after[target] | 1 << target
    for node in ready:
        for target in out[node]:
            before[target] |= before[node] | 1 << node
    return after, before


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
