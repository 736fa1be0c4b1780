"""A set: add, remove, ask for one element, or read all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Operation, Unknown

__all__ = ["Add", "Contains", "ReadAll", "Remove", "Set", "SetInput"]

Element = int | str
SetOutput = bool | frozenset[Element] | None


class Add(NamedTuple):
    """Output: whether the element is new, or `None` where that was not told."""

    element: Element
    f: str = "add"


class Remove(NamedTuple):
    """Output: whether the element was there, or `None` where that was not told."""

    element: Element
    f: str = "remove"


class Contains(NamedTuple):
    """Output: whether the element is there."""

    element: Element
    f: str = "contains"


class ReadAll(NamedTuple):
    """Output: a frozen set of all elements."""

    f: str = "read"


SetInput = Add | Remove | Contains | ReadAll


class Set(Model[frozenset[Element], SetInput, SetOutput]):
    """Initially empty."""

    def init(self) -> frozenset[Element]:
        """No elements."""
        return frozenset()

    def step(
        self, state: frozenset[Element], input_: SetInput, output: SetOutput | Unknown, /
    ) -> tuple[bool, frozenset[Element]]:
        """See the inputs for what they return."""
        if isinstance(input_, ReadAll):
            return output is UNKNOWN or output == state, state
        there = input_.element in state
        if isinstance(input_, Contains):
            return output is UNKNOWN or output == there, state
        changes = there if isinstance(input_, Remove) else not there
        legal = output is UNKNOWN or output is None or output == changes
        return legal, state ^ {input_.element} if changes else state

    def read_only(self, input_: SetInput, output: SetOutput | Unknown, /) -> bool:
        """Reads, and what is known to have changed nothing."""
        return isinstance(input_, Contains | ReadAll) or output is False

    def footprint(self, input_: SetInput, /) -> frozenset[str] | None:
        """The element; reading all touches everything."""
        if isinstance(input_, ReadAll):
            return None
        element = input_.element
        # True is 1 to a set, and so it must be here.
        return frozenset((repr(int(element) if isinstance(element, bool) else element),))

    def partition(
        self, operations: Sequence[Operation[SetInput, SetOutput]], /
    ) -> Sequence[Sequence[Operation[SetInput, SetOutput]]]:
        """One part for each element, unless somebody reads all."""
        parts: dict[Element, list[Operation[SetInput, SetOutput]]] = {}
        for operation in operations:
            if isinstance(operation.input, ReadAll):
                return [operations]
            parts.setdefault(operation.input.element, []).append(operation)
        return list(parts.values())

    def describe_operation(self, input_: SetInput, output: SetOutput | Unknown, /) -> str:
        """For people."""
        if isinstance(input_, ReadAll):
            shown = "" if output is UNKNOWN else f" -> {_shown(output)}"
            return f"read{shown}"
        words = f"{input_.f} {input_.element!r}"
        if output is UNKNOWN:
            return f"{words} (unknown)"
        return words if output is None else f"{words} -> {output}"

    def describe_state(self, state: frozenset[Element], /) -> str:
        """For people."""
        return f"the set is {_shown(state)}"


def _shown(elements: object) -> str:
    if not isinstance(elements, frozenset):
        return repr(elements)
    return "{" + ", ".join(sorted(map(repr, elements))) + "}"
