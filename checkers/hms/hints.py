"""Derives hints for a search from the notification log, about changes whose answers were lost.

If the log is right, a lost change that is not in the log did not take effect, and may be left out.
Every other lost change took effect between its neighbours in the log. Hints only shrink intervals
and leave out changes of unknown outcome, so an order that was found with hints is also legal
without them. A hint never proves a violation: if no order is found, a search without hints follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from checkers.hms.model import MetastoreOperation, MetastoreOutput
from checkers.hms.reading import MetastoreHistory
from harness.ops import History
from harness.vocabularies import fields_of


def hinted(converted: MetastoreHistory, history: History) -> list[MetastoreOperation] | None:
    """Return the operations with hints from the final log.

    Returns `None` if the log is incomplete or contradicts the operations. A change with exactly one
    event in the log gets the event's position as its `place`, which `OrderedMetastore` uses.
    """
    events = _whole_log(history)
    if events is None:
        return None
    times = Counter(row[6] for row in events if isinstance(row[6], str))
    # A change that took effect twice has no single place in the log, so it is left out.
    idents = {row[6]: row[0] for row in events if times[row[6]] == 1}
    dropped = Counter(row[3] for row in events if row[4] is None)
    for operation in converted.operations:
        if operation.input.f == "drop" and _is_ok(operation):
            dropped[operation.input.name] -= 1
    kept: list[MetastoreOperation] = []
    places: list[tuple[int, int]] = []
    for operation in converted.operations:
        change = operation
        nonce = fields_of(converted.pairs[operation.id].invoke).get("nonce")
        ident = None if operation.input.f == "drop" else idents.get(str(nonce))
        if operation.is_unknown and ident is None and times[str(nonce)] < 2:
            # Events of drops have no nonce. If acknowledged drops account for every drop event of a
            # table, its lost drops did nothing.
            if operation.input.f != "drop" or dropped[operation.input.name] <= 0:
                continue
        elif ident is not None and (operation.is_unknown or _is_ok(operation)):
            change = replace(operation, output=MetastoreOutput("ok"))
            places.append((ident, len(kept)))
        kept.append(change)
    return _between(kept, sorted(places))


def logged_twice(history: History) -> frozenset[str]:
    """Return the nonces with several events in the final log. Their changes took effect twice."""
    times = Counter(row[6] for row in _whole_log(history) or () if isinstance(row[6], str))
    return frozenset(nonce for nonce, count in times.items() if count > 1)


def _whole_log(history: History) -> list[Any] | None:
    snapshot = next(iter([*history.facts("snapshot")][::-1]), None)
    rows = fields_of(snapshot).get("rows")
    events = rows.get("events") if isinstance(rows, dict) else None
    is_whole = isinstance(events, list) and [row[0] for row in events[:1]] == [1]
    return events if is_whole else None


def _is_ok(operation: MetastoreOperation) -> bool:
    answer = operation.said
    return isinstance(answer, MetastoreOutput) and answer.result == "ok"


def _between(
    operations: list[MetastoreOperation], places: Sequence[tuple[int, int]]
) -> list[MetastoreOperation] | None:
    """Shrink the intervals of changes by the rule that event ids order their effects.

    `places` has (event id, position in `operations`), sorted. Returns `None` if an interval becomes
    empty.
    """
    infinity = float("inf")
    latest = -infinity
    for number, (_, place) in enumerate(places, start=1):
        operation = operations[place]
        latest = max(latest, operation.call)
        numbered = operation.input._replace(place=number)
        operations[place] = replace(operation, call=latest, input=numbered)
    earliest = infinity
    for _, place in reversed(places):
        operation = operations[place]
        returned = infinity if operation.return_time is None else operation.return_time
        earliest = min(earliest, returned)
        if earliest < operation.call:
            return None
        if earliest < infinity:
            operations[place] = replace(operation, return_time=earliest)
    return operations
