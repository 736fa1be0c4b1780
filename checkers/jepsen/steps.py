"""Converts the operations of a history to steps, with requests and answers as plain values.

The history is either in Jepsen's form or in the form of our vocabularies
(`checkers.foreign.plain_form`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from checkers.foreign.model import bad_op, request_of
from checkers.foreign.plain_form import is_ours, outcome_of, plain
from harness.errors import clipped
from harness.ops import History, OpType, Pair
from harness.vocabularies import Vocabulary

NEVER: Final = math.inf
_LABEL_CHARS_MAX: Final = 60


class Step(NamedTuple):
    """One operation of a client.

    `asked` is the argument: nil, a value, or an object if the operation has several fields.
    `answer` is the answer of an `ok` operation, if it has one. `begin` is the index of the
    invocation. `end` is the index of the completion, or infinite if the outcome is unknown.
    """

    f: str
    asked: Any
    answer: Any
    type: OpType
    begin: int
    end: float
    process: int | str

    @property
    def did(self) -> bool:
        """Whether the operation definitely took effect."""
        return self.type is OpType.OK

    @property
    def may_have(self) -> bool:
        """Whether the operation took effect, may have taken effect, or may still do so."""
        return self.type is not OpType.FAIL

    @property
    def by(self) -> str:
        """The process and the operation, in words."""
        return f"by process {self.process} (op {self.begin})"

    def __str__(self) -> str:
        """Describe the step, such as `add 3 by process 1 (op 4)`."""
        what = "" if self.asked is None else f" {_shown(self.asked)}"
        answer = "" if self.answer is None else f" -> {_shown(self.answer)}"
        return f"{self.f}{what}{answer} {self.by}"


def steps_of(
    history: History,
    vocabulary: Vocabulary[Any],
    model: str,
    *,
    functions: Mapping[str, str],
    answered: Collection[str],
) -> list[Step]:
    """Return the operations of `history` as steps, in the order of their invocations.

    `functions` maps the names of operations to descriptions of their arguments. `answered` lists
    the operations whose answers have a value. Raises `HistoryError` for other operations.
    """
    pairs = history.pairs
    if is_ours(pairs, vocabulary):
        return [_ours(pair, answered, model) for pair in pairs]
    return [_foreign(pair, answered, model, functions) for pair in pairs]


def _ours(pair: Pair, answered: Collection[str], model: str) -> Step:
    call, done = pair.invoke, pair.completion
    kind = outcome_of(pair)
    answer = None
    if done is not None and call.f in answered and kind is not OpType.FAIL:
        if isinstance(done.value, Mapping) and "value" in done.value:
            answer = done.value["value"]
        elif kind is OpType.OK:
            raise bad_op(done, model, f"answers of {call.f} that are objects with 'value'")
    return _step(pair, kind, plain(call.value), answer)


def _foreign(
    pair: Pair, answered: Collection[str], model: str, functions: Mapping[str, str]
) -> Step:
    call, done = pair.invoke, pair.completion
    if call.f not in functions:
        raise bad_op(call, model, _listed(functions))
    if done is not None and done.f != call.f:
        raise bad_op(done, model, f"completions of the invoked function, here {call.f!r}")
    if call.f in answered:
        answer = None if done is None or done.type is OpType.FAIL else done.value
        return _step(pair, pair.type, None, answer)
    return _step(pair, pair.type, request_of(pair).value, None)


def _step(pair: Pair, kind: OpType, asked: Any, answer: Any) -> Step:
    done = pair.completion
    end = NEVER if done is None or kind is OpType.INFO else done.index
    return Step(pair.invoke.f, asked, answer, kind, pair.invoke.index, end, pair.invoke.process)


def _listed(functions: Mapping[str, str]) -> str:
    return ", ".join(f"{f} {takes}".strip() for f, takes in functions.items())


def _shown(value: Any) -> str:
    return clipped(repr(value), _LABEL_CHARS_MAX)
