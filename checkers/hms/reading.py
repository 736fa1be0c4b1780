"""Converts a history in the vocabulary "hms" to operations on the model of a metastore.

* A change of unknown outcome may take effect at any time after its call, or never. If a get showed
  its nonce, the change took effect before the get returned.
* A nonce that no get shows is replaced by an empty nonce. An alter with an empty nonce and an
  unknown outcome is left out, since no answer could show its effect.
* A refusal because of the state is an observation that an order must explain. Any other refusal is
  left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from checkers.hms.model import (
    OBSERVED,
    MetastoreInput,
    MetastoreOperation,
    MetastoreOutput,
    about,
)
from checkers.linearizability import UNKNOWN, Operation, Unknown
from checkers.verdict import sentences
from harness.errors import HistoryError
from harness.ops import History, Op, OpType, Pair
from harness.vocabularies import fields_of
from harness.vocabularies.hms import BY_NAME, MUTATIONS, full_name, times_sent

COPY: Final = 1_000_000_000
"""The difference between the id of an operation and the id of its second effect."""


def sentence(pair: Pair) -> str:
    """Describe the operation in a sentence without a full stop.

    An example is `Process 3 dropped db1.t0 (op 12, drop, ...)`.
    """
    return sentences.sentence(pair, BY_NAME)


@dataclass(frozen=True)
class MetastoreHistory:
    """The operations of a metastore history. Their ids are the indices of invocations.

    `resent` has the ids of the changes that were sent more than once.
    """

    operations: tuple[MetastoreOperation, ...]
    pairs: Mapping[int, Pair]
    resent: tuple[int, ...]

    def with_copies(self) -> tuple[MetastoreOperation, ...]:
        """Return the operations, plus a copy of unknown outcome for each change that was sent
        twice.
        """
        by_id = {operation.id: operation for operation in self.operations}
        copies = [
            replace(by_id[index], output=UNKNOWN, return_time=None, id=COPY + index)
            for index in self.resent
            if index in by_id
        ]
        return (*self.operations, *copies)

    @cached_property
    def writers(self) -> Mapping[str, int]:
        """A map from each nonce to the index of the operation that wrote it."""
        return {
            nonce: pair.invoke.index
            for pair in self.pairs.values()
            if isinstance(nonce := fields_of(pair.invoke).get("nonce"), str)
        }

    def sentence(self, pair: Pair) -> str:
        """Describe the operation without a full stop. For a get, mention the change that it saw."""
        nonce = fields_of(pair.completion).get("nonce") if pair.invoke.f == "get" else None
        if nonce is None:
            return sentence(pair)
        writer = self.writers.get(nonce)
        left = "no operation" if writer is None else f"op {writer}"
        return f"{sentence(pair)} as {left} had left it"

    def last_sign(self, name: str, is_there: bool, before: int) -> str:
        """Describe the last operation that showed whether the table `name` existed.

        Only operations that agree with `is_there` and returned before operation `before` returned
        count. Returns an empty text if there is none.
        """
        done = self.pairs[before].completion
        assert done is not None, "a failing operation returned"
        signs = [
            operation
            for operation in self.operations
            if operation.return_time is not None and operation.return_time < done.index
            for about_name, statement in about(operation, [name])
            if about_name == name and (statement.f not in {"absent", "take"}) == is_there
        ]
        if not signs:
            return ""
        last = max(signs, key=lambda operation: operation.return_time or 0)
        call, verb = last.input, "see it" if is_there else "miss it"
        if call.f in MUTATIONS and last.said is not UNKNOWN and last.said.result == "ok":
            verb = f"{call.f} it" if call.name == name else f"{call.f} a table to it"
        return f"op {last.id} was the last to {verb}"


def metastore_history(history: History) -> MetastoreHistory:
    """Convert `history`; raises `HistoryError` for operations and values outside the vocabulary."""
    pairs = {pair.invoke.index: pair for pair in history.pairs}
    sights = _sights(history)
    operations = [operation for pair in history.pairs if (operation := _operation(pair, sights))]
    resent = tuple(
        index
        for index, pair in pairs.items()
        if pair.invoke.f in MUTATIONS
        and pair.completion is not None
        and pair.type is not OpType.FAIL
        and times_sent(pair.completion.attempts) > 1
    )
    return MetastoreHistory(tuple(operations), pairs, resent)


def _sights(history: History) -> dict[str, int]:
    sights: dict[str, int] = {}
    for pair in history.pairs:
        done = pair.completion
        if pair.invoke.f != "get" or done is None or done.type is not OpType.OK:
            continue
        nonce = fields_of(done).get("nonce")
        if isinstance(nonce, str):
            sights[nonce] = min(done.index, sights.get(nonce, done.index))
    return sights


def _name(op: Op, prefix: str = "") -> str:
    fields = fields_of(op)
    database, name = fields.get(f"{prefix}database"), fields.get(f"{prefix}name")
    if not isinstance(database, str) or not isinstance(name, str):
        raise HistoryError(
            f"op {op.index} ({op.f}) has the value {op.value!r}; this value needs the texts "
            f"'{prefix}database' and '{prefix}name'"
        )
    return full_name(database, name)


def _operation(pair: Pair, sights: Mapping[str, int]) -> MetastoreOperation | None:
    call, done = pair.invoke, pair.completion
    if call.f not in BY_NAME:
        raise HistoryError(
            f"op {call.index} invokes {call.f!r}, which is not in the vocabulary 'hms': "
            f"{', '.join(sorted(BY_NAME))}"
        )
    if call.f == "poll":
        return None
    nonce = fields_of(call).get("nonce")
    asked = MetastoreInput(
        call.f,
        "" if call.f == "list" else _name(call),
        _name(call, "new_") if call.f == "rename" else "",
        nonce if isinstance(nonce, str) and nonce in sights and call.f != "drop" else "",
    )
    returned: int | None = None
    answer: MetastoreOutput | Unknown = UNKNOWN
    if done is None or done.type is OpType.INFO:
        if call.f not in MUTATIONS:
            return None
        if asked.nonce and sights[asked.nonce] > call.index:
            answer, returned = MetastoreOutput("ok"), sights[asked.nonce]
        elif call.f == "alter":
            return None
    else:
        if done.f != call.f:
            raise HistoryError(
                f"op {done.index} completes {done.f!r}, but op {call.index} of the same process "
                f"invoked {call.f!r}"
            )
        definite = _answer(pair)
        if definite is None:
            return None
        answer, returned = definite, done.index
    assert isinstance(call.process, int), "only clients invoke operations"
    return Operation(call.process, asked, call.index, answer, returned, call.index)


def _answer(pair: Pair) -> MetastoreOutput | None:
    done = pair.completion
    assert done is not None, "`pair` was answered"
    value: Mapping[str, Any] = fields_of(done)
    result = value.get("result", "ok" if done.type is OpType.OK else None)
    if result != "ok":
        return MetastoreOutput(result) if result in OBSERVED else None
    if done.f == "list":
        names = value.get("tables")
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            raise HistoryError(
                f"op {done.index} (list) is ok, but its value has no list 'tables' of names: "
                f"{done.value!r}"
            )
        return MetastoreOutput("ok", names=tuple(names))
    nonce = value.get("nonce") if done.f == "get" else None
    return MetastoreOutput("ok", nonce if isinstance(nonce, str) else None)
