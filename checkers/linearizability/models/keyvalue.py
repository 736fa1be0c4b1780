"""Porcupine's key-value model, which is a map of strings with put, append and get."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from checkers.linearizability.direct.decision import Decision
from checkers.linearizability.direct.zones import Access, decide_register
from checkers.linearizability.model import UNKNOWN, Model, Operation, Unknown


class KeyValueInput(NamedTuple):
    """One operation on the string that `key` holds; `f` is "get", "put" or "append"."""

    f: str
    key: Hashable
    value: str = ""


SOMETHING: Final = "(some value that is not looked at)"
State = tuple[tuple[Hashable, str], ...]


class KeyValue(Model[State, KeyValueInput, str | None]):
    """Porcupine's key-value model: keys hold strings that are put, appended to and read."""

    def __init__(
        self, initial: str | Mapping[Hashable, str] = "", *, partitioned: bool = True
    ) -> None:
        """Create a model in which keys hold the values in `initial` at first.

        A string `initial` is the first value of every key. In a mapping, missing keys hold "". With
        `partitioned`, each key is checked separately.
        """
        self._initial = initial
        self._partitioned = partitioned

    def init(self) -> State:
        return ()

    def step(
        self, state: State, input_: KeyValueInput, output: str | Unknown | None, /
    ) -> tuple[bool, State]:
        """Apply one operation: put replaces the string, append extends it, get returns it."""
        current = self._first(input_.key)
        for key, value in state:
            if key == input_.key:
                current = value
        if input_.f == "get":
            return output is UNKNOWN or output == current, state
        value = input_.value if input_.f == "put" else current + input_.value
        rest = [pair for pair in state if pair[0] != input_.key]
        return True, tuple(sorted([*rest, (input_.key, value)], key=lambda pair: repr(pair[0])))

    def _first(self, key: Hashable) -> str:
        initial = self._initial
        return initial if isinstance(initial, str) else initial.get(key, "")

    def read_only(self, input_: KeyValueInput, output: str | Unknown | None, /) -> bool:
        del output
        return input_.f == "get"

    def observes(self, input_: KeyValueInput, output: str | Unknown | None, /) -> bool:
        return self.read_only(input_, output)

    def footprint(self, input_: KeyValueInput, /) -> frozenset[str]:
        return frozenset((repr(input_.key),))

    def partition(
        self, operations: Sequence[Operation[KeyValueInput, str | None]], /
    ) -> Sequence[Sequence[Operation[KeyValueInput, str | None]]]:
        if not self._partitioned:
            return [operations]
        parts: dict[Hashable, list[Operation[KeyValueInput, str | None]]] = {}
        for operation in operations:
            parts.setdefault(operation.input.key, []).append(operation)
        return [parts[key] for key in sorted(parts, key=repr)]

    def decide(
        self, operations: Sequence[Operation[KeyValueInput, str | None]], /
    ) -> Decision | None:
        """Decide the history of one key by zones, if no operation appends to the key."""
        accesses: list[Access] = []
        for operation in operations:
            input_, end = operation.input, operation.return_time
            if input_.f == "append" or input_.key != operations[0].input.key:
                return None
            access = Access(operation.id, operation.call, math.inf if end is None else end)
            if input_.f != "get":
                accesses.append(access._replace(makes=input_.value))
            elif end is not None:
                accesses.append(access._replace(needs=operation.output))
        first = self._first(operations[0].input.key) if operations else ""
        return decide_register(first, accesses)

    def blurred(
        self,
        core: Sequence[Operation[KeyValueInput, str | None]],
        others: Sequence[Operation[KeyValueInput, str | None]],
        /,
    ) -> Sequence[Operation[KeyValueInput, str | None]]:
        """Replace all values that the core does not name by one value, if no operation appends.

        Of several equal operations, the core needs at most one before each of its own operations,
        so no more of them are kept.
        """
        seen = {o.output if o.input.f == "get" else o.input.value for o in core}
        if SOMETHING in seen or any(o.input.f == "append" for o in (*core, *others)):
            return others
        blurred: list[Operation[KeyValueInput, str | None]] = []
        left: dict[KeyValueInput, int] = {}
        for operation in sorted(others, key=lambda o: o.call):
            input_ = operation.input
            if input_.f == "put":
                value = input_.value if input_.value in seen else SOMETHING
                input_ = input_._replace(value=value)
                if left.setdefault(input_, len(core)):
                    left[input_] -= 1
                    blurred.append(replace(operation, input=input_))
        return blurred

    def describe_operation(self, input_: KeyValueInput, output: str | Unknown | None, /) -> str:
        if input_.f == "get":
            return f"get {input_.key!r}" + ("" if output is UNKNOWN else f" -> {output!r}")
        words = f"{input_.f} {input_.key!r} {input_.value!r}"
        return f"{words} (unknown)" if output is UNKNOWN else words

    def describe_state(self, state: State, /) -> str:
        return "; ".join(f"{key!r} holds {value!r}" for key, value in state) or "no key has a value"
