"""Decides histories of sets that only grow, by the chain of their reads.

Nothing leaves such a set. So the results of reads, sorted by size, must form a chain in which each
result contains the previous one. This chain ranks the operations: first the additions of the
elements in the first result, then the reads with this result, then the additions of the elements
that are new in the second result, and so on. Last come the additions of elements that no read
shows. A legal order exists if and only if no operation was called after an operation of a higher
rank had returned.

If an element was added more than once, the addition that reported it as new came first. An addition
of unknown outcome happened only if a read shows its element.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from checkers.linearizability.direct.decision import Decision, Insertion

METHOD: Final = "the chain of what reads showed"


class Addition(NamedTuple):
    """One addition. `end` is infinite without a return. `is_new` is true if it reported a new
    element.
    """

    id: int
    call: float
    end: float
    element: Hashable
    is_new: bool = False


class Look(NamedTuple):
    """A read of all elements. `shown` is a set, or a tuple if the read showed an element twice."""

    id: int
    call: float
    end: float
    shown: frozenset[Hashable] | tuple[Hashable, ...]


class _Ranked(NamedTuple):
    """An operation with its rank. If `late`, it may also follow operations of higher ranks."""

    rank: int
    operation: Addition | Look
    late: bool = False


def decide_growing(additions: Sequence[Addition], looks: Sequence[Look]) -> Decision | None:
    """Return the verdict on a set that is empty at first; `None` if only a search can decide."""
    chain: list[Look] = []
    for look in sorted(looks, key=lambda look: len(look.shown)):
        if not isinstance(look.shown, frozenset):
            return _illegal([look], look.shown[:1])
        if not chain or chain[-1].shown != look.shown:
            if chain and not frozenset(chain[-1].shown) <= frozenset(look.shown):
                return _apart(chain[-1], look)
            chain.append(look)
    level: dict[Hashable, int] = {}
    for number, look in enumerate(chain, 1):
        level.update((element, number) for element in look.shown if element not in level)
    adders: dict[Hashable, list[Addition]] = {}
    for addition in additions:
        adders.setdefault(addition.element, []).append(addition)
    unexplained = find_thin_air(additions, chain)
    if unexplained is not None:
        return unexplained
    ranked = [_Ranked(2 * _level_of(look, chain), look) for look in looks]
    for element, element_adders in adders.items():
        placed = _ranked(element_adders, level.get(element, 0), 2 * len(chain) + 1)
        if isinstance(placed, Decision):
            return placed
        ranked += placed
    return _violation(ranked, chain, level) or _ordered(ranked)


def find_thin_air(additions: Iterable[Addition], looks: Iterable[Look]) -> Decision | None:
    """Find a read that shows an element whose additions were all called after the read returned.

    Removals are ignored.
    """
    called: dict[Hashable, float] = {}
    for addition in additions:
        called[addition.element] = min(addition.call, called.get(addition.element, math.inf))
    for look in sorted(looks, key=lambda look: look.end):
        unadded = [e for e in look.shown if called.get(e, math.inf) > look.end]
        if unadded:
            return _illegal([look], [_first(unadded)])
    return None


def _level_of(look: Look, chain: Sequence[Look]) -> int:
    low, high = 0, len(chain)
    while low < high:
        middle = (low + high) // 2
        if len(chain[middle].shown) < len(look.shown):
            low = middle + 1
        else:
            high = middle
    return low + 1


def _illegal(operations: Iterable[Addition | Look], elements: Iterable[Hashable]) -> Decision:
    core = tuple(sorted({operation.id for operation in operations}))
    return Decision(method=METHOD, core=core, elements=tuple(elements))


def _apart(one: Look, other: Look) -> Decision:
    """Return the contradiction between two reads that each lack an element of the other."""
    first, second = frozenset(one.shown), frozenset(other.shown)
    return _illegal([one, other], [_first(first - second), _first(second - first)])


def _first(elements: Iterable[Hashable]) -> Hashable:
    return min(elements, key=repr)


def _ranked(additions: list[Addition], level: int, last: int) -> list[_Ranked] | Decision:
    """Rank the additions of one element; leave out additions that need not have happened.

    Returns a contradiction if two additions report the element as new.
    """
    if not level:
        additions = [addition for addition in additions if addition.end < math.inf]
    if not additions:
        return []
    news = [addition for addition in additions if addition.is_new]
    if len(news) > 1:
        return _illegal(news[:2], [news[0].element])
    first = news[0] if news else min(additions, key=lambda addition: addition.call)
    rank = 2 * level - 1 if level else last
    others = [o for o in additions if o is not first and o.end < math.inf]
    return [_Ranked(rank, first), *(_Ranked(rank, other, late=True) for other in others)]


def _violation(
    ranked: Iterable[_Ranked], chain: Sequence[Look], level: dict[Hashable, int]
) -> Decision | None:
    first_end, first, pending = math.inf, None, list[_Ranked]()
    rank_before = -1
    for each in sorted(ranked, key=lambda each: -each.rank):
        if each.rank != rank_before:
            for later in pending:
                if later.operation.end < first_end:
                    first_end, first = later.operation.end, later.operation
            pending, rank_before = [], each.rank
        pending.append(each)
        early = each.operation
        if each.late or early.call <= first_end:
            continue
        assert first is not None, "a finite `first_end` is the end of `first`"
        if isinstance(early, Look):
            if isinstance(first, Addition):
                return _illegal([early, first], [first.element])
            more = frozenset(first.shown) - frozenset(early.shown)
            return _illegal([early, first], [_first(more)])
        # `early` proves something only if it reported its element as new. Otherwise, another
        # addition of the element may have come first.
        core = [early, first] if early.is_new else [first]
        if isinstance(first, Look):
            return _illegal(core, [early.element])
        # The read at the level of `early` shows its element, and lacks the element of `first`.
        core.append(chain[level[early.element] - 1])
        return _illegal(core, [early.element, first.element])
    return None


def _ordered(ranked: Iterable[_Ranked]) -> Decision | None:
    fixed = sorted(
        (each for each in ranked if not each.late),
        key=lambda each: (each.rank, each.operation.call),
    )
    insertion = Insertion(
        [each.operation.id for each in fixed],
        [each.operation.call for each in fixed],
        [each.operation.end for each in fixed],
    )
    # A repeated addition of an element is legal anywhere after the element's first addition.
    placed = {
        each.operation.element: at
        for at, each in enumerate(fixed, 1)
        if isinstance(each.operation, Addition)
    }
    late = [each.operation for each in ranked if each.late]
    for other in sorted(late, key=lambda other: other.call):
        assert isinstance(other, Addition), "no read is late"
        gap = max(insertion.low(other.call), placed[other.element])
        if not insertion.put(other.id, other.end, gap):
            return None
    return Decision(method=METHOD, order=insertion.order())
