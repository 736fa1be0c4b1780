"""Hints for a search: what the notification log proves about operations whose answers were lost.

The log shows which changes took effect, and in which order. If the log is right, a lost change that
it lacks may be left out, and every other lost change took effect between its neighbours in the log.
Another checker judges whether the log is right, so a hint never proves a violation. An order found
with hints is also an order without hints, since changes of unknown outcome may never take effect
and intervals only shrink. If no order is found, the search starts again without hints.
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
    """The operations narrowed by the final log; `None` if it is incomplete or contradicts them.

    Changes with one event in the log get its `place`, which `OrderedMetastore` uses. Rows of the
    log are as `harness.vocabularies.hms.Poll` answers them.
    """
    events = _whole_log(history)
    if events is None:
        return None
    times = Counter(row[6] for row in events if isinstance(row[6], str))
    # A change that took effect twice has no single place, but it did take effect, so it stays.
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
            # The log cannot tell lost drops of one table apart: all are kept, or none if the known
            # drops account for every drop event.
            if operation.input.f != "drop" or dropped[operation.input.name] <= 0:
                continue
        elif ident is not None and (operation.is_unknown or _is_ok(operation)):
            change = replace(operation, output=MetastoreOutput("ok"))
            places.append((ident, len(kept)))
        kept.append(change)
    return _between(kept, sorted(places))


def logged_twice(history: History) -> frozenset[str]:
    """The nonces with several events in the final log: their changes took effect twice."""
    times = Counter(row[6] for row in _whole_log(history) or () if isinstance(row[6], str))
    return frozenset(nonce for nonce, count in times.items() if count > 1)


def _whole_log(history: History) -> list[Any] | None:
    """The rows of the final log; `None` if it does not start with the first event."""
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
    """A change takes effect after changes with lower event ids and before those with higher ids."""
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
