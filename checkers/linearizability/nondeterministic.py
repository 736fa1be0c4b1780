"""Specifications whose operations may have several outcomes.

As in Porcupine, `to_model` turns a nondeterministic specification into a deterministic model. The
state of this model is the *set* of all states that are possible after the operations so far. A step
is illegal if no state in the set has a successor. A check is exact, but its time grows with the
sizes of these sets.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, TypeVar

from checkers.linearizability.clock import tick
from checkers.linearizability.direct.decision import Decision
from checkers.linearizability.model import Model, Operation, Specification, Unknown

STATES_UNWATCHED: Final = 16

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - input, as in Porcupine
O = TypeVar("O")  # noqa: E741


class NondeterministicModel(Specification[S, I, O]):
    """A specification in which an operation may have several outcomes.

    Subclass it, override `init` and `step`, and check the model that `to_model` returns.
    """

    @abc.abstractmethod
    def init(self) -> Iterable[S]:
        """Return the possible initial states."""

    @abc.abstractmethod
    def step(self, state: S, input_: I, output: O | Unknown, /) -> Iterable[S]:
        """Return all possible next states; none if the operation is illegal with this output.

        If the output is `UNKNOWN`, there must be at least one.
        """

    def describe_operation(self, input_: I, output: O | Unknown, /) -> str:
        return f"{input_!r} -> {output!r}"

    def to_model(self) -> PowerSet[S, I, O]:
        """Return the deterministic model over sets of states, for `check_operations`."""
        return PowerSet(self)


class PowerSet(Model[frozenset[S], I, O]):
    """A deterministic model whose state is the set of all possible states of `inner`.

    No operation is read-only, because even a read may make the set smaller.
    """

    def __init__(self, inner: NondeterministicModel[S, I, O]) -> None:
        self._inner = inner
        self.direct_first = inner.direct_first

    def init(self) -> frozenset[S]:
        return frozenset(self._inner.init())

    def step(
        self, state: frozenset[S], input_: I, output: O | Unknown, /
    ) -> tuple[bool, frozenset[S]]:
        """Return whether any next state is possible, and the set of all possible next states."""
        step = self._inner.step
        after: set[S] = set()
        for number, single in enumerate(state):
            if not number % STATES_UNWATCHED:
                tick()
            after.update(step(single, input_, output))
        return bool(after), frozenset(after) or state

    def partition(
        self, operations: Sequence[Operation[I, O]], /
    ) -> Sequence[Sequence[Operation[I, O]]]:
        return self._inner.partition(operations)

    def decide(self, operations: Sequence[Operation[I, O]], /) -> Decision | None:
        return self._inner.decide(operations)

    def restricted(
        self, operations: Sequence[Operation[I, O]], elements: Sequence[Hashable], /
    ) -> Sequence[Operation[I, O]]:
        return self._inner.restricted(operations, elements)

    def observes(self, input_: I, output: O | Unknown, /) -> bool:
        return self._inner.observes(input_, output)

    def describe_operation(self, input_: I, output: O | Unknown, /) -> str:
        return self._inner.describe_operation(input_, output)

    def describe_state(self, state: frozenset[S], /) -> str:
        return " or ".join(sorted(map(self._inner.describe_state, state)))
