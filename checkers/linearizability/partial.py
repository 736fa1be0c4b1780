"""Search for a legal order that respects a given partial order, where no clock orders everything.

Real time orders operations by intervals, and the other searches rely on that. The permits of a
profile (`checkers.catalog.permits`) take single pairs out of that order, and the rest is not an
order of intervals any more. So here each operation has a bit mask of its predecessors; all else is
as in `search`: depth first, with a memory of visited configurations, and an operation that only
looks is taken as soon as it can be, since that loses nothing.

`partial_search` looks for it. Exact within its bounds of steps and memory: an order that was found
has been walked along once more, with a model of its own; and where the search ended without one,
there is none.

A *fall back* is an operation of its own kind: it takes the state back to an earlier one of the same
order, and all after that is lost, but for known changes that were called after it: of these none
is. Where some may come yet, it is remembered as well which states they may go back to.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from checkers.linearizability.model import Model, Operation
from checkers.linearizability.partial_search import (
    HELD_BYTES_MAX,
    STEPS_MAX,
    Hint,
    Search,
    SpentError,
)


class Fact(NamedTuple):
    """The leader's term and the node of an answer."""

    term: int | None
    node: str | None


@dataclass(frozen=True, slots=True)
class PartialOutcome:
    """Positions in a legal order, or `None`; `exhausted` says that there is none at all.

    `stuck` is the position of the operation that the search got no further than. `back` says of
    each fall back in the order after how many of its operations the state was that it took up.
    """

    order: tuple[int, ...] | None
    exhausted: bool
    steps: int
    stuck: int | None = None
    back: Mapping[int, int] = field(default_factory=dict)


def returned_before(operations: Sequence[Operation[Any, Any]]) -> list[int]:
    """Per operation the mask of the operations that had returned at its call: real time."""
    returned = [(o.return_time, at) for at, o in enumerate(operations) if o.return_time is not None]
    returned.sort()
    returns = [when for when, _ in returned]
    prefixes = list(itertools.accumulate((1 << at for _, at in returned), operator.or_, initial=0))
    return [prefixes[bisect.bisect_left(returns, o.call)] for o in operations]


def find_partial_order(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    before: Sequence[int],
    chains: Sequence[int],
    *,
    hints: Mapping[int, Hint],
    end_s: float,
    backs: int = 0,
    steps_max: int = STEPS_MAX,
    held_bytes_max: int = HELD_BYTES_MAX,
) -> PartialOutcome:
    """A legal order of all operations that returned, and of any of the others.

    Operations are in the order of their calls. `before[i]` is the mask of positions that must come
    before `i`; it holds none that never returned. `chains` are masks of all positions, within each
    of which the predecessors only grow. `hints` sort the likely order (the lowest first): where a
    log was written in this order, (term, index) of its entry, or of the last one that an answer
    saw. `end_s` is on the monotonic clock. `backs` is the mask of the fall backs, which never
    returned.
    """
    search = Search(
        model, operations, before, chains, hints, end_s, steps_max, backs, held_bytes_max
    )
    try:
        order = search.run()
    except SpentError:
        return PartialOutcome(None, False, search.steps, search.stuck)
    if order is None:
        return PartialOutcome(None, True, search.steps, search.stuck)
    outcome = PartialOutcome(order, True, search.steps, back=search.back)
    done = 0
    for at, _ in zip(order, states_along(model, operations, outcome), strict=True):
        assert not before[at] & ~done, f"operation {operations[at].id} comes too early"
        done |= 1 << at
    missing = [o.id for at, o in enumerate(operations) if not o.is_unknown and not done >> at & 1]
    assert not missing, f"the order leaves out {missing}"
    return outcome


def find_relaxed_order(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    facts: Mapping[int, Fact],
    is_stale: Callable[[Operation[Any, Any]], bool],
    *,
    hints: Mapping[int, Hint],
    end_s: float,
) -> PartialOutcome:
    """An order in real time, in which stale answers may miss what later terms acknowledged.

    `facts` are by the id of an operation; one without a fact falls back. An answer that may be
    stale, and has a term, need not follow operations of later terms that another node answered.
    """
    strict = Fact(None, None)
    classes: dict[Fact, int] = {}
    free: dict[Fact, int] = {strict: 0}
    before = returned_before(operations)
    for at, operation in enumerate(operations):
        fact = facts.get(operation.id, strict) if is_stale(operation) else strict
        if fact.term is None:
            fact = strict
        classes[fact] = classes.get(fact, 0) | 1 << at
        if fact not in free:
            free[fact] = _later(operations, facts, fact)
        before[at] &= ~free[fact]
    backs = sum(1 << at for at, o in enumerate(operations) if o.id not in facts)
    chains = list(classes.values())
    return find_partial_order(
        model, operations, before, chains, hints=hints, end_s=end_s, backs=backs
    )


def _later(operations: Sequence[Operation[Any, Any]], facts: Mapping[int, Fact], fact: Fact) -> int:
    """The mask of operations that another node answered in a later term than that of `fact`."""
    mask = 0
    assert fact.term is not None, "only answers with a term may be stale"
    for at, operation in enumerate(operations):
        other = facts.get(operation.id, Fact(None, None))
        is_same = other.node is not None and other.node == fact.node
        if not is_same and other.term is not None and other.term > fact.term:
            mask |= 1 << at
    return mask


def states_along(
    model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]], found: PartialOutcome
) -> Iterator[Any]:
    """The state after each operation of an order, by the plainest means; `AssertionError` where
    one is not legal.
    """
    assert found.order is not None
    states = [model.init()]
    for number, at in enumerate(found.order):
        if at in found.back:
            lost = found.order[found.back[at] : number]
            assert found.back[at] <= number, "a fall back cannot reach a later state"
            assert not any(_is_kept(model, operations, at, other) for other in lost), "it is kept"
            states.append(states[found.back[at]])
        else:
            legal, after = model.step(states[-1], operations[at].input, operations[at].said)
            assert legal, f"operation {operations[at].id} is not legal where it comes"
            states.append(after)
        yield states[-1]


def _is_kept(
    model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]], back: int, at: int
) -> bool:
    """Whether the fall back `back` may not undo `at`: a known change that was called after it."""
    operation = operations[at]
    looks = operation.is_unknown or model.read_only(operation.input, operation.output)
    return at > back and not looks
