"""Reduces an invalid history to the few operations that contradict each other.

A *core* is a set of operations whose answers cannot all be right, no matter how the other
operations ended. Each other operation is **optional**: it may take effect with its recorded answer
at any moment after its call, or never. So a core refutes the whole history. A core is *minimal* if
making any of its operations optional makes the history linearizable. It is enough to try each
operation once. If a trial runs out of steps, the operation stays in the core, and the core does not
count as minimal.

The search first makes as many of the earliest returned operations optional as it can, by bisection,
because most contradictions are in a short window. Then it makes chunks of operations optional and
halves the chunk size down to one (delta debugging, after Zeller and Hildebrandt 2002).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkers.linearizability.clock import LimitReachedError
from checkers.linearizability.model import Limits, Model, Operation, Result, Unknown
from checkers.linearizability.native import breadth_first, depth_first, problem_of
from checkers.linearizability.search import Status, run_sliced

STEPS_PER_TRIAL = 20_000
# the steps of the lean search (see `search`), which usually needs fewer to find a legal order
LEAN_STEPS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A set of operations, given by their ids, that contradict each other.

    `weakened` has the ids of the optional operations that can change the state.
    """

    operations: tuple[int, ...]
    weakened: tuple[int, ...]
    minimal: bool


class Recorded(Model[Any, Any, Any]):
    """A model in which an optional operation takes effect with its recorded answer, or not at all.

    A search ignores the output of an operation without a return. So the input of this model
    contains the recorded answer.
    """

    def __init__(self, model: Model[Any, Any, Any]) -> None:
        self._model = model

    def init(self) -> Any:
        return self._model.init()

    def step(self, state: Any, input_: Any, output: Any | Unknown, /) -> tuple[bool, Any]:
        del output
        return self._model.step(state, input_[0], input_[1])

    def read_only(self, input_: Any, output: Any | Unknown, /) -> bool:
        del output
        return self._model.read_only(input_[0], input_[1])

    def footprint(self, input_: Any, /) -> frozenset[str] | None:
        return self._model.footprint(input_[0])


def relaxed(
    model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]], core: set[int]
) -> tuple[Model[Any, Any, Any], list[Operation[Any, Any]]]:
    """Return a `Recorded` model and operations for it. Operations outside `core` are optional."""
    chosen = [o for o in operations if o.id in core]
    end = max((o.return_time for o in chosen if o.return_time is not None), default=0)
    # Leave out operations called after the whole core had returned, and operations that change
    # nothing. Neither can affect the core.
    others = [
        o
        for o in operations
        if o.id not in core and o.call <= end and not model.read_only(o.input, o.said)
    ]
    kept = [*chosen, *model.blurred(chosen, others)]
    weakened = [o if o.id in core else replace(o, return_time=None) for o in kept]
    # A model may look ahead at outputs (`for_operations`), so it sees only the outputs of the core.
    hinted = model.for_operations(weakened)
    pairs: list[Operation[Any, Any]] = []
    for operation, weaker in zip(kept, weakened, strict=True):
        answer = operation.said
        input_ = (operation.input, answer, type(operation.input), type(answer))
        pairs.append(replace(weaker, input=input_, output=answer))
    return Recorded(hinted), pairs


@dataclass(slots=True)
class _Trials:
    model: Model[Any, Any, Any]
    operations: Sequence[Operation[Any, Any]]
    configurations_max: int
    left: int
    is_over: Callable[[], bool]

    @property
    def exhausted(self) -> bool:
        return self.left <= 0 or self.is_over()

    def decide(self, core: set[int]) -> Result:
        """Decide whether `core` is linearizable if all other operations are optional.

        Returns `UNKNOWN` if the budget runs out.
        """
        if self.exhausted:
            return Result.UNKNOWN
        try:
            return self._tried(core)
        except LimitReachedError:
            return Result.UNKNOWN

    def _tried(self, core: set[int]) -> Result:
        problem = problem_of(*relaxed(self.model, self.operations, core))
        most = self.configurations_max
        self.left -= len(self.operations)
        lean = depth_first(problem, lean=True, configurations_max=most)
        run_sliced(lean, min(LEAN_STEPS, max(1, self.left)), self.is_over)
        self.left -= lean.steps
        if lean.status is Status.FOUND:
            return Result.OK
        breadth = breadth_first(problem, configurations_max=most)
        run_sliced(breadth, min(STEPS_PER_TRIAL, max(1, self.left)), self.is_over)
        self.left -= breadth.steps
        return {Status.EXHAUSTED: Result.ILLEGAL, Status.FOUND: Result.OK}.get(
            breadth.status, Result.UNKNOWN
        )

    def refutes(self, core: set[int]) -> bool:
        return self.decide(core) is Result.ILLEGAL


