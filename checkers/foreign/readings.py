"""Checks both readings of histories whose values or order can be understood in two ways.

In Jepsen, the value of an `ok` completion overrides the request. But many clients record the
system's answer there, such as "OK" or a count of rows. If completions of changes look like answers,
the verdict is `invalid` only if the history is also invalid with the values of the requests.

In Jepsen, the order of the ops counts, and their times may contradict it by microseconds. If many
times contradict the order, the file may list the ops of one client after the ops of another. Then
both orders must have the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from harness.errors import HistoryError, clipped
from harness.ops import History, OpType, Pair, Verdict
from harness.plugins import PreparedCheck
from harness.verdict.readings import EitherCheck

UNDECIDED_ANSWERS: Final = "answers-or-requests"
UNDECIDED_ORDER: Final = "order-or-times"
LATE_MAX: Final = 0.1
"""The largest share of ops with an earlier time than a previous op, in a file that counts as
ordered.
"""
_ADDITIONS: Final = frozenset({"add", "remove", "enqueue"})
_CHANGES: Final = _ADDITIONS | {"write", "cas"}


def either_of_answers(
    name: str, overriding: PreparedCheck, asked: Callable[[], PreparedCheck], first: Pair
) -> EitherCheck:
    """Return the check of two readings, one by completions' values and one by requested values.

    `asked` prepares the second reading. `first` is the first change whose completion holds an
    answer.
    """
    request, answer = (clipped(repr(value), 40) for value in (first.invoke.value, _answer(first)))

    def reason(with_answers: Verdict, with_requests: Verdict) -> str:
        return (
            f"op {first.invoke.index} asks for {first.invoke.f} {request}, and its completion "
            f"holds {answer}: if completions override requests, as in Jepsen, the history is "
            f"{with_answers}; if they are answers, it is {with_requests}; repeat the requests in "
            "the completions"
        )

    return EitherCheck(
        name,
        ("With the values of completions", "With the values of requests"),
        overriding,
        asked,
        reason,
        UNDECIDED_ANSWERS,
        only_convictions=True,
    )


def answers_of_changes(history: History) -> list[Pair]:
    """Return the changes whose completions contain an answer instead of the requested value.

    Some clients know a written value only at its completion. So a value of the same kind as the
    request does not count as an answer, unless all writes complete with the same value.
    """
    differing = [pair for pair in history.pairs if _differs(pair)]
    answers: dict[str, list[Any]] = {}
    for pair in differing:
        answers.setdefault(pair.invoke.f, []).append(_answer(pair))
    equal = {f for f, held in answers.items() if len(held) > 1 and held.count(held[0]) == len(held)}
    return [
        pair
        for pair in differing
        if pair.invoke.f in _ADDITIONS | equal or _kind(pair.invoke.value) != _kind(_answer(pair))
    ]


def _answer(pair: Pair) -> Any:
    return None if pair.completion is None else pair.completion.value


def _differs(pair: Pair) -> bool:
    call, done = pair.invoke, pair.completion
    return (
        call.f in _CHANGES
        and done is not None
        and done.type is OpType.OK
        and call.value is not None
        and done.value is not None
        and done.value != call.value
        and not _holds_map(done.value)
    )


def _kind(value: Any) -> tuple[Any, ...]:
    """Return the types of a value and of its members. Keywords, strings and numbers differ."""
    if isinstance(value, (list, tuple)):
        return (list, *map(_kind, value))
    return (type(value), isinstance(value, str) and value[:1] == ":")


def _holds_map(value: Any) -> bool:
    pair = isinstance(value, (list, tuple)) and len(value) == 2
    return isinstance(value[1] if pair else value, Mapping)


def as_asked(history: History, answers: Sequence[Pair]) -> History:
    """Return the history in which these changes succeeded with the requested values."""
    asked = {pair.completion.index: pair.invoke.value for pair in answers if pair.completion}
    return History(
        (replace(op, value=asked[op.index]) if op.index in asked else op for op in history),
        foreign=True,
    )


def in_order_of_time(history: History) -> History | None:
    """Return the history in the order of its times, or `None` if the order of the file counts.

    The order of the file counts if it agrees with the times, or if the times are not from one
    clock. The returned ops have new indices.
    """
    ops = [op for op in history if op.is_client]
    latest, late = ops[0].time if ops else 0, 0
    for op in ops:
        late += op.time < latest
        latest = max(latest, op.time)
    if late <= LATE_MAX * len(ops):
        return None
    try:
        ordered = History(
            (replace(op, index=n) for n, op in enumerate(sorted(ops, key=lambda op: op.time))),
            foreign=True,
        )
        return ordered if len(ordered.pairs) == len(history.pairs) else None
    except HistoryError:
        return None


def either_of_orders(name: str, of_file: PreparedCheck, of_times: PreparedCheck) -> EitherCheck:
    """Return the check of a history in the order of the file and in the order of its times."""

    def reason(first: Verdict, second: Verdict) -> str:
        return (
            f"many ops have an earlier time than ops before them: in the order of the ops the "
            f"history is {first}, and in the order of the times {second}; sort the ops by time, or "
            "leave the times out"
        )

    return EitherCheck(
        name,
        ("In the order of the ops", "In the order of the times, with op numbers of this order"),
        of_file,
        lambda: of_times,
        reason,
        UNDECIDED_ORDER,
    )
