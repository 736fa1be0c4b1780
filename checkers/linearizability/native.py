"""Uses the native core if it is built, and the pure Python searches otherwise.

`problem_of`, `depth_first` and `breadth_first` create the objects that `problem`, `search` and
`frontier` define. If the extension module `checkers._native` (Rust, source in `native/`) is
available, these objects keep histories, memoized steps and visited sets in native memory. A model
stays plain Python and is called once per state and distinct operation. Only `Register` is stepped
natively.

The Python code is the specification: the native searches make the same moves in the same order and
count the same steps. Tests require equal results.

A history with more than 1024 operations open at once, more than 4096 operations of unknown outcome,
or times beyond 64 bits is searched in pure Python. `HARNESS_NATIVE=0` turns the native core off.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from checkers.linearizability.clock import tick
from checkers.linearizability.frontier import Configuration, Frontier, Path
from checkers.linearizability.model import UNKNOWN, Model, ModelError, Operation
from checkers.linearizability.models.register import Cas, Read, Register, Write
from checkers.linearizability.problem import Problem, Slot, Stepper, contradiction
from checkers.linearizability.search import DepthFirst, Status

SWITCH: Final = "HARNESS_NATIVE"
INTERFACE: Final = 2
"""The version of the native core's interface (`native/src/lib.rs`) that this module needs."""
STATUSES: Final = (
    Status.RUNNING,
    Status.FOUND,
    Status.EXHAUSTED,
    Status.EXHAUSTED_LEAN,
    Status.FULL,
)


class _Core(Protocol):
    """The interface of `checkers._native.Core`, which holds one history with its model."""

    initial: int
    is_native_model: bool
    model_calls: int
    read_only: list[bool]
    return_slots: list[int]
    returns: list[int]
    unknown: list[int]
    unknown_called: list[int]
    unknown_twin: list[int]

    def opens(self, position: int, reads: bool, /) -> list[Slot]: ...
    def replay(self, choices: Sequence[int], /) -> list[int]: ...
    def state(self, number: int, /) -> object: ...
    def step(self, state: int, op: int, /) -> int: ...


class _Search(Protocol):
    """The interface of `checkers._native.Search`, a resumable search over a `_Core`."""

    best: int
    configurations: int
    status: int
    steps: int

    def choices(self) -> list[int]: ...
    def remaining(
        self,
    ) -> tuple[list[tuple[list[int], list[int], int, int]], list[tuple[int, int, int]]]: ...
    def run(self, budget: int, /) -> int: ...


def _load() -> tuple[Any, str]:
    try:
        extension = importlib.import_module("checkers._native")
    except ImportError as error:
        return None, str(error)
    interface = getattr(extension, "INTERFACE", 1)
    if interface != INTERFACE:
        return None, f"it was built for interface {interface}, not {INTERFACE}"
    return extension, ""


_EXTENSION, _MISSING = _load()


def is_native() -> bool:
    """Whether checks run on the native core now."""
    return _EXTENSION is not None and os.environ.get(SWITCH) != "0"


def native_status() -> str:
    """Return one line: whether checks use the native core, and if not, why and what to do."""
    if _EXTENSION is None:
        return (
            f"native core: absent ({_MISSING}), so checks run in pure Python; "
            "install Rust (cargo) and install this package again to build it"
        )
    if not is_native():
        return f"native core: {_EXTENSION.VERSION}, switched off by {SWITCH}=0"
    return f"native core: {_EXTENSION.VERSION}, in use"


def problem_of(model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]]) -> Problem:
    """Create a `Problem`, in the native core if the core can represent the history."""
    if not is_native():
        return Problem(model, operations)
    operations = tuple(operations)

    def contradicted(input_: object, output: object, state: object) -> ModelError:
        return contradiction(model, input_, output, state)

    kind = type(model)
    hooks = (
        UNKNOWN,
        contradicted,
        (Read, Write, Cas) if kind is Register else None,
    )
    try:
        core = _EXTENSION.Core(
            _Watched(model),
            operations,
            hooks,
            getattr(kind, "read_only", None) is not Model.read_only,
            getattr(kind, "footprint", None) is not Model.footprint,
        )
    except _EXTENSION.Unsupported:
        # The native core cannot represent this history. `Problem` can, or reports an error in it.
        return Problem(model, operations)
    return NativeProblem(model, operations, core)


