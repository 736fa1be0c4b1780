"""A verdict with its proof, checked before anybody sees it.

`certify` turns what a check found into a `Certificate` and has `verify` go over it:

* valid: one legal order for each part, and the operations of unknown outcome that never took
  effect. Replaying it is near-linear, so it is always done in full.
* invalid: a core of operations (see `core`) and the problem in which they contradict each other:
  the whole history, one of its parts, or one of the model's projections.

Where enumerating a core takes too many steps, another search than the one that found it confirms:
the depth-first one, in pure Python; and where that does not come to an end either, it confirms the
whole history instead. The certificate says who confirmed what. All of that ends after a number of
steps, after `CONFIRM_S_MAX` seconds, and with the time of the check, or shortly after it.

A certificate that turns out to prove nothing raises `CertificateError`; one that could not be
confirmed within the limits has an empty `confirmed_by`, and its verdict should not be passed on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from checkers.linearizability.clock import Clock, LimitReachedError, tick
from checkers.linearizability.core import relaxed
from checkers.linearizability.explain import Failure, named
from checkers.linearizability.frontier import Frontier
from checkers.linearizability.model import Limits, Model, Operation, Projection, Result
from checkers.linearizability.problem import Problem
from checkers.linearizability.rounds import CheckOutcome
from checkers.linearizability.search import DepthFirst, Status, run_sliced
from checkers.linearizability.verify import CertificateError, verify_core, verify_orders

VERIFIER_STEPS_MAX: Final = 300_000
VERIFIER_CORE_MAX: Final = 200  # operations; each configuration costs as much to expand
CONFIRM_S_MAX: Final = 60.0  # for a core
CONFIRM_S_MIN: Final = 0.5  # even where the check has no time left
SHOWN_MAX: Final = 100_000  # ids of an order that go into a result
ENUMERATION: Final = "the verifier, by enumeration"
REPLAY: Final = "the verifier, by replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The proof of one verdict. All numbers are operation ids.

    `orders` and `never` belong to `OK`; `core`, `minimal` and `part` to `ILLEGAL`. `part` names the
    problem in which the core contradicts itself.
    """

    verdict: Result
    orders: tuple[tuple[int, ...], ...] = ()
    never: tuple[int, ...] = ()
    core: tuple[int, ...] = ()
    minimal: bool = False
    part: str = ""
    confirmed_by: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data; orders longer than 100,000 ids in all are left out, which it then says."""
        if self.verdict is Result.ILLEGAL:
            return {
                "core": list(self.core),
                "minimal": self.minimal,
                "part": self.part,
                "confirmed_by": self.confirmed_by,
            }
        total = sum(len(order) for order in self.orders)
        details: dict[str, Any] = {"orders": [list(order) for order in self.orders]}
        if total > SHOWN_MAX:
            details = {"orders_left_out": f"{total} ids are more than {SHOWN_MAX}"}
        return {**details, "never": list(self.never), "confirmed_by": self.confirmed_by}


def certify(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    outcome: CheckOutcome,
    *,
    limits: Limits | None = None,
) -> Certificate | None:
    """The verified certificate of `outcome`, which is about `operations`; `None` if undecided.

    `operations` are those given to `check_operations`. Raises `CertificateError` when the outcome
    does not hold, and `ValueError` for an invalid one that was not explained.
    """
    labelled = [o if o.id >= 0 else replace(o, id=n) for n, o in enumerate(operations)]
    if outcome.result is Result.OK:
        return _certify_orders(model, labelled, outcome, limits or Limits())
    if outcome.result is Result.UNKNOWN:
        return None
    failure = outcome.failure
    if failure is None:
        raise ValueError("an invalid outcome without a core; check with explained=True")
    return certify_core(
        _part(model, labelled, failure),
        failure.core,
        minimal=failure.core_minimal,
        limits=limits,
        end_s=outcome.end_s,
    )


def _left_s(end_s: float) -> float:
    """The time left to confirm a verdict, which is more than nothing."""
    return max(CONFIRM_S_MIN, end_s - time.monotonic())


def _certify_orders(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    outcome: CheckOutcome,
    limits: Limits,
) -> Certificate:
    if outcome.witness is None:
        raise CertificateError("the verdict is valid, but there is no order")
    confirmed = REPLAY
    with Clock(_left_s(outcome.end_s), limits.memory_mib).running():
        try:
            verify_orders(model, operations, outcome.witness, watch=tick)
        except LimitReachedError:
            confirmed = ""
    placed = {number for order in outcome.witness for number in order}
    return Certificate(
        verdict=Result.OK,
        orders=outcome.witness,
        never=tuple(o.id for o in operations if o.id not in placed),
        confirmed_by=confirmed,
    )


def _part(
    model: Model[Any, Any, Any], operations: Sequence[Operation[Any, Any]], failure: Failure
) -> Projection[Any, Any, Any]:
    """The problem in which the core contradicts itself."""
    if failure.projection and not failure.elements:
        for view in model.projections(operations):
            if view.name == failure.projection:
                return view
        raise CertificateError(f"there is no projection {failure.projection}")
    parts = [part for part in model.partition(operations) if part]
    for number, part in enumerate(parts):
        if set(failure.core) <= {operation.id for operation in part}:
            if failure.elements:
                kept = tuple(model.restricted(part, failure.elements))
                return Projection(named(failure.elements), model, kept)
            name = "the whole history" if len(parts) == 1 else f"partition {number}"
            return Projection(name, model, tuple(part))
    raise CertificateError(f"core {failure.core} is in no part")


def certify_core(
    part: Projection[Any, Any, Any],
    core: Sequence[int],
    *,
    minimal: bool,
    limits: Limits | None = None,
    end_s: float = math.inf,
) -> Certificate:
    """A certificate that `core` contradicts itself in `part`; raises `CertificateError` if not.

    `end_s` is when there should be one, on the monotonic clock.
    """
    limits = limits or Limits()
    clock = Clock(min(CONFIRM_S_MAX, _left_s(end_s)), limits.memory_mib)
    with clock.running():
        try:
            core, minimal, confirmed = _confirmed(part, core, minimal, limits, clock)
        except LimitReachedError:
            confirmed = ""
    return Certificate(
        verdict=Result.ILLEGAL,
        core=tuple(core),
        minimal=minimal,
        part=part.name,
        confirmed_by=confirmed,
    )


def _confirmed(
    part: Projection[Any, Any, Any],
    core: Sequence[int],
    minimal: bool,
    limits: Limits,
    clock: Clock,
) -> tuple[Sequence[int], bool, str]:
    """The core, or all that returned; whether it is minimal; and its source, `""` unproven."""
    if len(core) <= VERIFIER_CORE_MAX and verify_core(
        part.model,
        part.operations,
        core,
        steps_max=VERIFIER_STEPS_MAX,
        watch=tick,
    ):
        return core, minimal, ENUMERATION
    steps = limits.steps_max(CONFIRM_S_MAX)
    confirmed = _confirm(part, core, limits, steps // 10, clock)
    if confirmed:
        return core, minimal, confirmed
    # All operations together leave a search the least to try.
    core = [operation.id for operation in part.operations if not operation.is_unknown]
    return core, False, _confirm(part, core, limits, steps, clock)


def _confirm(
    part: Projection[Any, Any, Any], core: Sequence[int], limits: Limits, steps: int, clock: Clock
) -> str:
    """The method that confirms the core; `""` if none does in time.

    Cores are found breadth-first, natively where that is possible; so the others are the
    depth-first search, and the breadth-first one in Python.
    """
    problem = Problem(*relaxed(part.model, part.operations, set(core)))
    most = limits.configurations_max
    searches: tuple[tuple[str, DepthFirst | Frontier], ...] = (
        ("the depth-first search", DepthFirst(problem, lean=False, configurations_max=most)),
        ("the breadth-first search in Python", Frontier(problem, configurations_max=most)),
    )
    for name, search in searches:
        run_sliced(search, steps, clock.is_over)
        if search.status is Status.FOUND:
            raise CertificateError(f"core {tuple(core)} has a legal order, says {name}")
        if search.status is Status.EXHAUSTED:
            return f"{name}, since the core is too large to enumerate"
    return ""
