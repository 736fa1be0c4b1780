"""An order of the operations on one row, read off the timestamps of its writes.

Where tablets stamp writes in the order in which they took effect, there is little to search for:
the writes are in order, and each look belongs where the row was as it shows it. The gap that a look
goes to must be behind every write, and every look, that returned before it was called, and before
every write that was called after it returned. Taking the first such gap for one look after another
(in the order of their calls) leaves the later ones all possible room, so if timestamps
and answers fit each other, this finds an order, in near-linear time.

It is a guess, since timestamps may be wrong: its caller replays it, and asks a search if it does
not hold. Writes of unknown outcome are taken never to have happened; if they did, the search
says so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from checkers.linearizability import Operation
from checkers.linearizability.verify import CertificateError, verify_orders
from checkers.rows.model import Row, RowInput, RowOutput, Rows, Seen

RowOperation = Operation[RowInput, RowOutput]
"""`metadata` is the timestamp of a write, if there is one."""


def order_by_timestamps(model: Rows, operations: Sequence[RowOperation]) -> tuple[int, ...] | None:
    """Ids in a legal order of the operations on one row; `None` where timestamps show none."""
    certain = [o for o in operations if not o.is_unknown]
    writes = [o for o in certain if o.input.steps]
    if not all(isinstance(o.metadata, int) for o in writes):
        return None
    writes.sort(key=lambda o: (o.metadata, o.call))
    gaps: list[list[int]] = [[] for _ in range(len(writes) + 1)]
    row = model.init()
    states: dict[Row, list[int]] = {row: [0]}
    for number, write in enumerate(writes):
        legal, row = model.step(row, write.input, write.said)
        if not legal:
            return None
        states.setdefault(row, []).append(number + 1)
    if not _place(writes, [o for o in certain if not o.input.steps], states, gaps):
        return None
    order = list(gaps[0])
    for write, looks in zip(writes, gaps[1:], strict=True):
        order += [write.id, *looks]
    try:
        verify_orders(model, operations, [order])
    except CertificateError:
        return None
    return tuple(order)


def _place(
    writes: Sequence[RowOperation],
    looks: Sequence[RowOperation],
    states: dict[Row, list[int]],
    gaps: list[list[int]],
) -> bool:
    """Put each look into a gap; whether all found one that timestamps allow."""
    returned = sorted((_end(write), number + 1) for number, write in enumerate(writes))
    looks = sorted(looks, key=lambda o: (o.call, o.id))
    least = by_write = by_look = 0
    ends = sorted((_end(look), number) for number, look in enumerate(looks))
    at: list[int] = [0] * len(looks)
    done = 0
    for number, look in enumerate(looks):
        while by_write < len(returned) and returned[by_write][0] < look.call:
            least = max(least, returned[by_write][1])
            by_write += 1
        while done < len(ends) and ends[done][0] < look.call:
            by_look = max(by_look, at[ends[done][1]])
            done += 1
        assert isinstance(look.output, Seen)
        fitting = states.get(look.output.row, [])
        place = bisect_left(fitting, max(least, by_look))
        if place == len(fitting):
            return False
        at[number] = fitting[place]
        gaps[at[number]].append(look.id)
    return True


def _end(operation: RowOperation) -> float:
    assert operation.return_time is not None, "only known operations are placed"
    return operation.return_time
