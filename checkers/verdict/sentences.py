"""Operations of any vocabulary in words: their index, kind and time, and the node that answered."""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import listed
from harness.ops import OpType, Pair


def seconds(time_ns: int) -> str:
    """A time of the run: `12.402`."""
    return f"{time_ns / 1e9:.3f}"


def ops(indices: Iterable[int], *, limit: int = 20) -> str:
    """`ops 1, 5 and 9`, cut where it says so."""
    numbers = [str(index) for index in indices]
    if not numbers:
        return "no ops"
    return f"{'op' if len(numbers) == 1 else 'ops'} {listed(numbers, limit=limit)}"


def where(pair: Pair) -> str:
    """`(op 812, get, 1.000-1.200 s, answered by m1)`."""
    begin, done = pair.invoke, pair.completion
    if done is None or done.type is OpType.INFO:
        sent = sorted({attempt.node for attempt in done.attempts}) if done else []
        to = f", sent to {', '.join(sent)}" if sent else ""
        return f"(op {begin.index}, {begin.f}, from {seconds(begin.time)} s, answer lost{to})"
    by = f", answered by {done.node}" if done.node else ""
    span = f"{seconds(begin.time)}-{seconds(done.time)} s"
    return f"(op {begin.index}, {begin.f}, {span}{by})"
