"""The model of a set whose operations add, remove or test one element, or read all elements."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, cast

from checkers.linearizability.direct.decision import Decision
from checkers.linearizability.direct.sets import (
    Addition,
    Look,
    decide_growing,
    find_thin_air,
)
from checkers.linearizability.model import UNKNOWN, Model, Operation, Projection, Unknown

Element = Hashable
SetOutput = bool | frozenset[Element] | tuple[Element, ...] | None


class Add(NamedTuple):
    """Add `element`. Output: whether it was new, or `None` if the answer does not show this."""

    element: Element
    f: str = "add"


class Remove(NamedTuple):
    """Remove `element`. Output: whether the set had it; `None` if the answer does not say."""

    element: Element
    f: str = "remove"


class Contains(NamedTuple):
    """Test for `element`. Output: whether it is in the set."""

    element: Element
    f: str = "contains"


class ReadAll(NamedTuple):
    """Read all elements. Output: a frozen set; a tuple if the answer has an element twice."""

    f: str = "read"


SetInput = Add | Remove | Contains | ReadAll
SetOperation = Operation[SetInput, SetOutput]


# the maximum number of reads in all projections
PROJECTED_MAX: Final = 200_000


class Set(Model[int, SetInput, SetOutput]):
    """The model of a set that is empty at first.

    A state is an integer with a bit for each element, so the state of 20,000 elements takes 2.5 kB.
    """

    direct_first = True

    def __init__(self, shown: Sequence[frozenset[Element]] = ()) -> None:
        """Create the model. If the set only grows, `shown` rules out steps that lead nowhere.

        `shown` has the results of all reads, each of which is contained in the next. The state of
        the set is always contained in the next result.
        """
        self._numbers: dict[Element, int] = {}
        self._states: dict[frozenset[Element], int] = {}
        self._shown = [self._state_of(elements) for elements in shown]
        self._sizes = [len(elements) for elements in shown]

    def _bit(self, element: Element) -> int:
        return 1 << self._numbers.setdefault(element, len(self._numbers))

    def _state_of(self, elements: frozenset[Element]) -> int:
        bits_of = self._states.get(elements)
        if bits_of is None:
            numbers = [self._numbers.setdefault(e, len(self._numbers)) for e in elements]
            bits = bytearray(len(self._numbers) // 8 + 1)
            for number in numbers:
                bits[number >> 3] |= 1 << (number & 7)
            bits_of = self._states[elements] = int.from_bytes(bits, "little")
        return bits_of

    def init(self) -> int:
        return 0

    def step(
        self, state: int, input_: SetInput, output: SetOutput | Unknown, /
    ) -> tuple[bool, int]:
        if isinstance(input_, ReadAll):
            shows = isinstance(output, frozenset) and self._state_of(output) == state
            return output is UNKNOWN or shows, state
        bit = self._bit(input_.element)
        there = bool(state & bit)
        if isinstance(input_, Contains):
            return output is UNKNOWN or output == there, state
        changes = there if isinstance(input_, Remove) else not there
        legal = output is UNKNOWN or output is None or output == changes
        after = state ^ bit if changes else state
        return legal and self._leads_on(after), after

    def _leads_on(self, state: int) -> bool:
        """Whether the set can grow from `state` to the result of the next read.

        This is the smallest result with at least as many elements as `state`.
        """
        if not self._shown:
            return True
        following = bisect.bisect_left(self._sizes, state.bit_count())
        return following == len(self._sizes) or not state & ~self._shown[following]

    def read_only(self, input_: SetInput, output: SetOutput | Unknown, /) -> bool:
        """Whether the operation is a read or a test, or its answer shows that it had no effect."""
        return isinstance(input_, Contains | ReadAll) or output is False

    def observes(self, input_: SetInput, output: SetOutput | Unknown, /) -> bool:
        """Whether the answer shows anything about the set's elements."""
        del input_
        return output is not None

    def footprint(self, input_: SetInput, /) -> frozenset[str] | None:
        """Return the element of the operation; `None` for a read of all elements."""
        if isinstance(input_, ReadAll):
            return None
        element = input_.element
        # Python's sets take `True` and 1 for the same element, so both share a footprint.
        return frozenset((repr(int(element) if isinstance(element, bool) else element),))

    def partition(self, operations: Sequence[SetOperation], /) -> Sequence[Sequence[SetOperation]]:
        """Make a part for each element, unless some operation reads all elements."""
        parts: dict[Element, list[SetOperation]] = {}
        for operation in operations:
            if isinstance(operation.input, ReadAll):
                return [operations]
            parts.setdefault(operation.input.element, []).append(operation)
        return list(parts.values())

    def decide(self, operations: Sequence[SetOperation], /) -> Decision | None:
        """Decide by the chain of reads if operations only add elements and read all elements.

        Otherwise the only possible verdict is "invalid", if a read shows an element too early.
        """
        additions: list[Addition] = []
        looks: list[Look] = []
        is_exact = True
        for operation in operations:
            input_, answer, end = operation.input, operation.said, operation.return_time
            known_end = math.inf if end is None else end
            if isinstance(input_, Add) and answer is not False:
                additions.append(
                    Addition(
                        operation.id, operation.call, known_end, input_.element, answer is True
                    )
                )
            elif isinstance(input_, ReadAll) and isinstance(answer, frozenset | tuple):
                looks.append(Look(operation.id, operation.call, known_end, answer))
            else:
                is_exact &= operation.is_unknown and not isinstance(input_, Remove)
        if is_exact:
            return decide_growing(additions, looks)
        return find_thin_air(additions, looks)

    def restricted(
        self, operations: Sequence[SetOperation], elements: Sequence[Hashable], /
    ) -> Sequence[SetOperation]:
        """Keep the operations on `elements`, and reduce reads of all elements to `elements`."""
        kept: list[SetOperation] = []
        for operation in operations:
            if not isinstance(operation.input, ReadAll):
                if operation.input.element in elements:
                    kept.append(operation)
            elif isinstance(operation.output, frozenset):
                seen = frozenset(e for e in elements if e in operation.output)
                kept.append(replace(operation, output=cast("SetOutput", seen)))
            else:
                kept.append(operation)
        return kept

    def for_operations(self, operations: Sequence[SetOperation], /) -> Set:
        """Return a model that looks ahead at all reads that returned, to rule out useless steps.

        It does not look ahead if an operation can remove an element.
        """
        seen: set[frozenset[Element]] = set()
        for operation in operations:
            if isinstance(operation.input, Remove):
                return Set()
            if isinstance(operation.input, ReadAll) and not operation.is_unknown:
                if not isinstance(operation.output, frozenset):
                    return Set()
                seen.add(operation.output)
        chain = sorted(seen, key=len)
        if any(not less < more for less, more in itertools.pairwise(chain)):
            return Set()
        return Set(chain)

    def projections(
        self, operations: Sequence[SetOperation], /
    ) -> Sequence[Projection[int, SetInput, SetOutput]]:
        """Make a projection for each element, in which reads of all elements test this element."""
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
        parts = []
        for element, operations_of in changes.items():
            asked = [replace(o, input=Contains(element), output=_holds(o, element)) for o in reads]
            everything = tuple(sorted((*operations_of, *asked), key=lambda o: o.id))
            parts.append(Projection(f"element {element!r}", Set(), everything))
        return parts

    def describe_operation(self, input_: SetInput, output: SetOutput | Unknown, /) -> str:
        if isinstance(input_, ReadAll):
            answer = "" if output is UNKNOWN else f" -> {_shown(output)}"
            return f"read{answer}"
        words = f"{input_.f} {input_.element!r}"
        if output is UNKNOWN:
            return f"{words} (unknown)"
        return words if output is None else f"{words} -> {output}"

    def describe_state(self, state: int, /) -> str:
        held = (element for element, number in self._numbers.items() if state >> number & 1)
        return f"the set is {_shown(frozenset(held))}"


def _holds(read: SetOperation, element: Element) -> bool:
    return isinstance(read.output, frozenset | tuple) and element in read.output


def _shown(elements: object) -> str:
    if not isinstance(elements, frozenset):
        return repr(elements)
    return "{" + ", ".join(sorted(map(repr, elements))) + "}"
