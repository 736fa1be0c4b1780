"""The catalog's part of a history, and the staleness bounds of its reads.

A read with a bound must show every change that was acknowledged earlier than `bound_ns` before the
answer was made. The answer is made after the read was invoked. So the read is an ordinary read that
might have been invoked earlier by its bound. A checker that judges the read as invoked at that
earlier time also proves the bound.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from harness.ops import History, Op, OpType, Pair
from harness.vocabularies import kudu_hms, members, rows
from harness.vocabularies.follower_reads import FRESH

Span = tuple[float, float]
"""The call and the return of an operation, as indices of ops."""
_LATE: Final = {"result": "ok", "by": "hive"}
_OF_ROWS: Final = frozenset(call.f for call in rows.ROW_CALLS)
_HIVE_READS: Final = frozenset(call.f for call in kudu_hms.HIVE_CALLS if not call.mutates)
_OF_MEMBERS: Final = frozenset(call.f for call in members.CALLS)


def is_bounded(pair: Pair) -> bool:
    """Whether this is a read with a bound."""
    return pair.invoke.f in FRESH


def bound_ns(pair: Pair) -> int | None:
    """The bound that the answer gives; `None` if there is no bound or no answer."""
    done = pair.completion
    if done is None or done.type is not OpType.OK or not isinstance(done.value, dict):
        return None
    bound = done.value.get("bound_ns")
    return bound if type(bound) is int and bound >= 0 else None


def catalog_part(history: History) -> History:
    """The history without operations on rows and members.

    A change through Hive may take effect in the catalog at any time after its call, or never.
    """
    return _by_hive(_without(history, _is_elsewhere))


def unbounded_part(history: History) -> History:
    """The same part without bounded reads, for checks that depend on real time alone."""
    return _by_hive(_without(history, lambda pair: _is_elsewhere(pair) or is_bounded(pair)))


def _is_elsewhere(pair: Pair) -> bool:
    """Whether the operation is about rows: these name a table, while register operations do not."""
    call = pair.invoke
    if call.f in _OF_ROWS:
        return isinstance(call.value, Mapping) and "table" in call.value
    return call.f in _OF_MEMBERS or call.f in _HIVE_READS or _was_refused_by_hive(pair)


def _was_refused_by_hive(pair: Pair) -> bool:
    return pair.invoke.f in kudu_hms.IN_KUDU and pair.type is OpType.FAIL


def _by_hive(history: History) -> History:
    """Treat changes through Hive as changes of unknown outcome in Kudu.

    The value of an acknowledged change is marked, since the change is not lost: Kudu applies it
    later.
    """
    if not any(op.f in kudu_hms.IN_KUDU for op in history):
        return history
    return History(map(_of_unknown_outcome, history), foreign=True)


def is_late(pair: Pair) -> bool:
    """Whether Hive acknowledged the change: Kudu applies it later."""
    done = pair.completion
    return done is not None and done.type is OpType.INFO and done.value == _LATE


def _of_unknown_outcome(op: Op) -> Op:
    f = kudu_hms.IN_KUDU.get(op.f)
    if f is None:
        return op
    if op.type is OpType.INVOKE:
        return msgspec.structs.replace(op, f=f)
    value = _LATE if op.type is OpType.OK else None
    return msgspec.structs.replace(op, f=f, type=OpType.INFO, value=value)


def _without(history: History, is_gone: Callable[[Pair], bool]) -> History:
    gone = {
        op.index
        for pair in history.pairs
        if is_gone(pair)
        for op in (pair.invoke, pair.completion)
        if op is not None
    }
    if not gone:
        return history
    return History((op for op in history if op.index not in gone), foreign=True)


def calls_before(history: History) -> Mapping[int, int]:
    """Invocation of an answered read with a bound -> the index from which the read counts as
    invoked, that of the first op no older than the bound.
    """
    bounded = [
        (pair, bound)
        for pair in history.pairs
        if is_bounded(pair) and (bound := bound_ns(pair)) is not None
    ]
    if not bounded:
        return {}
    times = [op.time for op in history]
    indices = [op.index for op in history]
    calls = {}
    for pair, bound in bounded:
        place = bisect.bisect_left(times, pair.invoke.time - bound)
        calls[pair.invoke.index] = min(pair.invoke.index, indices[place])
    return calls


def creates_by_name(history: History) -> dict[str, list[tuple[str, Span]]]:
    """The nonce of each create (also of failed ones), and the span of its possible effect."""
    creates: dict[str, list[tuple[str, Span]]] = {}
    for pair in history.pairs:
        call, done = pair.invoke, pair.completion
        if call.f == "create" and isinstance(call.value, dict):
            lost = done is None or done.type is OpType.INFO
            end = float("inf") if lost else float(done.index)  # type: ignore[union-attr]
            nonce = str(call.value.get("nonce") or f"op {call.index}")
            creates.setdefault(str(call.value.get("name")), []).append((nonce, (call.index, end)))
    return creates