def find_core(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    first: set[int],
    failing: int,
    limits: Limits,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> Core:
    """Return a small core of `operations`: a subset that is not linearizable.

    The search starts with the ids in `first`: the operations that had returned when operation
    `failing` returned. `limits.shrink_steps` bounds the work. If it is 0, the core consists of all
    operations that returned.
    """
    everything = [o for o in operations if not o.is_unknown]
    everything.sort(key=lambda o: (o.return_time, o.id))
    trials = _Trials(model, operations, limits.configurations_max, limits.shrink_steps, is_over)
    # The contradiction may need an operation that was open at the failing return. Then `first` is
    # no core, and the search starts with all operations.
    ids = [o.id for o in everything if o.id in first]
    if len(ids) == len(everything) or not trials.refutes(set(ids)):
        ids = [o.id for o in everything]
    ids = _window(trials, ids)
    needed: set[int] = set()
    core = set(ids)
    candidates = [number for number in ids if number != failing]
    size = max(1, len(candidates) // 2)
    while candidates and not trials.exhausted:
        candidates = _drop_chunks(trials, core, candidates, size, needed)
        if size == 1:
            break
        size = max(1, min(size, len(candidates)) // 2)
    if failing in core and failing not in needed:
        _drop_chunks(trials, core, [failing], 1, needed)
    return _core(model, operations, core, needed)


def _core(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    core: set[int],
    needed: set[int],
) -> Core:
    weakened = [
        o.id for o in operations if o.id not in core and not model.read_only(o.input, o.said)
    ]
    return Core(
        operations=tuple(sorted(core)), weakened=tuple(sorted(weakened)), minimal=core <= needed
    )


def shrink_core(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    core: set[int],
    limits: Limits,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> Core:
    """Reduce `core`, which a direct method found, to the operations that it needs.

    If no trial confirms `core` within the limits, it is returned unchanged.
    """
    trials = _Trials(model, operations, limits.configurations_max, limits.shrink_steps, is_over)
    core, needed = set(core), set[int]()
    if trials.refutes(core):
        _drop_chunks(trials, core, sorted(core), 1, needed)
    return _core(model, operations, core, needed)


def _window(trials: _Trials, ids: list[int]) -> list[int]:
    """Return the shortest tail of `ids` (in the order of returns) that is still a core."""
    # ids[low:] is a core, and ids[high:] is not
    low, high = 0, len(ids) - 1
    while low < high and not trials.exhausted:
        middle = (low + high + 1) // 2
        if trials.refutes(set(ids[middle:])):
            low = middle
        else:
            high = middle - 1
    return ids[low:]


def _drop_chunks(
    trials: _Trials, core: set[int], candidates: list[int], size: int, needed: set[int]
) -> list[int]:
    """Drop each chunk of `candidates` from `core` if the rest is still a core.

    Returns the candidates that stay in `core`. An operation goes into `needed` if dropping this
    operation alone makes `core` linearizable.
    """
    kept: list[int] = []
    for start in range(0, len(candidates), size):
        chunk = candidates[start : start + size]
        verdict = trials.decide(core - set(chunk)) if len(chunk) < len(core) else Result.OK
        if verdict is Result.ILLEGAL:
            core -= set(chunk)
            continue
        kept.extend(chunk)
        if verdict is Result.OK and len(chunk) == 1:
            needed |= set(chunk)
    return kept