class _Watched:
    """A model for the native core that tests the clock before each step."""

    def __init__(self, model: Model[Any, Any, Any]) -> None:
        self._step = model.step
        self.init = model.init
        self.read_only = model.read_only
        self.footprint = model.footprint

    def step(self, state: Any, input_: Any, output: Any, /) -> tuple[bool, Any]:
        tick()
        return self._step(state, input_, output)


def depth_first(problem: Problem, *, lean: bool, configurations_max: int) -> DepthFirst:
    """Create a depth-first search, in the native core for a `NativeProblem`."""
    if isinstance(problem, NativeProblem):
        return NativeDepthFirst(problem, lean=lean, configurations_max=configurations_max)
    return DepthFirst(problem, lean=lean, configurations_max=configurations_max)


def breadth_first(problem: Problem, *, configurations_max: int) -> Frontier:
    """Create a breadth-first search, in the native core for a `NativeProblem`."""
    if isinstance(problem, NativeProblem):
        return NativeFrontier(problem, configurations_max=configurations_max)
    return Frontier(problem, configurations_max=configurations_max)


class _States:
    def __init__(self, core: _Core) -> None:
        self._core = core

    def __getitem__(self, number: int) -> object:
        return self._core.state(number)


class NativeStepper(Stepper):
    """A `Stepper` whose states and memoized steps are in the native core."""

    def __init__(self, core: _Core) -> None:
        self._core = core
        self.initial = core.initial
        self.states = cast("list[Any]", _States(core))

    def step(self, state: int, op: int) -> int:
        return self._core.step(state, op)


class _Opens:
    """The open reads or writes before each return, as tuples of (bit, operation)."""

    def __init__(self, core: _Core, *, reads: bool) -> None:
        self._core = core
        self._reads = reads

    def __getitem__(self, position: int) -> tuple[Slot, ...]:
        return tuple((1 << slot, op) for slot, op in self._core.opens(position, self._reads))


class NativeProblem(Problem):
    """A problem in the native core. Only native searches can use it."""

    def __init__(
        self, model: Model[Any, Any, Any], operations: tuple[Operation[Any, Any], ...], core: _Core
    ) -> None:
        """Copy the attributes of `Problem` that explanations need from the native core."""
        self.core = core
        self.model = model
        self.operations = operations
        self.stepper = NativeStepper(core)
        self.returns = core.returns
        self.unknown = core.unknown
        self.open_writes = cast("list[tuple[Slot, ...]]", _Opens(core, reads=False))
        self.open_reads = cast("list[tuple[Slot, ...]]", _Opens(core, reads=True))

    def replay(self, choices: Sequence[int]) -> list[int]:
        return self.core.replay(choices)


class _NativeSearch:
    """A search in the native core, with the attributes of the Python searches."""

    _search: _Search

    def _look(self) -> None:
        search = self._search
        self.status = STATUSES[search.status]
        self.steps = search.steps
        self.best = search.best
        self.configurations = search.configurations

    def run(self, budget: int) -> Status:
        self._search.run(budget)
        self._look()
        return self.status


class NativeDepthFirst(_NativeSearch, DepthFirst):
    """A depth-first search in the native core."""

    def __init__(self, problem: NativeProblem, *, lean: bool, configurations_max: int) -> None:
        self._search = _EXTENSION.Search(problem.core, False, lean, configurations_max)
        self._look()

    def choices(self) -> list[int]:
        return self._search.choices()


class NativeFrontier(_NativeSearch, Frontier):
    """A breadth-first search in the native core."""

    def __init__(self, problem: NativeProblem, *, configurations_max: int) -> None:
        self._search = _EXTENSION.Search(problem.core, True, False, configurations_max)
        self.winner = None
        self._look()

    def _look(self) -> None:
        super()._look()
        if self.status is Status.FOUND and self.winner is None:
            path: Path | None = None
            for choice in self._search.choices():
                path = Path(path, choice)
            self.winner = Configuration(0, 0, 0, path)

    def remaining(self) -> list[Configuration]:
        configurations, nodes = self._search.remaining()
        paths: dict[int, Path | None] = {-1: None}
        for node, previous, choice in nodes:
            paths[node] = Path(paths[previous], choice)
        return [
            Configuration(_mask(mask), state, _mask(used), paths[path])
            for mask, used, state, path in configurations
        ]


def _mask(indices: Sequence[int]) -> int:
    return sum(1 << index for index in indices)
