"""Pairs of ops as operations: their questions, their answers, and those that are refused."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from checkers.linearizability import UNKNOWN, Operation
from harness.errors import HistoryError, UsageError, clipped
from harness.ops import ModelSettings, Op, OpType, Pair

AnyOperation = Operation[Any, Any]
_FOR_ALL: Final = frozenset({"independent", "initial"})  # settings that are not Elle's


def failed(pair: Pair) -> bool:
    """Whether the operation did not happen, as `fail` says in the words of Jepsen and Knossos."""
    return pair.type is OpType.FAIL


def operation_of(pair: Pair, given: Any, answer: Any = UNKNOWN) -> AnyOperation:
    """The operation that `pair` records; without an `answer` its outcome is unknown."""
    call, done = pair.invoke, pair.completion
    assert isinstance(call.process, int), "pairs are of clients only"
    returned = None if done is None or answer is UNKNOWN else done.index
    return Operation(call.process, given, call.index, answer, returned, call.index)


def refuse_settings(name: str, settings: ModelSettings) -> None:
    """Raise `UsageError` if any of Elle's settings is set: `name` is no model of Elle's."""
    for field in settings.__struct_fields__:
        if field not in _FOR_ALL and getattr(settings, field):
            flag = field.removesuffix("s") if field == "consistency_models" else field
            raise UsageError(
                f"--{flag.replace('_', '-')} means nothing to the model {name}; it is for "
                "--elle list-append and --elle rw-register"
            )


def refuse_initial(name: str, settings: ModelSettings, begins: str) -> None:
    """Raise `UsageError` if an initial value is asked for: `name` always begins the same way."""
    if settings.initial is not UNSET:
        raise UsageError(
            f"--initial is {settings.initial!r}, but everything is {begins} at first to the model "
            f"{name}; it is for registers and kv-string"
        )


def bad_op(op: Op, model: str, known: str) -> HistoryError:
    """The error for an op that is not in the model's vocabulary."""
    shown = clipped(repr(op.value), 80)
    pair = isinstance(op.value, list) and len(op.value) == 2
    hint = "; if values are [key value], say --independent" if pair else ""
    return HistoryError(
        f"op {op.index} is {op.f!r} with the value {shown}; the model {model} has {known}{hint}"
    )


def request_of(pair: Pair) -> Op:
    """The op that says what was asked for, in the words of Jepsen and Knossos.

    What an `ok` completion says belongs to the invocation as well, and counts where the two differ
    (`knossos.history/complete`). One that says nothing, or answers with an object, takes nothing
    back.
    """
    call, done = pair.invoke, pair.completion
    if done is None or done.type is not OpType.OK or done.value is None:
        return call
    return call if call.value is not None and isinstance(done.value, dict) else done
