"""Searches for a legal order that respects a given partial order instead of real time.

Real time orders operations by their intervals. The permits of a profile
(`checkers.catalog.permits`) remove single pairs from this order, so that intervals can no longer
represent it. So here each operation has a bit mask of its predecessors.

`partial_search` has the search itself. The result is exact within the bounds of steps and memory:
an order that it finds is replayed with the model, and if it finishes without finding an order, none
exists.

A *rollback* is a special operation, which represents a power cut: it returns to an earlier state of
the same order, and all changes after that state are lost. A rollback must not undo a change of
known outcome that was called after the rollback.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from checkers.linearizability.model import Model, Operation
from checkers.linearizability.partial_search import (
    HELD_BYTES_MAX,
    STEPS_MAX,
    Hint,
    RuledOut,
    Search,
    SpentError,
)


class Fact(NamedTuple):
    """The node that gave an answer, and the leader's term in the answer."""

    term: int | None
    node: str | None


@dataclass(frozen=True, slots=True)
class PartialOutcome:
    """The result of a search for a legal order under a partial order.

    `order` has the positions of operations, or is `None` if the search found no order. If
    `exhausted` is true and `order` is `None`, no order exists. `stuck` is the position of the
    operation that the search could not get past. For each rollback in the order, `back` has the
    number of operations before the state to which it returned.
    """

    order: tuple[int, ...] | None
    exhausted: bool
    steps: int
    stuck: int | None = None
    back: Mapping[int, int] = field(default_factory=dict)


Guess: TypeAlias = Callable[[Sequence[int]], PartialOutcome | None]
"""Looks for an order that keeps these predecessors; returns a verified outcome or `None`."""


def returned_before(operations: Sequence[Operation[Any, Any]]) -> list[int]:
    """Return for each operation the mask of the operations that had returned before its call."""
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
    held_bytes_max: int = HELD_BYTES_MAX,
    ruled_out: RuledOut | None = None,
    steps_max: int = STEPS_MAX,
) -> PartialOutcome:
    """Find a legal order of all operations that returned and of some of the others.

    `operations` are in the order of their calls.
    `before[i]` is the mask of the positions that must come before `i`. It has only operations that
    returned.
    `chains` are masks that partition the positions. Along each chain, the sets of predecessors only
    grow.
    `hints` give the likely order. A hint is the (term, index) of the log entry that an operation
    wrote or saw last.
    `end_s` is the deadline on the monotonic clock.
    `backs` is the mask of the operations that are rollbacks.
    `ruled_out` lets the search skip states that cannot lead to a legal order. It need not consider
    rollbacks.
    """
    search = Search(
        model,
        operations,
        before,
        chains,
        hints,
        end_s,
        backs,
        held_bytes_max,
        ruled_out,
        steps_max,
    )
    try:
        order = search.run()
    except SpentError:
        return PartialOutcome(None, False, search.steps, search.stuck)
    if order is None:
        return PartialOutcome(None, True, search.steps, search.stuck)
    outcome = PartialOutcome(order, True, search.steps, back=search.back)
    return verified(model, operations, before, outcome)


def keeps(order: Sequence[int], before: Sequence[int]) -> bool:
    """Whether each operation in an order comes after all of its predecessors."""
    done = 0
    for at in order:
        if before[at] & ~done:
            return False
        done |= 1 << at
    return True


def verified(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    before: Sequence[int],
    outcome: PartialOutcome,
) -> PartialOutcome:
    """Replay the order of `outcome`, and return it. Raises `AssertionError` for a wrong order."""
    assert outcome.order is not None
    order, done = outcome.order, 0
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
    guess: Guess | None = None,
    ruled_out: RuledOut | None = None,
    steps_max: int = STEPS_MAX,
) -> PartialOutcome:
    """Find a legal order in real time in which stale answers may miss changes of later terms.

    `facts` maps operation ids to nodes and terms. An operation without an entry is a rollback. If
    `is_stale` is true for an operation and its answer has a term, the operation need not follow
    operations that another node answered in a later term. `end_s` is on the monotonic clock. If
    there are no rollbacks, `guess` is tried first.
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
    guessed = None if guess is None or backs else guess(before)
    if guessed is not None:
        return guessed
    chains = list(classes.values())
    return find_partial_order(
        model,
        operations,
        before,
        chains,
        hints=hints,
        end_s=end_s,
        backs=backs,
        ruled_out=ruled_out,
        steps_max=steps_max,
    )


def _later(operations: Sequence[Operation[Any, Any]], facts: Mapping[int, Fact], fact: Fact) -> int:
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
    """Replay `found.order` and yield the state after each operation.

    Raises `AssertionError` for an illegal operation.
    """
    assert found.order is not None
    states = [model.init()]
    for number, at in enumerate(found.order):
        if at in found.back:
            lost = found.order[found.back[at] : number]
            assert found.back[at] <= number, "a rollback cannot reach a later state"
            assert not any(_is_kept(model, operations, at, other) for other in lost), "it is kept"
            states.append(states[found.back[at]])
        else:
            legal, after = model.step(states[-1], operations[at].input, operations[at].said)
            assert legal, f"operation {operations[at].id} is not legal at its place in the order"
            states.append(after)
        yield states[-1]


def _is_kept(
    model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]], back: int, at: int
) -> bool:
    """Whether operation `at` is a change of known outcome called after the rollback `back`.

    A rollback must not undo such a change.
    """
    operation = operations[at]
    looks = operation.is_unknown or model.read_only(operation.input, operation.output)
    return at > back and not looks
