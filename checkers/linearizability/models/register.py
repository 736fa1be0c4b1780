"""Models of one register with compare-and-set, and of several registers with transactions."""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from checkers.linearizability.direct.decision import Decision
from checkers.linearizability.direct.zones import Access, decide_register
from checkers.linearizability.model import UNKNOWN, Model, Operation, Unknown


class Truth(enum.Enum):
    """Replacements for the values `True` and `False`, which equal 1 and 0 in Python."""

    TRUE = True
    FALSE = False

    def __repr__(self) -> str:
        return repr(self.value)


Scalar = Hashable
Key = Hashable
ORIGINS_MAX: Final = 64
SOMETHING: Final = "(a value that no read shows)"


def distinct(value: Scalar) -> Scalar:
    """Return `value`, or for a boolean its `Truth`. A `Truth` is not equal to any number."""
    return Truth(value) if isinstance(value, bool) else value


class Read(NamedTuple):
    """Read the register. Output: its value."""

    f: str = "read"


class Write(NamedTuple):
    """Write `value` to the register. Output: `None`."""

    value: Scalar
    f: str = "write"


class Cas(NamedTuple):
    """Compare and set. Output: whether the register held `old`, so that it now holds `new`."""

    old: Scalar
    new: Scalar
    f: str = "cas"


RegisterInput = Read | Write | Cas


class Register(Model[Scalar, RegisterInput, Scalar]):
    """The model of one register that holds `initial` at first."""

    def __init__(self, initial: Scalar = None) -> None:
        self._initial = initial

    def init(self) -> Scalar:
        return self._initial

    def step(
        self, state: Scalar, input_: RegisterInput, output: Scalar | Unknown, /
    ) -> tuple[bool, Scalar]:
        if isinstance(input_, Write):
            return True, input_.value
        if isinstance(input_, Read):
            return output is UNKNOWN or state == output, state
        held = state == input_.old
        if output is UNKNOWN:
            return True, input_.new if held else state
        return held is output, input_.new if held else state

    def read_only(self, input_: RegisterInput, output: Scalar | Unknown, /) -> bool:
        """Whether the operation is a read, or a compare-and-set that found another value."""
        return isinstance(input_, Read) or (isinstance(input_, Cas) and output is False)

    def observes(self, input_: RegisterInput, output: Scalar | Unknown, /) -> bool:
        del output
        return not isinstance(input_, Write)

    def decide(self, operations: Sequence[Operation[RegisterInput, Scalar]], /) -> Decision | None:
        """Decide the history by zones, if the observed values are unique."""
        accesses: list[Access] = []
        for operation in operations:
            input_, answer, end = operation.input, operation.said, operation.return_time
            lost = end is None
            access = Access(operation.id, operation.call, math.inf if end is None else end)
            if isinstance(input_, Write):
                accesses.append(access._replace(makes=input_.value))
            elif isinstance(input_, Read):
                if not lost:
                    accesses.append(access._replace(needs=answer))
            elif answer is False:
                accesses.append(access._replace(excludes=input_.old))
            elif not lost and answer is not True:
                return None  # no state explains this answer
            elif input_.old != input_.new:
                accesses.append(access._replace(needs=input_.old, makes=input_.new))
            elif not lost:
                accesses.append(access._replace(needs=input_.old))
        if any(value != value for a in accesses for value in a[3:]):  # noqa: PLR0124 - nan alone
            return None
        return decide_register(self._initial, accesses)

    def blurred(
        self,
        core: Sequence[Operation[RegisterInput, Scalar]],
        others: Sequence[Operation[RegisterInput, Scalar]],
        /,
    ) -> Sequence[Operation[RegisterInput, Scalar]]:
        """Replace all values that the core cannot tell apart with a single value.

        Values stay distinct if the core names them, or if compare-and-sets can replace them by a
        value that the core names. Of several equal operations, the core needs at most one before
        each of its own operations, so no more of them are kept.
        """
        seen = _told_apart(core, others)
        if SOMETHING in seen:
            return others
        blurred: list[Operation[RegisterInput, Scalar]] = []
        left: dict[RegisterInput, int] = {}
        for operation in sorted(others, key=lambda o: o.call):
            input_ = operation.input
            if self.read_only(input_, operation.said):
                continue
            if isinstance(input_, Write):
                value = input_.value if input_.value in seen else SOMETHING
                input_ = Write(value)
            elif isinstance(input_, Cas):
                old = input_.old if input_.old in seen else SOMETHING
                new = input_.new if input_.new in seen else SOMETHING
                if old == new:
                    continue
                # If `old` may be any value outside `seen`, the compare-and-set counts as a write.
                input_ = Write(new) if old == SOMETHING else Cas(old, new)
            if left.setdefault(input_, len(core)):
                left[input_] -= 1
                blurred.append(replace(operation, input=input_))
        return blurred

    def describe_operation(self, input_: RegisterInput, output: Scalar | Unknown, /) -> str:
        if isinstance(input_, Read):
            return "read" + ("" if output is UNKNOWN else f" {output!r}")
        if isinstance(input_, Write):
            return f"write {input_.value!r}" + (" (unknown)" if output is UNKNOWN else "")
        outcome = {True: "", False: " (held another value)"}.get(output is True, "")
        return f"cas {input_.old!r} -> {input_.new!r}" + (
            " (unknown)" if output is UNKNOWN else outcome
        )

    def describe_state(self, state: Scalar, /) -> str:
        return f"the register holds {state!r}"


