"""The operations that clients request: one module per vocabulary, one struct per operation.

Targets, workloads and checkers share these modules and nothing else. The fields of a struct are the
value of the invocation, in the same order as in histories. The class has the name of the operation
in histories (`f`), says whether the operation changes anything (`mutates`), and describes it in
words. The answer is the value of the completion, an object; the struct's docstring lists its
fields. Histories contain plain values instead of structs, since histories of other tools are judged
as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

from harness.errors import UsageError
from harness.ops import Op, OpType, Pair

__all__ = ["Call", "Vocabulary", "fields_of", "is_ok"]

NAMES_SHOWN_MAX: Final = 8


class Call(msgspec.Struct, frozen=True):
    """One operation that a client asks for. A target may ignore fields that it does not support."""

    f: ClassVar[str]
    mutates: ClassVar[bool] = False
    past: ClassVar[str] = ""

    def asked(self) -> Any:
        """Return the value of this operation's invocation in a history."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    @classmethod
    def about(cls, call: Mapping[str, Any]) -> str:
        """Return the object of the operation in words, such as `table 't1'`."""
        return f"table {call['name']!r}" if "name" in cls.__struct_fields__ else ""

    @classmethod
    def came(cls, call: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        """Return a phrase for an answer, such as `and was refused: exists`; "" for a plain "ok"."""
        del call
        result = answer.get("result", "ok")
        return "" if result == "ok" else f"and was refused: {result}"


C = TypeVar("C", bound=Call)


class Vocabulary(Generic[C]):
    """The kinds of operations of one vocabulary."""

    def __init__(self, name: str, calls: Iterable[type[C]]) -> None:
        self.name = name
        self.by_name: Mapping[str, type[C]] = {call.f: call for call in calls}
        self.mutations = frozenset(call.f for call in self if call.mutates)
        self.reads = frozenset(call.f for call in self if not call.mutates)

    def __iter__(self) -> Iterator[type[C]]:
        return iter(self.by_name.values())

    def call_of(self, f: str, value: Any) -> C:
        """Return the operation with this name and value.

        Raises `UsageError` if the vocabulary has no such operation, or the value does not fit.
        """
        kind = self.by_name.get(f)
        if kind is None:
            raise UsageError(
                f"the operation {f!r} is not in the vocabulary {self.name!r}, which has "
                f"{', '.join(sorted(self.by_name))}"
            )
        try:
            return msgspec.convert({} if value is None else value, kind)
        except msgspec.ValidationError as error:
            raise UsageError(
                f"the value {value!r} does not fit the operation {f!r}: {error}; "
                f"see the vocabulary {self.name!r}"
            ) from error


def fields_of(op: Op | None) -> Mapping[str, Any]:
    """Return the value of an op if it is an object, else an empty mapping.

    Foreign histories have other values, too.
    """
    return op.value if op is not None and isinstance(op.value, Mapping) else {}


def is_ok(pair: Pair) -> bool:
    """Whether an operation succeeded. An `ok` op whose `result` is not "ok" is a refusal."""
    return pair.type is OpType.OK and fields_of(pair.completion).get("result", "ok") == "ok"


def names_in_words(names: Iterable[str]) -> str:
    """Join the quoted names with commas. A long list is cut, and ends with the number left out."""
    quoted = [repr(name) for name in names]
    left = len(quoted) - NAMES_SHOWN_MAX
    more = f" and {left} more" if left > 0 else ""
    return ", ".join(quoted[:NAMES_SHOWN_MAX]) + more if quoted else "none"
