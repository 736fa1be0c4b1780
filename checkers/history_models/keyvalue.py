"""kv-string: a map of strings with get, put and append, checked key by key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from checkers.history_models.engine import (
    LinearizabilityCheck,
    bad_op,
    history_of,
    nothing_happened,
    refuse_settings,
    unreturned,
)
from checkers.linearizability import UNKNOWN, Operation
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from harness.ops import ModelSettings, Op, OpType, Pair

__all__ = ["KvString"]

_VOCABULARY: Final = "get, put and append with a key and a string"


class KvString:
    """Each key holds a string, empty at first; operations that failed did not happen."""

    api_version = 1
    name = "kv-string"
    doc = "a map of strings with get, put and append; each key is empty at first"
    kind = "model"

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> LinearizabilityCheck:
        """See `HistoryModel`."""
        refuse_settings(self.name, settings)
        history = history_of(ops)
        found = [self._operation(pair) for pair in history.pairs]
        kept = [operation for operation in found if operation is not None]
        return LinearizabilityCheck(
            self.name, KeyValue(), kept, nothing_happened=nothing_happened(history)
        )

    def _operation(self, pair: Pair) -> Operation[KeyValueInput, str | None] | None:
        call, done = pair.invoke, pair.completion
        key, value = self._value(call)
        assert isinstance(call.process, int), "pairs are of clients only"
        if call.f != "get" and value is None:
            raise bad_op(call, self.name, _VOCABULARY)
        given = KeyValueInput(call.f, key, "" if call.f == "get" or value is None else value)
        if done is None or unreturned(pair):
            if call.f == "get":
                return None
            return Operation(call.process, given, call.index, UNKNOWN, None, call.index)
        if done.type is OpType.FAIL:
            return None
        done_key, answer = self._value(done)
        if done.f != call.f or done_key != key:
            raise bad_op(done, self.name, f"completions of what was invoked: {call.f} of {key!r}")
        if call.f == "get" and answer is None:
            raise bad_op(done, self.name, "gets that are answered with a string")
        output = answer if call.f == "get" else None
        return Operation(call.process, given, call.index, output, done.index, call.index)

    def _value(self, op: Op) -> tuple[str, str | None]:
        value: Any = op.value
        if op.f in {"get", "put", "append"} and isinstance(value, list) and len(value) == 2:
            key, text = value
            if isinstance(key, (str, int)) and (text is None or isinstance(text, str)):
                return str(key), text
        raise bad_op(op, self.name, _VOCABULARY)