def _told_apart(
    core: Iterable[Operation[RegisterInput, Scalar]],
    others: Iterable[Operation[RegisterInput, Scalar]],
) -> set[Scalar]:
    """Return the values that the core names, and values that compare-and-sets turn into them.

    The result has at most `ORIGINS_MAX` values of the second kind. A compare-and-set of any further
    value counts as a write. This makes more histories legal, so a refutation still holds.
    """
    seen: set[Scalar] = set()
    for operation in core:
        input_ = operation.input
        if isinstance(input_, Read):
            if not isinstance(operation.said, Unknown):
                seen.add(operation.said)
        else:
            seen |= {input_.value} if isinstance(input_, Write) else {input_.old, input_.new}
    origins: dict[Scalar, list[Scalar]] = {}
    for operation in others:
        if isinstance(operation.input, Cas) and operation.said is not False:
            origins.setdefault(operation.input.new, []).append(operation.input.old)
    todo = deque(seen)
    left = ORIGINS_MAX
    while todo and left:
        for value in origins.get(todo.popleft(), ()):
            if value not in seen and left:
                seen.add(value)
                todo.append(value)
                left -= 1
    return seen


class Txn(NamedTuple):
    """A transaction: a sequence of micro-operations ("read" | "write", key, value).

    The output has the same micro-operations with the values read. A read of `None` matches any
    value.
    """

    micro: tuple[tuple[str, Key, Scalar], ...]


def _sorted(values: dict[Key, Scalar]) -> tuple[tuple[Key, Scalar], ...]:
    return tuple(sorted(values.items(), key=lambda item: repr(item[0])))


class MultiRegister(Model[tuple[tuple[Key, Scalar], ...], Txn, Txn]):
    """The model of several registers that transactions read and write."""

    def __init__(self, initial: dict[Key, Scalar]) -> None:
        self._initial = _sorted(initial)

    def init(self) -> tuple[tuple[Key, Scalar], ...]:
        return self._initial

    def step(
        self, state: tuple[tuple[Key, Scalar], ...], input_: Txn, output: Txn | Unknown, /
    ) -> tuple[bool, tuple[tuple[Key, Scalar], ...]]:
        """Apply the micro-operations in order. A read that showed another value is illegal."""
        txn = input_ if output is UNKNOWN else output
        values = dict(state)
        for f, key, value in txn.micro:
            if f == "write":
                values[key] = value
            elif output is not UNKNOWN and value is not None and values.get(key) != value:
                return False, state
        return True, _sorted(values)

    def read_only(self, input_: Txn, output: Txn | Unknown, /) -> bool:
        del output
        return all(f == "read" for f, _, _ in input_.micro)

    def observes(self, input_: Txn, output: Txn | Unknown, /) -> bool:
        """Whether the transaction has a read with a value. A read of `None` matches any value."""
        txn = input_ if output is UNKNOWN else output
        return any(f == "read" and value is not None for f, _, value in txn.micro)

    def describe_operation(self, input_: Txn, output: Txn | Unknown, /) -> str:
        txn = input_ if output is UNKNOWN else output
        words = ", ".join(f"{f} {key!r} {value!r}" for f, key, value in txn.micro)
        return f"{words} (unknown)" if output is UNKNOWN else words

    def describe_state(self, state: tuple[tuple[Key, Scalar], ...], /) -> str:
        return "; ".join(f"{key!r} holds {value!r}" for key, value in state)
