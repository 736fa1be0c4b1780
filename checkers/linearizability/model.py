"""Defines operations, and the sequential specifications against which they are checked.

The vocabulary is Porcupine's: an `Operation` has a client, input, call, output and return, and a
`Model` has `init`, `step`, `partition` and two methods `describe_*`. There are three additions:

* An operation **without a return** is *unknown*: it may take effect at any moment after its call,
  or never. Its output is `UNKNOWN`.
* `read_only` marks operations whose *response* says that nothing changed, such as reads and failed
  compare-and-sets. The search linearizes them as soon as they are legal, without branching.
* `projections` returns smaller problems that must all be linearizable if the whole history is. A
  search of a projection can refute a history far sooner than a search over the whole state.

A model is a plain class with pure functions over hashable states. Equal states must hash equally.
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
from harness.exact import whole_number

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
"""A search may remember one configuration for each 600 bytes of the memory limit.

A configuration takes 150 to 200 bytes, and three searches share the memory.
"""
NO_LIMIT: Final = 1 << 62


class Result(enum.Enum):
    """The verdict of a check, in Porcupine's words."""

    OK = "Ok"
    ILLEGAL = "Illegal"
    UNKNOWN = "Unknown"


class ModelError(HarnessError):
    """A model broke its contract, for example by a read-only operation that changes the state."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[I, O]):
    """One operation. `call` and `return_time` are on the same clock, in any unit.

    Intervals are closed: at equal times a call comes before a return. An operation with
    `return_time=None` has an unknown outcome, even if it has an `output`. Results refer to
    operations by `id`. An `id` of -1 is replaced by the operation's position.
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
        """Whether the operation's answer was lost."""
        return self.return_time is None

    @property
    def said(self) -> O | Unknown:
        """The output, or `UNKNOWN` if the answer was lost."""
        return UNKNOWN if self.return_time is None else self.output


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a history that is ordered by position alone. `id` links a call to its return."""

    client_id: int
    is_call: bool
    value: Any
    id: int
    metadata: object = None


@dataclass(frozen=True, slots=True)
class Projection(Generic[S, I, O]):
    """A smaller problem that is linearizable if the history is. Operations keep their ids."""

    name: str
    model: Model[S, I, O]
    operations: tuple[Operation[I, O], ...]


def _from_environment(name: str) -> int | None:
    """Return the positive integer in the environment variable `name`, or `None`.

    The command line sets limits in environment variables, so that child processes inherit them.
    """
    return whole_number(os.environ.get(name, "")) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a check on time, memory and steps.

    `time_s` is wall time, and `memory_mib` is the permitted growth of the process. `steps` counts
    attempted model steps over all searches and projections. `None` means no limit, but without
    `steps` and `time_s`, a check takes at most `STEPS_MAX` steps. If the step limit is reached
    first, the verdict is the same on every machine. `configurations` is the maximum number of
    configurations that one search may remember. Its default depends on `memory_mib`.

    The explanation of an invalid history takes additional steps: the first budget in `rounds` for
    every projection, and `shrink_steps` for making a counterexample smaller.
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
        bounds = (self.steps, self.configurations, self.memory_mib)
        if any(bound is not None and bound < 1 for bound in bounds) or self.shrink_steps < 0:
            raise ValueError(f"{self}: steps, configurations and memory must be at least 1")
        if not self.rounds or min(self.rounds) < 1:
            raise ValueError(
                f"the budgets in rounds are {self.rounds}; give at least one budget, each of at "
                "least 1 step"
            )

    def steps_max(self, time_s: float | None) -> int:
        """Return the maximum number of steps for a check with the time limit `time_s`."""
        if self.steps is not None:
            return self.steps
        return STEPS_MAX if time_s is None else NO_LIMIT

    @property
    def configurations_max(self) -> int:
        """The maximum number of configurations that one search may remember."""
        if self.configurations is not None:
            return self.configurations
        return (self.memory_mib or MEMORY_MIB) * (1 << 20) // CONFIGURATION_BYTES

    def share(self, part: float) -> Limits:
        """Return limits with the share `part` of the steps, for an attempt before the main search.

        The steps of an attempt are always limited, so that time is left for the main search.
        """
        return replace(self, steps=max(1, int((self.steps or STEPS_MAX) * part)))


class Specification(abc.ABC, Generic[S, I, O]):
    """The base class of specifications whose steps have one outcome or several outcomes."""

    direct_first: bool = False
    """Whether `decide` runs before any search. Otherwise it runs after a first, short search."""

    def observes(self, input_: I, output: O | Unknown, /) -> bool:
        """Whether the answer `output` could have contradicted other answers.

        Return `False` for an operation, such as a write, that is legal in every state and whose
        answer shows nothing about the state. This method serves to count observations: a verdict on
        a history without observations means nothing. A lost answer is never an observation.
        """
        del input_, output
        return True

    def partition(
        self, operations: Sequence[Operation[I, O]], /
    ) -> Sequence[Sequence[Operation[I, O]]]:
        """Split the operations into parts that can be checked independently; by default one part.

        An operation of unknown outcome must be in every part that it may touch.
        """
        return [operations]

    def decide(self, operations: Sequence[Operation[I, O]], /) -> Decision | None:
        """Decide one part by a direct method; `None` if only a search can decide.

        Both verdicts, "valid" and "invalid", must be exact. They are proven like a search's
        verdict.
        """
        del operations
        return None

    def restricted(
        self, operations: Sequence[Operation[I, O]], elements: Sequence[Hashable], /
    ) -> Sequence[Operation[I, O]]:
        """Reduce the operations to their effects on `elements`. Operations keep their ids.

        The result must be linearizable if `operations` are.
        """
        raise ModelError(
            f"{type(self).__name__}.decide names the elements {elements!r}, "
            f"but {len(operations)} operations cannot be restricted to them; define restricted"
        )

    def describe_operation(self, input_: I, output: O | Unknown, /) -> str:
        """Describe one operation in words, for reports."""
        return f"{input_!r} -> {'unknown' if output is UNKNOWN else repr(output)}"

    def describe_state(self, state: S, /) -> str:
        """Describe one state in words, for reports."""
        return repr(state)


class Model(Specification[S, I, O]):
    """A sequential specification. Subclasses override at least `init` and `step`."""

    @abc.abstractmethod
    def init(self) -> S:
        """Return the initial state."""

    @abc.abstractmethod
    def step(self, state: S, input_: I, output: O | Unknown, /) -> tuple[bool, S]:
        """Return whether the operation is legal in `state` with this output, and the next state.

        If the output is `UNKNOWN`, the operation is legal. If the operation would then fail in
        `state`, the next state is `state`.
        """

    def read_only(self, input_: I, output: O | Unknown, /) -> bool:
        """Whether `step` returns its state unchanged in *every* state that allows the operation.

        A search leaves out read-only operations of unknown outcome, and raises an error if a
        read-only operation changes a state. When in doubt, return `False`: this makes a check
        slower, but never wrong.
        """
        del input_, output
        return False

    def footprint(self, input_: I, /) -> frozenset[str] | None:
        """Return the parts of the state that the operation touches; `None` for the whole state.

        Two operations with disjoint footprints must commute: if they are legal in one order, they
        are also legal in the other order, with the same final state. The search ignores operations
        that cannot affect the operation that it has to place next.
        """
        del input_
        return None

    def projections(
        self, operations: Sequence[Operation[I, O]], /
    ) -> Sequence[Projection[Any, Any, Any]]:
        """Return smaller problems that are linearizable if all `operations` are."""
        del operations
        return []

    def for_operations(self, operations: Sequence[Operation[I, O]], /) -> Model[S, I, O]:
        """Return the same specification, with hints from the answers of `operations` only.

        Hints let a model look ahead at answers, to rule out steps that lead nowhere. The returned
        model must not use the answers of other operations, since a proof must not depend on them.
        """
        del operations
        return self

    def blurred(
        self, core: Sequence[Operation[I, O]], others: Sequence[Operation[I, O]], /
    ) -> Sequence[Operation[I, O]]:
        """Make operations in `others` equal if no operation of the `core` can tell them apart.

        Each of the `others` is optional: it may take effect or not. With this method, a thousand
        ways to overwrite a value that the core reads become a single way. The core must have a
        legal order with some of the returned operations if and only if it has one with some of the
        `others`.
        """
        del core
        return others


def observations(model: Model[S, I, O], operations: Iterable[Operation[I, O]]) -> int:
    """Count the answers that could contradict others. Without any, a verdict means nothing."""
    return sum(not o.is_unknown and model.observes(o.input, o.output) for o in operations)
