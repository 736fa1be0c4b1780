"""Reads operations on logs from a history in Jepsen's form or in our vocabulary `logs`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from checkers.foreign.model import bad_op
from checkers.jepsen.steps import NEVER
from harness.errors import HistoryError, shown
from harness.exact import exact
from harness.ops import History, Op, OpType, Pair
from harness.vocabularies import fields_of, logs
from harness.vocabularies.edn import members

NAME: Final = "kafka"
CHANGES: Final = frozenset({"assign", "subscribe"})
TRANSACTIONS: Final = frozenset({"send", "poll", "txn"})
IGNORED: Final = frozenset({"crash", "debug-topic-partitions"})
_KNOWN: Final = (
    "assign and subscribe with a list of keys; send, poll and txn with micro-operations "
    "[send key message], [send key [offset message]], [poll], [poll {key [[offset message] ...]}]"
)
_FIELDS: Final = {call.f: set(call.__struct_encode_fields__) for call in logs.CALLS}
Message = Hashable
Place = tuple[int | None, Message]
"""A message, and its offset if it is known."""


@dataclass(frozen=True, slots=True)
class LogOp:
    """One operation.

    `end` is infinite if the outcome is unknown. `sends` and `polls` have the messages of each key,
    in order. `polled` is true if the operation has a poll, answered or not. `keys` are the keys of
    an assign or subscribe. `rebalanced` are the keys that the process lost or got during the
    operation.
    """

    f: str
    type: OpType
    begin: int
    end: float
    process: int | str
    sends: Mapping[str, Sequence[Place]]
    polls: Mapping[str, Sequence[Place]]
    polled: bool = False
    answered: bool = False
    keys: frozenset[str] = frozenset()
    rebalanced: frozenset[str] = frozenset()
    from_start: bool = False

    @property
    def did(self) -> bool:
        return self.type is OpType.OK

    def __str__(self) -> str:
        return f"the {self.f} by process {self.process} (op {self.begin})"


class _Keys:
    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}

    def in_value(self, key: Any, op: Op) -> str:
        name = key.removeprefix('#"').removeprefix(":") if isinstance(key, str) else _json(key)
        first = self._seen.setdefault(name, key)
        if type(first) is not type(key) or first != key:
            raise HistoryError(
                f"op {op.index} has the key {shown(key)}, and another the key {shown(first)}; the "
                f"model {NAME} cannot tell them apart in maps, so rename one of the two"
            )
        return name

    @staticmethod
    def in_map(key: str) -> str:
        return key.removeprefix('#"').removeprefix(":")


def read(history: History) -> list[LogOp]:
    """Return the operations in the order of their invocations; raises `HistoryError`."""
    keys = _Keys()
    return [_read(pair, keys) for pair in history.pairs if pair.invoke.f not in IGNORED]


def _read(pair: Pair, keys: _Keys) -> LogOp:
    call, done = pair.invoke, pair.completion
    kind = pair.type
    end = NEVER if done is None or kind is OpType.INFO else done.index
    if call.f in CHANGES:
        names, from_start = _assigned(call, keys)
        if done is not None and (isinstance(done.value, list) or "keys" in fields_of(done)):
            from_start |= _assigned(done, keys)[1]
        return LogOp(
            call.f, kind, call.index, end, call.process, {}, {}, keys=names, from_start=from_start
        )
    if call.f not in TRANSACTIONS:
        raise bad_op(call, NAME, _KNOWN)
    if isinstance(call.value, Mapping):
        pair = _in_mops(pair)
        call, done = pair.invoke, pair.completion
    asked = _Mops(call, keys, answered=False)
    answer = asked
    if done is not None and done.value is not None and isinstance(done.value, list):
        answer = _Mops(done, keys, answered=True)
        if kind is OpType.OK and asked.sent() != answer.sent():
            raise HistoryError(
                f"op {done.index} is answered with other sends than op {call.index} requested"
            )
    elif kind is OpType.OK:
        raise bad_op(done or call, NAME, _KNOWN)
    return LogOp(
        call.f,
        kind,
        call.index,
        end,
        call.process,
        answer.sends or asked.sends,
        answer.polls,
        polled=asked.polled or answer.polled,
        answered=answer.answered,
        rebalanced=answer.rebalanced,
    )


def _in_mops(pair: Pair) -> Pair:
    call, done = pair.invoke, pair.completion
    asked = call.value
    key, message = asked.get("key"), asked.get("value")
    if call.f not in logs.CALLS.by_name or asked.keys() != _FIELDS[call.f]:
        raise bad_op(call, NAME, _KNOWN)
    mops: list[Any] = [["poll"]] if call.f == logs.Poll.f else [["send", key, message]]
    call = replace(call, value=mops)
    if done is None:
        return Pair(call, None)
    answer: list[Any] | None = None
    if "value" in fields_of(done):
        value = done.value["value"]
        answer = [["poll", value] if call.f == logs.Poll.f else ["send", key, [value, message]]]
    elif done.type is OpType.OK:
        raise bad_op(done, NAME, _KNOWN)
    return Pair(call, replace(done, value=answer))


def _assigned(op: Op, keys: _Keys) -> tuple[frozenset[str], bool]:
    value, from_start = op.value, False
    if isinstance(value, Mapping) and "keys" in value:
        value, from_start = value["keys"], bool(value.get("from_start", True))
    items = members(value)
    if items is None:
        raise bad_op(op, NAME, _KNOWN)
    return frozenset(keys.in_value(item, op) for item in items), from_start


class _Mops:
    def __init__(self, op: Op, keys: _Keys, *, answered: bool) -> None:
        self.sends: dict[str, list[Place]] = {}
        self.polls: dict[str, list[Place]] = {}
        self.rebalanced: frozenset[str] = frozenset()
        self.polled = self.answered = False
        self._op, self._keys, self._is_answer = op, keys, answered
        if not isinstance(op.value, list):
            raise bad_op(op, NAME, _KNOWN)
        for mop in op.value:
            self._take(mop)

    def _take(self, mop: Any) -> None:
        name = mop[0] if isinstance(mop, list | tuple) and mop else None
        kind = name.removeprefix(":") if isinstance(name, str) else None
        if kind == "send" and len(mop) == 3 and mop[2] is not None:
            key = self._keys.in_value(mop[1], self._op)
            self.sends.setdefault(key, []).append(self._sent(mop[2]))
        elif kind == "poll" and len(mop) <= 2:
            self.polled = True
            if len(mop) == 2 and mop[1] is not None:
                self._polled(mop[1])
        elif kind == "rebalance" and len(mop) == 2 and isinstance(mop[1], list):
            self.rebalanced |= {self._keys.in_value(key, self._op) for key in mop[1]}
        else:
            raise bad_op(self._op, NAME, _KNOWN)

    def _sent(self, value: Any) -> Place:
        return self._place(value) if isinstance(value, list | tuple) else (None, exact(value))

    def _polled(self, messages: Any) -> None:
        if not isinstance(messages, Mapping) or members(messages) is not None:
            raise bad_op(self._op, NAME, _KNOWN)
        self.answered = True
        for key, places in messages.items():
            if not isinstance(places, list):
                raise bad_op(self._op, NAME, _KNOWN)
            into = self.polls.setdefault(self._keys.in_map(key), [])
            into.extend(map(self._place, places))

    def _place(self, value: Any) -> Place:
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise bad_op(self._op, NAME, _KNOWN)
        offset, message = value
        if not (offset is None or (type(offset) is int and offset >= 0)) or message is None:
            raise bad_op(self._op, NAME, _KNOWN)
        return offset, exact(message)

    def sent(self) -> dict[str, list[Message]]:
        return {key: [message for _, message in places] for key, places in self.sends.items()}


def _json(key: Any) -> str:
    return msgspec.json.encode(key).decode()


def messages(places: Iterable[Place]) -> list[Message]:
    """Return the messages without their offsets."""
    return [message for _, message in places]
