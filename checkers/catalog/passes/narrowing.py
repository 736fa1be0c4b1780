"""Shortens the intervals in which operations can have taken effect, without losing a legal order.

Answers that show versions of a table order its operations. If an operation must come before another
operation, it took effect before the other operation returned. So its return may be moved back to
the other operation's return. Calls may be moved forward in the same way. This helps most with
lists: without it, a search finds out late that a list no longer fits anywhere.

Proof that no legal order is lost: if a comes before b in a legal order, a took effect no later than
b's return, and b took effect no earlier than a's call. Intervals only shrink, so an order that
respects the narrowed intervals also respects the original intervals. A verdict does not depend on
this proof: every order is verified with the original intervals.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final, NamedTuple

from checkers.catalog.models.types import (
    CatalogOperation,
    ListTables,
    answer_of,
    is_plain_list,
    shown_by,
)
from checkers.catalog.passes.lifetimes import versions_of

ROUNDS_MAX: Final = 4
"""The maximum number of rounds. Another round helps if a new bound tightens other bounds."""
PAIRS_MAX: Final = 4_000_000
"""The maximum number of (list, table) pairs; if there are more, lists are not narrowed."""

END: Final = 1 << 60  # the rank of a delete


class _Life(NamedTuple):
    """The positions of the operations that show one table.

    `ranked` has (rank, position), sorted. `vague` has the positions without a rank. An operation
    that shows version v has rank 2v, and the operation that made version v has rank 2v - 1.
    """

    ranked: tuple[tuple[int, int], ...]
    vague: tuple[int, ...]
    members: tuple[int, ...]


def narrowed(
    operations: Sequence[CatalogOperation], *, is_over: Callable[[], bool] = lambda: False
) -> list[CatalogOperation] | None:
    """Return the operations with shorter intervals and the same legal orders.

    Returns `None` if an interval becomes empty, which proves that no legal order exists. If
    `is_over` becomes true, no further round begins.
    """
    lives = _lives(operations)
    listings: list[tuple[int, frozenset[str]]] = []
    for position, operation in enumerate(operations):
        answer = answer_of(operation)
        if isinstance(operation.input, ListTables) and answer and is_plain_list(answer):
            listings.append((position, frozenset(str(ident) for _, ident, _ in answer.listing)))
    bounds = _Bounds(operations)
    for _ in range(ROUNDS_MAX):
        if is_over():
            break
        bounds.changed = False
        for life in lives.values():
            bounds.order(life)
        if len(listings) * len(lives) <= PAIRS_MAX:
            bounds.leave_out(listings, lives)
        if not bounds.changed:
            break
    if any(call > end for call, end in zip(bounds.calls, bounds.ends, strict=True)):
        return None
    return [
        operation
        if operation.return_time is None
        or (call == operation.call and end == operation.return_time)
        else replace(operation, call=call, return_time=end)
        for operation, call, end in zip(operations, bounds.calls, bounds.ends, strict=True)
    ]


def _lives(operations: Sequence[CatalogOperation]) -> dict[str, _Life]:
    ranked: dict[str, list[tuple[int, int]]] = {}
    vague: dict[str, list[int]] = {}
    for position, operation in enumerate(operations):
        for table in shown_by(operation):
            rank = rank_of(table, operation)
            ranked.setdefault(table, [])
            if rank is None:
                vague.setdefault(table, []).append(position)
            else:
                ranked[table].append((rank, position))
    return {
        table: _Life(
            tuple(sorted(ranks)),
            tuple(vague.get(table, ())),
            (*(position for _, position in ranks), *vague.get(table, ())),
        )
        for table, ranks in ranked.items()
    }


def rank_of(table: str, operation: CatalogOperation) -> int | None:
    """Return the rank of an operation that shows `table`, or `None` without a version."""
    about = versions_of(table, operation)
    if about is None:
        return None
    if about.f == "die":
        return END
    return None if about.version is None else 2 * about.version - (about.f == "make")


class _Bounds:
    """The calls and returns of all operations, by position; they move as intervals shrink."""

    def __init__(self, operations: Sequence[CatalogOperation]) -> None:
        infinity = float("inf")
        self.calls = [operation.call for operation in operations]
        self.ends = [
            infinity if operation.return_time is None else operation.return_time
            for operation in operations
        ]
        self.changed = False

    def _not_before(self, position: int, call: float) -> None:
        if call > self.calls[position]:
            self.calls[position] = call
            self.changed = True

    def _not_after(self, position: int, end: float) -> None:
        if end < self.ends[position]:
            self.ends[position] = end
            self.changed = True

    def order(self, life: _Life) -> None:
        """Shrink intervals: operations of lower rank come before operations of higher rank."""
        ranked = life.ranked
        if not ranked:
            return
        # the latest call among lower ranks, and the latest call among ranks up to this one
        latest = pending = -float("inf")
        rank_now = ranked[0][0]
        for rank, position in ranked:
            if rank != rank_now:
                latest, rank_now = max(latest, pending), rank
            self._not_before(position, latest)
            pending = max(pending, self.calls[position])
        earliest = pending = float("inf")
        rank_now = ranked[-1][0]
        for rank, position in reversed(ranked):
            if rank != rank_now:
                earliest, rank_now = min(earliest, pending), rank
            self._not_after(position, earliest)
            pending = min(pending, self.ends[position])
        (first, create), (last, delete) = ranked[0], ranked[-1]
        for position in life.vague:
            if first == -1:
                self._not_before(position, self.calls[create])
                self._not_after(create, self.ends[position])
            if last == END:
                self._not_after(position, self.ends[delete])
                self._not_before(delete, self.calls[position])

    def leave_out(
        self, listings: Sequence[tuple[int, frozenset[str]]], lives: dict[str, _Life]
    ) -> None:
        """Shrink intervals: a list that lacks a table comes before its create or after its delete.

        Only lists that overlap the table's operations can change an interval.
        """
        calls, ends = self.calls, self.ends
        by_end = sorted(listings, key=lambda listing: ends[listing[0]])
        list_ends = [ends[listing] for listing, _ in by_end]
        # for each list in `by_end`: the first call of this list and of all lists that end later
        list_calls = [*accumulate([calls[listing] for listing, _ in reversed(by_end)], min)][::-1]
        for table, life in lives.items():
            member_calls = [calls[position] for position in life.members]
            member_ends = [ends[position] for position in life.members]
            earliest, latest = min(member_ends), max(member_calls)
            begin, over = -float("inf"), float("inf")
            first = bisect_right(list_ends, min(member_calls))
            for listing, listed in by_end[first : bisect_left(list_calls, max(member_ends))]:
                if table in listed:
                    continue
                # the table was shown before the list, so it was deleted before the list
                if earliest < calls[listing]:
                    self._not_before(listing, latest)
                    over = min(over, ends[listing])
                # the table was shown after the list, so it was created after the list
                elif ends[listing] < latest:
                    self._not_after(listing, earliest)
                    begin = max(begin, calls[listing])
            for position in life.members:
                self._not_before(position, begin)
                self._not_after(position, over)
