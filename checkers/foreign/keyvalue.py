"""The history model kv-string of a map of strings with get, put and append, checked key by key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET

from checkers.foreign.initial import named
from checkers.foreign.keyed import by_key
from checkers.foreign.model import (
    LinearizabilityModel,
    bad_op,
    failed,
    refuse_settings,
)
from checkers.linearizability.models.keyvalue import KeyValue, KeyValueInput
from checkers.linearizability.proof import AnyOperation, operation_of
from harness.errors import UsageError
from harness.exact import exact, is_scalar
from harness.ops import ModelSettings, Op, OpType, Pair
from harness.plugins import PreparedCheck
from harness.vocabularies.edn import is_edn_atom

_VOCABULARY: Final = "get, put and append with a key and a string"


class KvString(LinearizabilityModel):
    """The history model of a map of strings; operations that ended as `fail` are left out."""

    name = "kv-string"
    doc = "a map of strings with get, put and append; each key is empty at first"

    def __init__(self, initial: Any = "") -> None:
        """Create the model. `initial` is the first value of all keys, or a map from keys to values.

        A key that is not in the map holds an empty string at first.
        """
        self._initial = initial

    def prepare(self, ops: Iterable[Op], settings: ModelSettings) -> PreparedCheck:
        refuse_settings(self.name, settings)
        if settings.initial is UNSET:
            return by_key(self.name, ops, settings, self.understand)
        initial = settings.initial
        values = list(initial.values()) if isinstance(initial, Mapping) else [initial]
        if not all(isinstance(value, str) and not is_edn_atom(value) for value in values):
            raise UsageError(
                f"--initial is {initial!r}; the model {self.name} holds strings: give one string, "
                "or a map with a string for each key"
            )
        return by_key(self.name, ops, settings, KvString(initial).understand)

    def specification(self, operations: Sequence[AnyOperation]) -> KeyValue:
        initial = self._initial
        if isinstance(initial, Mapping):
            return KeyValue({o.input.key: named(initial, o.input.key, "") for o in operations})
        return KeyValue(initial)

    def operation(self, pair: Pair) -> AnyOperation | None:
        call, done = pair.invoke, pair.completion
        key, value = self._value(call)
        if call.f != "get" and value is None:
            raise bad_op(call, self.name, _VOCABULARY)
        request = KeyValueInput(call.f, key, "" if call.f == "get" or value is None else value)
        if done is None or done.type is OpType.INFO:
            return None if call.f == "get" else operation_of(pair, request)
        if failed(pair):
            return None
        done_key, answer = self._value(done)
        if done.f != call.f or done_key != key:
            raise bad_op(
                done, self.name, f"completions of the invoked function: {call.f} of {key!r}"
            )
        if call.f == "get" and answer is None:
            raise bad_op(done, self.name, "gets that are answered with a string")
        return operation_of(pair, request, answer if call.f == "get" else None)

    def _value(self, op: Op) -> tuple[Hashable, str | None]:
        value: Any = op.value
        if op.f in {"get", "put", "append"} and isinstance(value, (list, tuple)):
            key, text = value if len(value) == 2 else (value, value)
            if is_scalar(key) and (text is None or isinstance(text, str)):
                return exact(key), text
        raise bad_op(op, self.name, _VOCABULARY)
