"""A map of strings with put, append and get: Porcupine's key-value model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Operation, Unknown

__all__ = ["KeyValue", "KeyValueInput"]


class KeyValueInput(NamedTuple):
    """`f` is get, put or append; a get returns the string, initially empty."""

    f: str
    key: str
    value: str = ""


State = tuple[tuple[str, str], ...]


class KeyValue(Model[State, KeyValueInput, str | None]):
    """`partitioned` checks every key by itself: the specification is a product over keys."""

    def __init__(self, *, partitioned: bool = True) -> None:
        """A map that is empty at first."""
        self._partitioned = partitioned

    def init(self) -> State:
        """No key has a value."""
        return ()

    def step(
        self, state: State, input_: KeyValueInput, output: str | Unknown | None, /
    ) -> tuple[bool, State]:
        """Put replaces, append concatenates, get returns the whole string."""
        current = ""
        for key, value in state:
            if key == input_.key:
                current = value
        if input_.f == "get":
            return output is UNKNOWN or output == current, state
        value = input_.value if input_.f == "put" else current + input_.value
        rest = [pair for pair in state if pair[0] != input_.key]
        return True, tuple(sorted([*rest, (input_.key, value)]))

    def read_only(self, input_: KeyValueInput, output: str | Unknown | None, /) -> bool:
        """Gets."""
        del output
        return input_.f == "get"

    def observes(self, input_: KeyValueInput, output: str | Unknown | None, /) -> bool:
        """Gets."""
        return self.read_only(input_, output)

    def footprint(self, input_: KeyValueInput, /) -> frozenset[str]:
        """The key."""
        return frozenset((input_.key,))

    def partition(
        self, operations: Sequence[Operation[KeyValueInput, str | None]], /
    ) -> Sequence[Sequence[Operation[KeyValueInput, str | None]]]:
        """One part per key."""
        if not self._partitioned:
            return [operations]
        parts: dict[str, list[Operation[KeyValueInput, str | None]]] = {}
        for operation in operations:
            parts.setdefault(operation.input.key, []).append(operation)
        return [parts[key] for key in sorted(parts)]

    def describe_operation(self, input_: KeyValueInput, output: str | Unknown | None, /) -> str:
        """For people."""
        if input_.f == "get":
            return f"get {input_.key!r}" + ("" if output is UNKNOWN else f" -> {output!r}")
        words = f"{input_.f} {input_.key!r} {input_.value!r}"
        return f"{words} (unknown)" if output is UNKNOWN else words

    def describe_state(self, state: State, /) -> str:
        """For people."""
        return "; ".join(f"{key!r} holds {value!r}" for key, value in state) or "no key has a value"
