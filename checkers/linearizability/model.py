"""Operations, and the sequential specification that they are checked against.

The vocabulary is Porcupine's (an `Operation` has a client, input, call, output and return; a
`Model` has `init`, `step`, `partition` and two `describe_...`), with three things added:

* an operation **without a return** is *unknown*: it may take effect at any moment after its call,
  or never. Its output is `UNKNOWN`, and `step` then says what it does if it does take effect.
* `read_only` names operations whose *response* says that nothing changed (reads, but also a failed
  compare-and-set, "already exists", "not found"). The search linearizes them as soon as they are
  legal, without branching; this is what makes catalog histories cheap.
* `projections` names smaller problems, each of which must be linearizable if the whole is. They
  can only refute, but far sooner than a search over the whole state.

A model is a plain class: pure functions over hashable states. Equal states must hash equally.
"""

from __future__ import annotations

import abc
import enum
import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from checkers.linearizability.direct.decision import Decision
from harness.errors import HarnessError

S = TypeVar("S")
I = TypeVar("I")  # noqa: E741 - input, as in Porcupine
O = TypeVar("O")  # noqa: E741


class Unknown(enum.Enum):
    """The type of `UNKNOWN`."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
"""The output of an operation whose answer was lost."""

STEPS_VARIABLE: Final = "HARNESS_CHECK_MAX_STEPS"
MEMORY_VARIABLE: Final = "HARNESS_CHECK_MEMORY_MIB"
MEMORY_MIB: Final = 2048
STEPS_MAX: Final = 20_000_000
CONFIGURATION_BYTES: Final = 600
"""Of three searches that remember as much, some 150 to 200 bytes each."""
NO_LIMIT: Final = 1 << 62


class Result(enum.Enum):
    """The verdict of a check, in Porcupine's words."""

    OK = "Ok"
    ILLEGAL = "Illegal"
    UNKNOWN = "Unknown"


class ModelError(HarnessError):
    """A model broke its contract, for instance called an operation read-only that is not."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[I, O]):
    """One operation. `call` and `return_time` are on one clock of any unit.

    Intervals are closed: at equal times a call comes before a return. `return_time=None` makes the
    operation unknown, with any `output`. `id` is the caller's label, which results name;
    left at -1 it becomes the operation's position.
    """

    client_id: int
    input: I
    call: float
    output: O | Unknown
    return_time: float | None
    id: int = -1
    metadata: object = None

    @property
    def is_unknown(self) -> bool:
        """Whether its answer was lost."""
        return self.return_time is None

    @property
    def said(self) -> O | Unknown:
        """The output, if it was seen."""
        return UNKNOWN if self.is_unknown else self.output


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history whose order is its position alone; `id` links a call to its return."""

    client_id: int
    is_call: bool
    value: Any
    id: int
    metadata: object = None


@dataclass(frozen=True, slots=True)
class Projection(Generic[S, I, O]):
    """A smaller problem that is linearizable whenever the whole is; operations keep their ids."""

    name: str
    model: Model[S, I, O]
    operations: tuple[Operation[I, O], ...]


def _from_environment(name: str) -> int | None:
    """A limit that the command line set for this process and its children."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() and int(text) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of a check: time, memory and steps.

    `time_s` is wall time, and `memory_mib` what the process may grow by; both are kept to within a
    second. `steps` counts attempted model steps, memoised or not, over all strategies and
    projections, and may be exceeded by the work between two looks at it (at most some thousands).
    `None` is no limit, but without one of time there are `STEPS_MAX` steps at most. With a limit of
    steps that is reached before the others, the verdict is the same on every machine.
    `configurations` is what one search may remember at once; by default as many as fit into a share
    of the memory, so that one search that is full leaves the others room.

    Explaining why a history is invalid comes on top: the first of `rounds` for every projection,
    and `shrink_steps` for making a counterexample smaller.
    """

    steps: int | None = field(default_factory=partial(_from_environment, STEPS_VARIABLE))
    configurations: int | None = None
    time_s: float | None = None
    memory_mib: int | None = field(
        default_factory=lambda: _from_environment(MEMORY_VARIABLE) or MEMORY_MIB
    )
    shrink_steps: int = 400_000
    rounds: tuple[int, ...] = field(default=(10_000, 100_000, 1_000_000, 10_000_000))

    def __post_init__(self) -> None:
        """Check the ranges; raises `ValueError`."""
        bounds = (self.steps, self.configurations, self.memory_mib)
        if any(bound is not None and bound < 1 for bound in bounds) or self.shrink_steps < 0:
            raise ValueError(f"{self}: steps, configurations and memory must be at least 1")
        if not self.rounds or min(self.rounds) < 1:
            raise ValueError(f"rounds are {self.rounds}; give at least one, each at least 1")

    def steps_max(self, time_s: float | None) -> int:
        """The steps that a check may take which has `time_s`."""
        if self.steps is not None:
            return self.steps
        return STEPS_MAX if time_s is None else NO_LIMIT

    @property
    def configurations_max(self) -> int:
        """The configurations that one search may remember."""
        if self.configurations is not None:
            return self.configurations
        return (self.memory_mib or MEMORY_MIB) * (1 << 20) // CONFIGURATION_BYTES

    def share(self, part: float) -> Limits:
        """The limits of a guess before the search, or of one of several: this part of the steps.

        Steps are limited then even if the whole is not, so that what comes after has time left.
        """
        return replace(self, steps=max(1, int((self.steps or STEPS_MAX) * part)))


