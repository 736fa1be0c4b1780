"""What clients ask of targets: a module a vocabulary, a struct a kind of operation.

Targets, workloads and checkers meet here and nowhere else. The fields of a struct are the value of
the invocation, in the order in which histories have them; its class says under which name it stands
there (`f`) and whether it changes anything. What an answer holds is in the struct's docstring.
Histories hold plain values, since those of others have to be judged as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

import msgspec

from harness.errors import UsageError
from harness.ops import Op, OpType, Pair

__all__ = ["Call", "convert", "fields_of", "is_ok", "names_of"]


class Call(msgspec.Struct, frozen=True):
    """One operation as it is asked. Of its value, a target may ignore what it does not know."""

    f: ClassVar[str]
    mutates: ClassVar[bool] = False

    def asked(self) -> Any:
        """The value of the invocation."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


C = TypeVar("C", bound=Call)


def fields_of(op: Op | None) -> Mapping[str, Any]:
    """The value of an op as an object; empty for any other value, as foreign histories have."""
    return op.value if op is not None and isinstance(op.value, Mapping) else {}


def is_ok(pair: Pair) -> bool:
    """Whether an operation succeeded; a refusal may be an `ok` answer with another `result`."""
    return pair.type is OpType.OK and fields_of(pair.completion).get("result", "ok") == "ok"


def names_of(calls: Iterable[type[Call]], *, mutates: bool) -> frozenset[str]:
    """The names of those kinds that change something, or of those that do not."""
    return frozenset(call.f for call in calls if call.mutates == mutates)


def convert(kinds: Mapping[str, type[C]], vocabulary: str, f: str, value: Any) -> C:
    """An operation by its name and value; raises `UsageError` for what is not in the vocabulary."""
    kind = kinds.get(f)
    if kind is None:
        raise UsageError(
            f"the operation {f!r} is not in the vocabulary {vocabulary!r}: "
            f"{', '.join(sorted(kinds))}"
        )
    try:
        return msgspec.convert({} if value is None else value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the value {value!r} does not fit the operation {f!r}: {error}; "
            f"see the vocabulary {vocabulary!r}"
        ) from error
