"""Describes operations of any workload by index, kind, time and the answering node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from harness.errors import HistoryError, listed
from harness.ops import OpType, Pair
from harness.vocabularies import Call, fields_of, is_ok

Kinds = Mapping[str, type[Call]]


def seconds(time_ns: int) -> str:
    """Return a time of the run in seconds, such as `12.402`."""
    return f"{time_ns / 1e9:.3f}"


def ops(indices: Iterable[int], *, limit: int = 20) -> str:
    """Return indices of ops as text, such as `ops 1, 5 and 9`; a long list is shortened."""
    numbers = [str(index) for index in indices]
    if not numbers:
        return "no ops"
    return f"{'op' if len(numbers) == 1 else 'ops'} {listed(numbers, limit=limit)}"


def where(pair: Pair) -> str:
    """Identify an operation in a sentence: `(op 812, get, 1.000-1.200 s, answered by m1)`."""
    begin, done = pair.invoke, pair.completion
    if done is None or done.type is OpType.INFO:
        sent = sorted({attempt.node for attempt in done.attempts}) if done else []
        to = f", sent to {', '.join(sent)}" if sent else ""
        return f"(op {begin.index}, {begin.f}, from {seconds(begin.time)} s, answer lost{to})"
    by = f", answered by {done.node}" if done.node else ""
    span = f"{seconds(begin.time)}-{seconds(done.time)} s"
    return f"(op {begin.index}, {begin.f}, {span}{by})"


def act(pair: Pair, kinds: Kinds, *, at: Callable[[Pair], str] = where) -> str:
    """Describe an operation without its answer: `Process 3 dropped db1.t0 (op 12, drop, ...)`.

    The sentence has no full stop. Raises `HistoryError` if the value lacks a field of its kind.
    """
    call, kind = pair.invoke, kinds.get(pair.invoke.f)
    if kind is None:
        return f"Process {call.process} asked for {call.f} {at(pair)}"
    did = f"tried to {call.f}" if kind.mutates and not is_ok(pair) else kind.past
    try:
        about = kind.about(fields_of(call))
    except KeyError as error:
        raise HistoryError(
            f"op {call.index} ({call.f}) has the value {call.value!r}, which lacks {error}"
        ) from error
    return " ".join(filter(None, (f"Process {call.process}", did, about, at(pair))))


def sentence(pair: Pair, kinds: Kinds, *, at: Callable[[Pair], str] = where) -> str:
    """Describe an operation and its answer, without a full stop.

    An example is `Process 3 read table 'b' (op 12, get, ...) and found it missing`.
    """
    text, done, kind = act(pair, kinds, at=at), pair.completion, kinds.get(pair.invoke.f)
    if kind is None or done is None or done.type is OpType.INFO:
        return text
    came = kind.came(fields_of(pair.invoke), fields_of(done))
    return f"{text} {came}" if came else text