class Specification(abc.ABC, Generic[S, I, O]):
    """The common part of specifications whose steps have one outcome, or several."""

    direct_first: bool = False
    """Whether `decide` comes before any search, and not only after a first, short one."""

    def observes(self, input_: I, output: O | Unknown, /) -> bool:
        """Whether this answer could have contradicted others.

        It is `False` for what says no more than that it was done, and is legal in every state, such
        as a write. No search asks; the verdict on a history without observations means nothing. A
        lost answer is never an observation.
        """
        del input_, output
        return True

    def partition(
        self, operations: Sequence[Operation[I, O]], /
    ) -> Sequence[Sequence[Operation[I, O]]]:
        """Independent parts: only where the specification is a product over them.

        An unknown operation must be kept in every part that it may touch.
        """
        return [operations]

    def decide(self, operations: Sequence[Operation[I, O]], /) -> Decision | None:
        """The verdict on one part by a direct method, or `None` where only a search can tell.

        Both verdicts must be exact. They are proven like the verdicts of a search.
        """
        del operations
        return None

    def restricted(
        self, operations: Sequence[Operation[I, O]], elements: Sequence[Hashable], /
    ) -> Sequence[Operation[I, O]]:
        """The operations, reduced to these `elements`; they keep their ids.

        It must be linearizable whenever the whole is.
        """
        raise ModelError(
            f"{type(self).__name__}.decide names the elements {elements!r}, "
            f"but {len(operations)} operations cannot be restricted to them; define restricted"
        )

    def describe_operation(self, input_: I, output: O | Unknown, /) -> str:
        """One operation, for people."""
        return f"{input_!r} -> {'unknown' if output is UNKNOWN else repr(output)}"

    def describe_state(self, state: S, /) -> str:
        """One state, for people."""
        return repr(state)


class Model(Specification[S, I, O]):
    """A sequential specification. Subclass it and override `init` and `step` at least."""

    @abc.abstractmethod
    def init(self) -> S:
        """The first state."""

    @abc.abstractmethod
    def step(self, state: S, input_: I, output: O | Unknown, /) -> tuple[bool, S]:
        """Whether the operation is legal in `state` with this output, and the state after it.

        With `UNKNOWN` as the output the operation takes effect with the outcome that `state`
        dictates: the answer is legal, or the same state where it would have failed.
        """

    def read_only(self, input_: I, output: O | Unknown, /) -> bool:
        """Whether `step` returns the very state it was given in *every* state where it is legal.

        Unknown operations for which it holds are dropped. When in doubt say `False`: it is slower
        but never wrong. The search checks the claim at every step it takes.
        """
        del input_, output
        return False

    def footprint(self, input_: I, /) -> frozenset[str] | None:
        """The parts of the state that the operation reads or writes; `None` for all of it.

        Two operations with disjoint footprints must commute: where both are legal one after
        the other, they are so in the other order, with the same state at the end. The search
        leaves aside what cannot matter to the operation that it has to place next.
        """
        del input_
        return None

    def projections(
        self, operations: Sequence[Operation[I, O]], /
    ) -> Sequence[Projection[Any, Any, Any]]:
        """Necessary conditions; see `Projection`."""
        del operations
        return []

    def for_operations(self, operations: Sequence[Operation[I, O]], /) -> Model[S, I, O]:
        """The same specification, prepared for other operations.

        A model that looked into all operations beforehand, to rule out steps that lead nowhere,
        must forget here the answers of others: a counterexample is made smaller by weakening
        operations, and what it then still proves must not rest on the ones that are gone.
        """
        del operations
        return self

    def blurred(
        self, core: Sequence[Operation[I, O]], others: Sequence[Operation[I, O]], /
    ) -> Sequence[Operation[I, O]]:
        """The `others`, with what no operation of the `core` can tell apart made equal.

        Used where the others may take effect or not as they like: a thousand ways to overwrite what
        the core looks at are then one. There must be a legal order of the core, with some of the
        others in between, exactly if there is one with the blurred others.
        """
        del core
        return others


def observations(model: Model[S, I, O], operations: Iterable[Operation[I, O]]) -> int:
    """The number of answers that could have contradicted others; without any, a verdict is void."""
    return sum(not o.is_unknown and model.observes(o.input, o.output) for o in operations)
