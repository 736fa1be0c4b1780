"""Finds the nodes that surely have a vote at a moment, although the membership changes.

A fault that hits half of the voters destroys the quorum. If one of three masters is removed and
another is paused, the paused master is half of the remaining voters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from checkers.catalog.members import changes_of, entries_of, lists_of, may_follow, node_of
from harness.ops import History, Pair
from harness.permits import lossy_cuts, permits_of
from harness.vocabularies import fields_of
from harness.vocabularies.members import RemoveMaster

VOTER: Final = "VOTER"


class Voters:
    """The voters among the nodes that a target declared as its quorum.

    Without changes of membership, all declared nodes vote. Otherwise lists of masters show the
    voters. A removal after the last list counts if it may have taken effect. An addition after the
    last list does not count, since a new master gets its vote only later.
    """

    def __init__(self, history: History, declared: frozenset[str]) -> None:
        """Collect the lists and changes of membership; `declared` are all nodes that can vote."""
        self.declared = declared
        self._changes = changes_of(history)
        self._lists = list(_lists(history)) if self._changes else []
        self._answered = [_ended(pair) for pair in self._lists]
        self._cuts = lossy_cuts(history, permits_of(history)) if self._changes else []

    def surely(self, begin_ns: float, end_ns: float) -> frozenset[str]:
        """Return the nodes that surely have a vote from `begin_ns` until `end_ns`.

        If a power cut may have undone changes, these are the nodes that no change ever named.
        """
        changes = [pair for pair in self._changes if pair.invoke.time < end_ns]
        if not changes or not self.declared:
            return self.declared
        place = bisect_left(self._answered, begin_ns)
        last = self._lists[place - 1] if place else None
        since = last.invoke.index if last is not None else -1
        is_open = last is None or any(cut.time < end_ns for cut in self._cuts)
        named = {
            node_of(pair)
            for pair in changes
            if is_open or (pair.invoke.f == RemoveMaster.f and may_follow(pair, since))
        }
        return (self.declared if last is None else _voters(last)) - named


def _lists(history: History) -> Iterator[Pair]:
    newest = 0
    for pair in sorted(lists_of(history), key=_ended):
        term = fields_of(pair.completion).get("term")
        number = term if isinstance(term, int) else newest
        if number >= newest:
            newest = number
            yield pair


def _voters(listed: Pair) -> frozenset[str]:
    return frozenset(str(name) for name, _, kind in entries_of(listed) if kind == VOTER)


def _ended(pair: Pair) -> float:
    return -1 if pair.completion is None else pair.completion.time
