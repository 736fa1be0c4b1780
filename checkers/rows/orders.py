"""An order of the operations on one row, derived from the timestamps of its writes.

If tablets stamp writes in the order in which they took effect, little is left to search for: the
writes are in order, and each look belongs in a gap between writes, at which the row is as the look
shows it. This gap must come after every write and every look that returned before the look was
called, and before every write that was called after the look returned. Each look, in the order of
calls, takes the first such gap, which leaves the most room for later looks. So if timestamps and
answers are consistent, this finds an order in near-linear time.

The order is a guess, since timestamps may be wrong: the caller replays it, and starts a search if
the replay fails. Writes of unknown outcome are assumed not to have happened; if they did happen,
the search finds out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from checkers.linearizability import Operation
from checkers.linearizability.verify import CertificateError, verify_orders
from checkers.rows.model import Row, RowInput, RowOutput, Rows, Seen

RowOperation = Operation[RowInput, RowOutput]
"""An operation on one row; `metadata` is the timestamp of a write, if there is one."""


def order_by_timestamps(model: Rows, operations: Sequence[RowOperation]) -> tuple[int, ...] | None:
    """Ids in a legal order of the operations on a row; `None` if timestamps give none."""
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
    """Put each look into a gap; returns whether timestamps allow a gap for every look."""
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
