"""A map of strings with put, append and get: Porcupine's key-value model."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Operation, Unknown

__all__ = ["KeyValue", "KeyValueInput"]


class KeyValueInput(NamedTuple):
    """`f` is get, put or append; a get returns the string, initially empty."""

    f: str
    key: Hashable
    value: str = ""


State = tuple[tuple[Hashable, str], ...]


def _by_key(pair: tuple[Hashable, str]) -> str:
    """An order of keys of several kinds."""
    return repr(pair[0])


class KeyValue(Model[State, KeyValueInput, str | None]):
    """`partitioned` checks every key by itself: the specification is a product over keys."""

    def __init__(
        self, initial: str | Mapping[Hashable, str] = "", *, partitioned: bool = True
    ) -> None:
        """A map whose keys hold `initial` at first, or are empty where that does not name them."""
        self._initial = initial
        self._partitioned = partitioned

    def init(self) -> State:
        """No key has a value."""
        return ()

    def step(
        self, state: State, input_: KeyValueInput, output: str | Unknown | None, /
    ) -> tuple[bool, State]:
        """Put replaces, append concatenates, get returns the whole string."""
        initial = self._initial
        current = initial if isinstance(initial, str) else initial.get(input_.key, "")
        for key, value in state:
            if key == input_.key:
                current = value
        if input_.f == "get":
            return output is UNKNOWN or output == current, state
        value = input_.value if input_.f == "put" else current + input_.value
        rest = [pair for pair in state if pair[0] != input_.key]
        return True, tuple(sorted([*rest, (input_.key, value)], key=_by_key))

    def read_only(self, input_: KeyValueInput, output: str | Unknown | None, /) -> bool:
        """Gets."""
        del output
        return input_.f == "get"

    def observes(self, input_: KeyValueInput, output: str | Unknown | None, /) -> bool:
        """Gets."""
        return self.read_only(input_, output)

    def footprint(self, input_: KeyValueInput, /) -> frozenset[str]:
        """The key."""
        return frozenset((repr(input_.key),))

    def partition(
        self, operations: Sequence[Operation[KeyValueInput, str | None]], /
    ) -> Sequence[Sequence[Operation[KeyValueInput, str | None]]]:
        """One part per key."""
        if not self._partitioned:
            return [operations]
        parts: dict[Hashable, list[Operation[KeyValueInput, str | None]]] = {}
        for operation in operations:
            parts.setdefault(operation.input.key, []).append(operation)
        return [parts[key] for key in sorted(parts, key=repr)]

    def describe_operation(self, input_: KeyValueInput, output: str | Unknown | None, /) -> str:
        """For people."""
        if input_.f == "get":
            return f"get {input_.key!r}" + ("" if output is UNKNOWN else f" -> {output!r}")
        words = f"{input_.f} {input_.key!r} {input_.value!r}"
        return f"{words} (unknown)" if output is UNKNOWN else words

    def describe_state(self, state: State, /) -> str:
        """For people."""
        return "; ".join(f"{key!r} holds {value!r}" for key, value in state) or "no key has a value"
