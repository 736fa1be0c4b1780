"""kv-string: a map of strings with get, put and append, checked key by key."""

from __future__ import annotations

from typing import Any, Final

from checkers.history_models.engine import (
    AnyOperation,
    LinearizabilityModel,
    bad_op,
    failed,
    operation_of,
)
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from harness.ops import Op, OpType, Pair

__all__ = ["KvString"]

_VOCABULARY: Final = "get, put and append with a key and a string"


class KvString(LinearizabilityModel):
    """Each key holds a string, empty at first; operations that failed did not happen."""

    name = "kv-string"
    doc = "a map of strings with get, put and append; each key is empty at first"
    specification = KeyValue

    def _operation(self, pair: Pair) -> AnyOperation | None:
        call, done = pair.invoke, pair.completion
        key, value = self._value(call)
        if call.f != "get" and value is None:
            raise bad_op(call, self.name, _VOCABULARY)
        given = KeyValueInput(call.f, key, "" if call.f == "get" or value is None else value)
        if done is None or done.type is OpType.INFO:
            return None if call.f == "get" else operation_of(pair, given)
        if failed(pair):
            return None
        done_key, answer = self._value(done)
        if done.f != call.f or done_key != key:
            raise bad_op(done, self.name, f"completions of what was invoked: {call.f} of {key!r}")
        if call.f == "get" and answer is None:
            raise bad_op(done, self.name, "gets that are answered with a string")
        return operation_of(pair, given, answer if call.f == "get" else None)

    def _value(self, op: Op) -> tuple[str, str | None]:
        value: Any = op.value
        if op.f in {"get", "put", "append"} and isinstance(value, list) and len(value) == 2:
            key, text = value
            if isinstance(key, (str, int)) and (text is None or isinstance(text, str)):
                return str(key), text
        raise bad_op(op, self.name, _VOCABULARY)
