"""Derives an order of the operations on one row from the timestamps of its writes.

The timestamps give the order of the writes. Each read belongs in a gap between writes in which the
row is as the read shows it. This gap must agree with real time. Each read, in the order of calls,
takes the first such gap, which leaves the most room for later reads. So if timestamps and answers
are consistent, this method finds an order in near-linear time.

Timestamps may be wrong, so the order is verified, and the caller starts a search if it is invalid.
Writes of unknown outcome are assumed not to have happened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from checkers.linearizability import Operation
from checkers.linearizability.verify import CertificateError, verify_orders
from checkers.rows.model import Row, RowInput, RowOutput, Rows, Seen

RowOperation = Operation[RowInput, RowOutput]
"""An operation on one row; `metadata` is the timestamp of a write, or `None` without one."""


def order_by_timestamps(model: Rows, operations: Sequence[RowOperation]) -> tuple[int, ...] | None:
    """Return a legal order of the operations on a row, as ids, according to timestamps.

    Returns `None` if the timestamps do not lead to a legal order.
    """
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
    """Put each read into a gap between writes; return whether there is a gap for every read.

    `looks` are the reads. `states` maps each state of the row to the gaps with this state.
    """
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
