"""Registers: one value that is read, written, and compared and set."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Operation, Unknown

__all__ = [
    "Cas",
    "MultiRegister",
    "Read",
    "Register",
    "RegisterInput",
    "Truth",
    "Txn",
    "Write",
    "distinct",
]


class Truth(enum.Enum):
    """True and false as values of a register: to Python they equal 1 and 0, which they are not."""

    TRUE = True
    FALSE = False

    def __repr__(self) -> str:
        """As the value itself."""
        return repr(self.value)


Scalar = Hashable
Key = Hashable
SOMETHING: Final = "(some value that nobody looks at)"


def distinct(value: Scalar) -> Scalar:
    """The value as one that equals no other."""
    return Truth(value) if isinstance(value, bool) else value


class Read(NamedTuple):
    """Output: the value."""

    f: str = "read"


class Write(NamedTuple):
    """Output: `None`."""

    value: Scalar
    f: str = "write"


class Cas(NamedTuple):
    """Compare and set. Output: whether the register held `old`, so that it now holds `new`."""

    old: Scalar
    new: Scalar
    f: str = "cas"


RegisterInput = Read | Write | Cas


class Register(Model[Scalar, RegisterInput, Scalar]):
    """One register, initially `initial`."""

    def __init__(self, initial: Scalar = None) -> None:
        """A register that starts with `initial`."""
        self._initial = initial

    def init(self) -> Scalar:
        """The initial value."""
        return self._initial

    def step(
        self, state: Scalar, input_: RegisterInput, output: Scalar | Unknown, /
    ) -> tuple[bool, Scalar]:
        """See the inputs for what they return."""
        if isinstance(input_, Write):
            return True, input_.value
        if isinstance(input_, Read):
            return output is UNKNOWN or state == output, state
        held = state == input_.old
        if output is UNKNOWN:
            return True, input_.new if held else state
        return held is output, input_.new if held else state

    def read_only(self, input_: RegisterInput, output: Scalar | Unknown, /) -> bool:
        """Reads, and compare-and-sets that found another value."""
        return isinstance(input_, Read) or (isinstance(input_, Cas) and output is False)

    def observes(self, input_: RegisterInput, output: Scalar | Unknown, /) -> bool:
        """All but writes."""
        del output
        return not isinstance(input_, Write)

    def blurred(
        self,
        core: Sequence[Operation[RegisterInput, Scalar]],
        others: Sequence[Operation[RegisterInput, Scalar]],
        /,
    ) -> Sequence[Operation[RegisterInput, Scalar]]:
        """Writes of values that nobody reads or compares are all alike."""
        seen = {o.output for o in core if isinstance(o.input, Read)}
        seen |= {o.input.old for o in (*core, *others) if isinstance(o.input, Cas)}
        if SOMETHING in seen:
            return others
        return [
            replace(o, input=Write(SOMETHING))
            if isinstance(o.input, Write) and o.input.value not in seen
            else o
            for o in others
        ]

    def describe_operation(self, input_: RegisterInput, output: Scalar | Unknown, /) -> str:
        """For people."""
        if isinstance(input_, Read):
            return "read" + ("" if output is UNKNOWN else f" {output!r}")
        if isinstance(input_, Write):
            return f"write {input_.value!r}" + (" (unknown)" if output is UNKNOWN else "")
        outcome = {True: "", False: " (held another value)"}.get(output is True, "")
        return f"cas {input_.old!r} -> {input_.new!r}" + (
            " (unknown)" if output is UNKNOWN else outcome
        )

    def describe_state(self, state: Scalar, /) -> str:
        """For people."""
        return f"the register holds {state!r}"


class Txn(NamedTuple):
    """Micro-operations ("read" | "write", key, value), applied in order, atomically.

    Output: the same with the values read; a read of `None` matches any value.
    """

    micro: tuple[tuple[str, Key, Scalar], ...]


def _sorted(values: dict[Key, Scalar]) -> tuple[tuple[Key, Scalar], ...]:
    """The registers in an order of their own; keys are of several kinds."""
    return tuple(sorted(values.items(), key=lambda item: repr(item[0])))


class MultiRegister(Model[tuple[tuple[Key, Scalar], ...], Txn, Txn]):
    """Several registers that are read and written in transactions."""

    def __init__(self, initial: dict[Key, Scalar]) -> None:
        """Registers that start with the values of `initial`."""
        self._initial = _sorted(initial)

    def init(self) -> tuple[tuple[Key, Scalar], ...]:
        """The initial values, sorted by key."""
        return self._initial

    def step(
        self, state: tuple[tuple[Key, Scalar], ...], input_: Txn, output: Txn | Unknown, /
    ) -> tuple[bool, tuple[tuple[Key, Scalar], ...]]:
        """Apply the micro-operations in order."""
        txn = input_ if output is UNKNOWN else output
        values = dict(state)
        for f, key, value in txn.micro:
            if f == "write":
                values[key] = value
            elif output is not UNKNOWN and value is not None and values.get(key) != value:
                return False, state
        return True, _sorted(values)

    def read_only(self, input_: Txn, output: Txn | Unknown, /) -> bool:
        """Transactions that only read."""
        del output
        return all(f == "read" for f, _, _ in input_.micro)

    def observes(self, input_: Txn, output: Txn | Unknown, /) -> bool:
        """Transactions with a read that does not match any value."""
        txn = input_ if output is UNKNOWN else output
        return any(f == "read" and value is not None for f, _, value in txn.micro)

    def describe_operation(self, input_: Txn, output: Txn | Unknown, /) -> str:
        """For people."""
        txn = input_ if output is UNKNOWN else output
        words = ", ".join(f"{f} {key!r} {value!r}" for f, key, value in txn.micro)
        return f"{words} (unknown)" if output is UNKNOWN else words

    def describe_state(self, state: tuple[tuple[Key, Scalar], ...], /) -> str:
        """For people."""
        return "; ".join(f"{key!r} holds {value!r}" for key, value in state)
