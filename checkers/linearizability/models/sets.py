"""A set: add, remove, ask for one element, or read all."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from checkers.linearizability.model import UNKNOWN, Model, Operation, Projection, Unknown

__all__ = ["Add", "Contains", "ReadAll", "Remove", "Set", "SetInput"]

Element = Hashable
SetOutput = bool | frozenset[Element] | tuple[Element, ...] | None


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
    """Output: a frozen set of all elements; a tuple if it is none, which no state explains."""

    f: str = "read"


SetInput = Add | Remove | Contains | ReadAll
SetOperation = Operation[SetInput, SetOutput]


PROJECTED_MAX: Final = 200_000  # operations in all projections; more would take long to look at


class Set(Model[frozenset[Element], SetInput, SetOutput]):
    """Initially empty."""

    def __init__(self, shown: Sequence[frozenset[Element]] = ()) -> None:
        """`shown` are hints: what reads will return, each within the next; nothing is removed.

        The set then grows through all of them, so it is always within the next one.
        """
        self._shown = tuple(shown)
        self._sizes = [len(elements) for elements in shown]

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
        after = state ^ {input_.element} if changes else state
        return legal and self._leads_on(after), after

    def _leads_on(self, state: frozenset[Element]) -> bool:
        """Whether the set can still grow to what the next read shows.

        It grows one by one, so whatever stays within the next read has been through those before.
        """
        following = bisect.bisect_left(self._sizes, len(state))
        return following == len(self._sizes) or state <= self._shown[following]

    def read_only(self, input_: SetInput, output: SetOutput | Unknown, /) -> bool:
        """Reads, and what is known to have changed nothing."""
        return isinstance(input_, Contains | ReadAll) or output is False

    def observes(self, input_: SetInput, output: SetOutput | Unknown, /) -> bool:
        """Reads, and additions and removals that tell whether the element was there."""
        del input_
        return output is not None

    def footprint(self, input_: SetInput, /) -> frozenset[str] | None:
        """The element; reading all touches everything."""
        if isinstance(input_, ReadAll):
            return None
        element = input_.element
        # True is 1 to a set, and so it must be here.
        return frozenset((repr(int(element) if isinstance(element, bool) else element),))

    def partition(self, operations: Sequence[SetOperation], /) -> Sequence[Sequence[SetOperation]]:
        """One part for each element, unless somebody reads all."""
        parts: dict[Element, list[SetOperation]] = {}
        for operation in operations:
            if isinstance(operation.input, ReadAll):
                return [operations]
            parts.setdefault(operation.input.element, []).append(operation)
        return list(parts.values())

    def for_operations(self, operations: Sequence[SetOperation], /) -> Set:
        """Hints from all reads that returned, where nothing can be removed."""
        shown: set[frozenset[Element]] = set()
        for operation in operations:
            if isinstance(operation.input, Remove):
                return Set()
            if isinstance(operation.input, ReadAll) and not operation.is_unknown:
                if not isinstance(operation.output, frozenset):
                    return Set()
                shown.add(operation.output)
        chain = sorted(shown, key=len)
        if any(not less < more for less, more in itertools.pairwise(chain)):
            return Set()  # nothing explains such reads, and the search will tell why
        return Set(chain)

    def projections(
        self, operations: Sequence[SetOperation], /
    ) -> Sequence[Projection[frozenset[Element], SetInput, SetOutput]]:
        """Each element by itself: a read of all says whether it was there."""
        reads = [o for o in operations if isinstance(o.input, ReadAll) and not o.is_unknown]
        changes: dict[Element, list[SetOperation]] = {}
        for operation in operations:
            if not isinstance(operation.input, ReadAll):
                changes.setdefault(operation.input.element, []).append(operation)
        for read in reads:
            elements = read.output if isinstance(read.output, frozenset | tuple) else ()
            changes |= {element: [] for element in elements if element not in changes}
        if not reads or len(reads) * len(changes) > PROJECTED_MAX:
            return []
        found = []
        for element, own in changes.items():
            asked = [replace(o, input=Contains(element), output=_holds(o, element)) for o in reads]
            everything = tuple(sorted((*own, *asked), key=lambda o: o.id))
            found.append(Projection(f"element {element!r}", Set(), everything))
        return found

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


def _holds(read: SetOperation, element: Element) -> bool:
    return isinstance(read.output, frozenset | tuple) and element in read.output


def _shown(elements: object) -> str:
    if not isinstance(elements, frozenset):
        return repr(elements)
    return "{" + ", ".join(sorted(map(repr, elements))) + "}"
