"""Decides histories of queues and bags, following Henzinger, Sezgin and Vafeiadis (CONCUR 2013).

The method requires that elements are unique: at most one operation puts each element in. A history
of a first-in-first-out queue has a legal order unless it has one of these violations:

* an element is taken out before any operation can have put it in, or more often than it was put in;
* the element that was put in later leaves first, or leaves although the earlier element never does;
* a dequeue finds nothing, although at each moment of this dequeue some element was surely in the
  queue.

In a bag, the order of elements does not matter. If no dequeue finds nothing, counting is enough,
even if an element was put in several times.

An addition of unknown outcome happened if its element was taken out. A dequeue of unknown outcome
may have taken an element that must have left the queue. If some dequeues found nothing, the method
tries only one assignment of elements to dequeues of unknown outcome, and leaves the other
assignments to the search.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from checkers.linearizability.direct.decision import Decision

METHOD: Final = "the violations of a queue"


class Move(NamedTuple):
    """One enqueue or dequeue; `end` is infinite if the operation never returned."""

    id: int
    call: float
    end: float
    element: Hashable = None


class Moves(NamedTuple):
    """All operations of a history, by kind.

    `puts` are enqueues. `takes` are dequeues that got an element. `empties` are dequeues that found
    nothing. `lost` are dequeues without an answer.
    """

    puts: list[Move]
    takes: list[Move]
    empties: list[Move]
    lost: list[Move]


@dataclass(slots=True)
class _Item:
    """One element, with the intervals in which it can have been put in and taken out."""

    put: Move
    take: Move | None
    put_call: float
    put_end: float
    take_call: float
    take_end: float
    # the moments at which the constructed order puts the element in and takes it out
    begins: float = 0
    ends: float = 0


def decide_fifo(moves: Moves) -> Decision | None:
    """Return the verdict on a first-in-first-out queue; `None` if only a search can decide.

    The queue is empty at first.
    """
    counted = _miscounted(moves)
    if counted is not None:
        return counted
    if not _unique(moves):
        return None
    items = _items(moves)
    core = _overtaken(items) or _left_behind(items, moves.lost) or _never_empty(items, moves)
    if core is not None:
        return core
    ordered = _in_order(items)
    if ordered is None:
        return None
    _schedule(ordered)
    return _merged(ordered, moves.empties)


def decide_bag(moves: Moves) -> Decision | None:
    """Return the verdict on a bag that is empty at first; `None` if only a search can decide."""
    counted = _miscounted(moves)
    if counted is not None:
        return counted
    if not moves.empties:
        return _counted_order(moves)
    if not _unique(moves):
        return None
    items = _items(moves)
    core = _never_empty(items, moves)
    if core is not None:
        return core
    # Assign the elements that were put in first to the unanswered dequeues that were called first.
    staying = sorted((i for i in items if i.take is None), key=lambda item: item.put_end)
    for item, lost in zip(staying, sorted(moves.lost, key=lambda move: move.call), strict=False):
        item.take, item.take_call = lost, max(item.put_call, lost.call)
    for item in items:
        item.begins, item.ends = item.put_end, item.take_call
        if item.begins >= item.ends:
            item.begins = item.ends = max(item.put_call, item.take_call)
    return _merged(items, moves.empties)


def _illegal(moves: Iterable[Move], elements: Iterable[Hashable]) -> Decision:
    core = tuple(sorted({move.id for move in moves}))
    return Decision(method=METHOD, core=core, elements=tuple(dict.fromkeys(elements)))


def _miscounted(moves: Moves) -> Decision | None:
    """Find an element that was taken out more often than it can have been put in, if any."""
    calls: dict[Hashable, list[float]] = {}
    for put in sorted(moves.puts, key=lambda put: put.call):
        calls.setdefault(put.element, []).append(put.call)
    taken: dict[Hashable, list[Move]] = {}
    for take in sorted(moves.takes, key=lambda take: take.end):
        earlier = taken.setdefault(take.element, [])
        earlier.append(take)
        of_element = calls.get(take.element, [])
        if len(earlier) > len(of_element) or of_element[len(earlier) - 1] > take.end:
            return _illegal(earlier, [take.element])
    return None


def _unique(moves: Moves) -> bool:
    return max(Counter(put.element for put in moves.puts).values(), default=0) <= 1


def _items(moves: Moves) -> list[_Item]:
    takes = {take.element: take for take in moves.takes}
    items: list[_Item] = []
    for put in moves.puts:
        take = takes.get(put.element)
        if take is not None:
            put_end, take_call = min(put.end, take.end), max(put.call, take.call)
            items.append(_Item(put, take, put.call, put_end, take_call, take.end))
        elif put.end < math.inf:
            items.append(_Item(put, None, put.call, put.end, math.inf, math.inf))
    return items


def _overtaken(items: Sequence[_Item]) -> Decision | None:
    """Find two elements, if any, that left a first-in-first-out queue in the wrong order."""
    taken = [item for item in items if item.take is not None]
    waiting = sorted(taken, key=lambda item: -item.put_end)
    # of the elements put in before `item`, the one whose dequeue was called last
    latest: _Item | None = None
    for item in sorted(taken, key=lambda item: item.put_call):
        while waiting and waiting[-1].put_end < item.put_call:
            before = waiting.pop()
            if latest is None or before.take_call > latest.take_call:
                latest = before
        if latest is not None and item.take_end < latest.take_call:
            assert item.take is not None, "`taken` has only elements that were taken out"
            assert latest.take is not None, "`taken` has only elements that were taken out"
            core = [latest.put, latest.take, item.take]
            return _illegal(core, [latest.put.element, item.put.element])
    return None


def _first_to_leave(one: _Item, other: _Item) -> _Item:
    return other if other.take_end < one.take_end else one


def _last_to_leave(one: _Item, other: _Item) -> _Item:
    return other if other.take_call > one.take_call else one


def _left_behind(items: Sequence[_Item], lost: Sequence[Move]) -> Decision | None:
    """Find elements that must have left, but that no dequeue can have taken.

    Elements that must leave before other elements are assigned to the unanswered dequeues.
    """
    taken = sorted((i for i in items if i.take is not None), key=lambda item: item.put_call)
    calls = [item.put_call for item in taken]
    # for each position in `taken`, the element from there on whose dequeue returned first
    firsts = list(itertools.accumulate(reversed(taken), _first_to_leave))[::-1]
    needy: list[tuple[_Item, _Item]] = []
    for item in items:
        after = bisect.bisect_right(calls, item.put_end)
        if item.take is None and after < len(firsts):
            needy.append((item, firsts[after]))
    needy.sort(key=lambda pair: pair[1].take_end)
    spare = sorted(lost, key=lambda move: move.call)
    for number, (item, other) in enumerate(needy):
        if number >= len(spare) or spare[number].call > other.take_end:
            behind = [each for each, _ in needy[: number + 1]]
            ahead = [each for _, each in needy[: number + 1]]
            core = [each.put for each in behind]
            core += [each.take for each in ahead if each.take is not None]
            return _illegal(core, [each.put.element for each in (*behind, *ahead)])
        item.take = spare[number]
        item.take_call = max(item.put_call, spare[number].call)
        item.take_end = math.inf
    return None


def _never_empty(items: Sequence[_Item], moves: Moves) -> Decision | None:
    """Find a dequeue that found nothing although the queue or bag had an element."""
    lost = {move.id for move in moves.lost}
    leaving = [i for i in items if i.take is not None and i.take.id not in lost]
    covered = _covered(leaving if lost else items, moves.empties)
    if covered is not None:
        return covered
    staying = sorted(
        (i for i in items if i.take is None or i.take.id in lost), key=lambda item: item.put_end
    )
    put_ends = [item.put_end for item in staying]
    calls = sorted(move.call for move in moves.lost)
    for empty in moves.empties:
        left = bisect.bisect_left(put_ends, empty.call)
        gone = bisect.bisect_right(calls, empty.end)
        if left > gone:
            puts = [item.put for item in staying[: gone + 1]]
            return _illegal([empty, *puts], [put.element for put in puts])
    return None


def _covered(items: Iterable[_Item], empties: Iterable[Move]) -> Decision | None:
    """Find a dequeue that found nothing although one of `items` was in the queue at each moment."""
    sure = sorted(
        (item for item in items if item.put_end < item.take_call), key=lambda item: item.put_end
    )
    starts = [item.put_end for item in sure]
    longest = list(itertools.accumulate(sure, _last_to_leave))
    for empty in empties:
        chain: list[_Item] = []
        until = empty.call
        while until <= empty.end:
            at = bisect.bisect_left(starts, until) - 1
            if at < 0 or longest[at].take_call <= until:
                break
            chain.append(longest[at])
            until = longest[at].take_call
        else:
            core = [empty, *(item.put for item in chain)]
            core += [item.take for item in chain if item.take is not None]
            return _illegal(core, [item.put.element for item in chain])
    return None


def _in_order(items: Sequence[_Item]) -> list[_Item] | None:
    """Return an order in which the elements can pass through the queue; `None` if none exists.

    Element A must come before element B if A's enqueue returned before B's enqueue was called, or
    if A's dequeue returned before B's dequeue was called. Elements that leave come before elements
    that stay. If several elements can be next, the one whose enqueue returned first is chosen.
    """
    leaving = _passing([item for item in items if item.take is not None])
    staying = _passing([item for item in items if item.take is None])
    return None if leaving is None or staying is None else leaving + staying


def _passing(items: Sequence[_Item]) -> list[_Item] | None:
    by_put = sorted(range(len(items)), key=lambda n: items[n].put_call)
    put_ends = sorted(range(len(items)), key=lambda n: items[n].put_end)
    take_ends = sorted(range(len(items)), key=lambda n: items[n].take_end)
    put_at = take_at = next_put = 0
    placed = [False] * len(items)
    asked: list[tuple[float, int]] = []
    ready: list[tuple[float, int]] = []
    ordered: list[_Item] = []
    while len(ordered) < len(items):
        while placed[put_ends[put_at]]:
            put_at += 1
        while placed[take_ends[take_at]]:
            take_at += 1
        first_put = items[put_ends[put_at]].put_end
        first_take = items[take_ends[take_at]].take_end
        while next_put < len(items) and items[by_put[next_put]].put_call <= first_put:
            number = by_put[next_put]
            heapq.heappush(asked, (items[number].take_call, number))
            next_put += 1
        while asked and asked[0][0] <= first_take:
            number = heapq.heappop(asked)[1]
            heapq.heappush(ready, (items[number].put_end, number))
        if not ready:
            return None
        number = heapq.heappop(ready)[1]
        placed[number] = True
        ordered.append(items[number])
    return ordered


def _schedule(ordered: Sequence[_Item]) -> None:
    """Choose when each element enters (as late as possible) and leaves (as early as possible)."""
    begins: float = math.inf
    for item in reversed(ordered):
        begins = item.begins = min(begins, item.put_end)
    ends: float = -math.inf
    for item in ordered:
        ends = item.ends = max(ends, item.begins, item.take_call)


def _merged(items: Sequence[_Item], empties: Sequence[Move]) -> Decision | None:
    """Order all operations by the moments chosen for `items`.

    Returns `None` if this order contradicts a dequeue that found nothing. At the same moment,
    elements that leave come first, then dequeues that find nothing, then elements that enter.
    """
    events: list[tuple[float, int, int, int, int]] = []
    for number, item in enumerate(items):
        events.append((item.begins, 2, number, 0, item.put.id))
        if item.take is not None:
            phase = 2 if item.begins == item.ends else 0
            events.append((item.ends, phase, number, 1, item.take.id))
    there = sorted((item.begins, item.ends) for item in items if item.begins < item.ends)
    starts = [begins for begins, _ in there]
    reach = list(itertools.accumulate((ends for _, ends in there), max))
    for number, empty in enumerate(empties):
        moment = empty.call
        while True:
            at = bisect.bisect_left(starts, moment) - 1
            if at < 0 or reach[at] <= moment:
                break
            moment = reach[at]
        if moment > empty.end:
            return None
        events.append((moment, 1, number, 0, empty.id))
    events.sort()
    return Decision(method=METHOD, order=tuple([event[4] for event in events]))


def _counted_order(moves: Moves) -> Decision:
    """Order the answered operations by time; add the unanswered enqueues that dequeues need."""
    events = [(put.call, 0, number) for number, put in enumerate(moves.puts)]
    events += [(take.end, 1, number) for number, take in enumerate(moves.takes)]
    held = Counter[Hashable]()
    spare: dict[Hashable, list[int]] = {}
    order: list[int] = []
    for _, kind, number in sorted(events):
        move = moves.takes[number] if kind else moves.puts[number]
        if not kind and move.end == math.inf:
            spare.setdefault(move.element, []).append(move.id)
            continue
        if kind and not held[move.element]:
            order.append(spare[move.element].pop(0))
            held[move.element] += 1
        held[move.element] += -1 if kind else 1
        order.append(move.id)
    return Decision(method=METHOD, order=tuple(order))
