"""Models of a first-in-first-out queue, and of a queue that returns elements in any order."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from checkers.linearizability.direct.decision import Decision
from checkers.linearizability.direct.queues import Move, Moves, decide_bag, decide_fifo
from checkers.linearizability.model import UNKNOWN, Model, Operation, Unknown
from checkers.linearizability.nondeterministic import NondeterministicModel

Element = Hashable
Elements = tuple[Element, ...]


class Enqueue(NamedTuple):
    """Add an element. Output: `None`."""

    element: Element
    f: str = "enqueue"


class Dequeue(NamedTuple):
    """Remove an element. Output: the element, or `None` if the queue was empty."""

    f: str = "dequeue"


QueueInput = Enqueue | Dequeue
QueueOperation = Operation[QueueInput, Element | None]


class _Queue:
    """The common part of `Queue` and `UnorderedQueue`."""

    direct_first = True

    def restricted(
        self, operations: Sequence[QueueOperation], elements: Sequence[Hashable], /
    ) -> Sequence[QueueOperation]:
        """Keep operations on `elements`, dequeues that found nothing, and unanswered dequeues."""
        return [
            operation
            for operation in operations
            if (
                operation.input.element in elements
                if isinstance(operation.input, Enqueue)
                else operation.is_unknown
                or operation.output is None
                or operation.output in elements
            )
        ]

    def observes(self, input_: QueueInput, output: Element | Unknown | None, /) -> bool:
        del output
        return isinstance(input_, Dequeue)

    def describe_operation(self, input_: QueueInput, output: Element | Unknown | None, /) -> str:
        if isinstance(input_, Enqueue):
            return f"enqueue {input_.element!r}" + (" (unknown)" if output is UNKNOWN else "")
        if output is UNKNOWN:
            return "dequeue (unknown)"
        return "dequeue, which found nothing" if output is None else f"dequeue {output!r}"

    def describe_state(self, state: Elements, /) -> str:
        return f"the queue holds {', '.join(map(repr, state)) or 'nothing'}"


def _moves(operations: Iterable[QueueOperation]) -> Moves:
    moves = Moves([], [], [], [])
    for operation in operations:
        end = math.inf if operation.return_time is None else operation.return_time
        move = Move(operation.id, operation.call, end)
        if isinstance(operation.input, Enqueue):
            moves.puts.append(move._replace(element=operation.input.element))
        elif operation.is_unknown:
            moves.lost.append(move)
        elif operation.output is None:
            moves.empties.append(move)
        else:
            moves.takes.append(move._replace(element=operation.output))
    return moves


class Queue(_Queue, Model[Elements, QueueInput, Element | None]):
    """The model of a first-in-first-out queue that is empty at first."""

    def init(self) -> Elements:
        return ()

    def step(
        self, state: Elements, input_: QueueInput, output: Element | Unknown | None, /
    ) -> tuple[bool, Elements]:
        if isinstance(input_, Enqueue):
            return True, (*state, input_.element)
        if not state:
            return output is UNKNOWN or output is None, state
        return output is UNKNOWN or output == state[0], state[1:]

    def decide(self, operations: Sequence[QueueOperation], /) -> Decision | None:
        return decide_fifo(_moves(operations))

    def read_only(self, input_: QueueInput, output: Element | Unknown | None, /) -> bool:
        return isinstance(input_, Dequeue) and output is None


class UnorderedQueue(_Queue, NondeterministicModel[Elements, QueueInput, Element | None]):
    """The model of a queue whose elements leave in any order. The queue is empty at first.

    A dequeue of unknown outcome may have taken any element.
    """

    def init(self) -> Iterable[Elements]:
        return [()]

    def step(
        self, state: Elements, input_: QueueInput, output: Element | Unknown | None, /
    ) -> Iterable[Elements]:
        """Return all possible next states.

        A state is sorted by the text of its elements, so that equal multisets are equal states.
        """
        if isinstance(input_, Enqueue):
            return [tuple(sorted([*state, input_.element], key=repr))]
        if output is None:
            return [] if state else [state]
        if output is UNKNOWN and not state:
            return [state]
        return [
            (*state[:n], *state[n + 1 :])
            for n, element in enumerate(state)
            if output is UNKNOWN or output == element
        ]

    def decide(self, operations: Sequence[QueueOperation], /) -> Decision | None:
        """Decide by counting. If a dequeue found nothing, elements must be unique."""
        return decide_bag(_moves(operations))

    def partition(
        self, operations: Sequence[QueueOperation], /
    ) -> Sequence[Sequence[QueueOperation]]:
        """Make a part for each element, if the element of every dequeue is known."""
        parts: dict[Element, list[QueueOperation]] = {}
        for operation in operations:
            if isinstance(operation.input, Enqueue):
                element: Any = operation.input.element
            elif operation.is_unknown or operation.output is None:
                return [operations]
            else:
                element = operation.output
            parts.setdefault(element, []).append(operation)
        return list(parts.values())
