"""Guesses an order of operations from the Raft terms in their answers, under the permit
`stale-read`.

The entries of a Raft log are sorted by term, and a leader sees no entries of later terms. So all
operations answered in one term precede all operations of the next term. Within a term, real time
orders the operations. Each operation therefore becomes an interval between two moments (term,
time), and the fast search over intervals can look for an order.

The guess is wrong if the target breaks the rules of Raft. So an order counts only if it also keeps
the given partial order.
"""

from __future__ import annotations

import bisect
import itertools
import math
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Final

from checkers.catalog.models.catalog import Catalog
from checkers.catalog.models.types import CatalogOperation
from checkers.catalog.passes import narrowed
from checkers.linearizability import Limits, Result, check_operations
from checkers.linearizability.partial import Fact, PartialOutcome, keeps, verified

STEPS_MAX: Final = 100_000
"""The maximum number of steps of this search. Most orders by terms need a few hundred."""
_LIMITS: Final = Limits(steps=STEPS_MAX)
_Moment = tuple[int, float]
"""A pair (term, time within the term)."""


def intervals_by_term(
    operations: Sequence[CatalogOperation],
    facts: Mapping[int, Fact],
    seen: Container[int] = (),
) -> list[CatalogOperation] | None:
    """Return the operations with intervals that respect the order of terms, sorted by their calls.

    `facts` has the terms of answers. `seen` has the ids of operations that may have taken effect in
    an earlier term than their answer's term. The id of each operation is its position in
    `operations`. The result is `None` if an interval is empty: then no order by terms respects real
    time.
    """
    terms = [facts.get(operation.id, Fact(None, None)).term for operation in operations]
    returned = sorted(
        (operation.return_time, term)
        for operation, term in zip(operations, terms, strict=True)
        if operation.return_time is not None and term is not None
    )
    ends = [end for end, _ in returned]
    highest = [*itertools.accumulate((term for _, term in returned), max, initial=0)]

    def call_of(operation: CatalogOperation, term: int | None) -> _Moment:
        if term is None or operation.id in seen:
            term = highest[bisect.bisect_left(ends, operation.call)]
        return term, operation.call

    calls = list(map(call_of, operations, terms))
    by_call = sorted(zip(operations, calls, strict=True), key=lambda each: each[0].call)
    times = [operation.call for operation, _ in by_call]
    # For each call in the order of calls: the earliest moment among this call and all later calls.
    earliest = [*itertools.accumulate((at for _, at in reversed(by_call)), min)][::-1]

    def end_of(operation: CatalogOperation, term: int | None) -> _Moment | None:
        if operation.return_time is None:
            return None
        if term is not None:
            return term, operation.return_time
        later = bisect.bisect_right(times, operation.return_time)
        if later == len(times):
            return highest[-1], math.inf
        term, when = earliest[later]
        return term, math.nextafter(when, -math.inf)

    ends_of = list(map(end_of, operations, terms))
    moments = sorted({at for at in (*calls, *ends_of) if at is not None})
    rank = {at: number for number, at in enumerate(moments)}
    moved = [
        replace(
            operation,
            id=position,
            call=rank[calls[position]],
            return_time=None if (end := ends_of[position]) is None else rank[end],
        )
        for position, operation in enumerate(operations)
    ]
    if any(each.return_time is not None and each.return_time < each.call for each in moved):
        return None
    return sorted(moved, key=lambda operation: operation.call)


def order_by_term(
    model: Catalog,
    operations: Sequence[CatalogOperation],
    facts: Mapping[int, Fact],
    before: Sequence[int],
    *,
    seen: Container[int] = (),
    end_s: float,
) -> PartialOutcome | None:
    """Return a legal order by terms that keeps the partial order `before`, or `None`.

    For `seen`, see `intervals_by_term`. `end_s` is the deadline on the monotonic clock.
    """
    moved = intervals_by_term(operations, facts, seen)
    if moved is None:
        return None
    shorter = narrowed(moved, is_over=lambda: time.monotonic() >= end_s)
    left_s = end_s - time.monotonic()
    if shorter is None or left_s <= 0:
        return None
    outcome = check_operations(model, shorter, timeout_s=left_s, limits=_LIMITS, explained=False)
    if outcome.result is not Result.OK or outcome.witness is None:
        return None
    order = tuple(itertools.chain.from_iterable(outcome.witness))
    if not keeps(order, before):
        return None
    return verified(model, operations, before, PartialOutcome(order, True, outcome.steps))
