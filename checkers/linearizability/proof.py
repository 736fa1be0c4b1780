"""Proves the verdict of a linearizability check, and makes the `CheckResult` that reports it.

`judged` turns the outcome of a check into a result. `certify` proves the outcome by a
`Certificate`, which `verify` verifies:

* valid: one legal order for each part, and the operations of unknown outcome that never took
  effect. An order is always replayed completely.
* invalid: a core of operations (see `core`) and the problem in which they contradict each other:
  the whole history, one of its parts, or one of the model's projections.

If the verifier needs too many steps to enumerate a core, searches in pure Python try to confirm it.
If these do not finish either, they try the core that consists of all returned operations.

`CertificateError` is raised if a proof is wrong. If no method confirms a certificate within the
limits, its `confirmed_by` is empty, and the verdict is `unknown`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from checkers.linearizability.clock import Clock, LimitReachedError, tick
from checkers.linearizability.core import relaxed
from checkers.linearizability.explain import Failure, named
from checkers.linearizability.frontier import Frontier
from checkers.linearizability.model import (
    UNKNOWN,
    Limits,
    Model,
    Operation,
    Projection,
    Result,
    observations,
)
from checkers.linearizability.problem import Problem
from checkers.linearizability.rounds import CheckOutcome
from checkers.linearizability.search import DepthFirst, Status, run_sliced
from checkers.linearizability.verify import CertificateError, verify_core, verify_orders
from harness.errors import counted
from harness.ops import CheckResult, Pair, Verdict

AnyOperation = Operation[Any, Any]

UNDECIDED: Final = "undecided"
BROKEN: Final = "the check crashed: its own certificate does not hold"
UNCONFIRMED: Final = "a search found a verdict, but no independent method could confirm it in time"
OPERATIONS_MAX: Final = 64  # the maximum number of operations in each list of a result's details
VERIFIER_STEPS_MAX: Final = 300_000
# the maximum size of a core to enumerate, since steps take longer for larger cores
VERIFIER_CORE_MAX: Final = 200
CONFIRM_S_MAX: Final = 60.0  # the maximum time to confirm a core
# the time to confirm a verdict even if the check has no time left
CONFIRM_S_MIN: Final = 0.5
SHOWN_MAX: Final = 100_000  # the maximum number of ids in the orders of a result
ENUMERATION: Final = "the verifier, by enumeration"
REPLAY: Final = "the verifier, by replay"


def operation_of(pair: Pair, given: Any, answer: Any = UNKNOWN) -> AnyOperation:
    """Convert `pair` to an operation whose input is `given`.

    If `answer` is `UNKNOWN`, the operation has an unknown outcome.
    """
    call, done = pair.invoke, pair.completion
    assert isinstance(call.process, int), "only clients invoke operations"
    returned = None if done is None or answer is UNKNOWN else done.index
    return Operation(call.process, given, call.index, answer, returned, call.index)


class Told(NamedTuple):
    """The description of an invalid history: its subject, reasons, and operations to blame.

    `rule` is the short name of the broken rule. Reports group failures by this rule.
    """

    subject: str
    sentences: Sequence[str]
    operations: tuple[int, ...]
    rule: str = ""


def offenders(failure: Failure) -> tuple[int, ...]:
    """Return the operations to blame: the failing operation and the rest of its core.

    If the core is too large, the operation before the failing operation replaces the rest.
    """
    core = [index for index in failure.core if index != failure.operation]
    if len(core) >= OPERATIONS_MAX:
        core = [] if failure.previous is None else [failure.previous]
    return (failure.operation, *core)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The proof of one verdict. All numbers are operation ids.

    A certificate for `OK` has `orders` and `never` (the operations that never took effect). A
    certificate for `ILLEGAL` has `core`, `minimal`, and `part` (the name of the problem in which
    the core contradicts itself). `confirmed_by` names the method that confirmed the proof.
    """

    verdict: Result
    orders: tuple[tuple[int, ...], ...] = ()
    never: tuple[int, ...] = ()
    core: tuple[int, ...] = ()
    minimal: bool = False
    part: str = ""
    confirmed_by: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as plain data, without orders if they have over 100,000 ids."""
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


def judged(
    name: str,
    model: Model[Any, Any, Any],
    operations: Sequence[AnyOperation],
    outcome: CheckOutcome,
    *,
    tell: Callable[[Failure, Certificate], Told],
    limits: Limits,
) -> CheckResult:
    """Prove `outcome` and return the result of the check `name`, with the proof in its details.

    The verdict is `unknown` if no method confirms the proof. `tell` describes a confirmed failure.
    Raises `CertificateError` if the proof is wrong.
    """
    proof = certify(model, operations, outcome, limits=limits)
    details = details_of(outcome, proof, operations)
    details["looked"] = {"answers": observations(model, operations)}
    if proof is None or not proof.confirmed_by:
        details["rule"] = UNDECIDED
        reason = outcome.reason if proof is None else UNCONFIRMED
        return CheckResult(name, Verdict.UNKNOWN, reason, details=details)
    failure = outcome.failure
    if failure is None:
        count = counted(len(operations), "operation")
        verb = "is" if len(operations) == 1 else "are"
        reason = f"{count} ({details['unknown']} of unknown outcome) {verb} linearizable"
        return CheckResult(name, Verdict.VALID, reason, details=details)
    return convicted(name, tell(failure, proof), details)


def convicted(name: str, told: Told, details: dict[str, Any]) -> CheckResult:
    """Return the result of the check `name` on a history that is proven to be invalid."""
    if told.rule:
        details["rule"] = told.rule
    text, blamed = tuple(told.sentences), told.operations
    reason = f"not linearizable: {told.subject}"
    return CheckResult(name, Verdict.INVALID, reason, text, blamed, details)


def certify(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    outcome: CheckOutcome,
    *,
    limits: Limits | None = None,
) -> Certificate | None:
    """Return a certificate of `outcome`, confirmed if possible; `None` if it is undecided.

    `operations` are the operations that `check_operations` checked. Raises `CertificateError` if
    the outcome is wrong, and `ValueError` for an illegal outcome without an explanation.
    """
    labelled = [o if o.id >= 0 else replace(o, id=n) for n, o in enumerate(operations)]
    if outcome.result is Result.OK:
        return _certify_orders(model, labelled, outcome, limits or Limits())
    if outcome.result is Result.UNKNOWN:
        return None
    failure = outcome.failure
    if failure is None:
        raise ValueError(
            "the invalid outcome has no core to prove; call check_operations with explained=True"
        )
    return certify_core(
        _part(model, labelled, failure),
        failure.core,
        minimal=failure.core_minimal,
        limits=limits,
        end_s=outcome.end_s,
    )


def _left_s(end_s: float) -> float:
    return max(CONFIRM_S_MIN, end_s - time.monotonic())


def _certify_orders(
    model: Model[Any, Any, Any],
    operations: Sequence[Operation[Any, Any]],
    outcome: CheckOutcome,
    limits: Limits,
) -> Certificate:
    if outcome.witness is None:
        raise CertificateError("the verdict is valid, but there is no order of its operations")
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
    """Return the problem in which the core of `failure` contradicts itself."""
    if failure.projection and not failure.elements:
        for view in model.projections(operations):
            if view.name == failure.projection:
                return view
        raise CertificateError(f"the model has no projection {failure.projection}")
    parts = [part for part in model.partition(operations) if part]
    for number, part in enumerate(parts):
        if set(failure.core) <= {operation.id for operation in part}:
            if failure.elements:
                kept = tuple(model.restricted(part, failure.elements))
                return Projection(named(failure.elements), model, kept)
            name = "the whole history" if len(parts) == 1 else f"partition {number}"
            return Projection(name, model, tuple(part))
    raise CertificateError(f"core {failure.core} is in no part of the history")


def certify_core(
    part: Projection[Any, Any, Any],
    core: Sequence[int],
    *,
    minimal: bool,
    limits: Limits | None = None,
    end_s: float = math.inf,
) -> Certificate:
    """Return a certificate that `core` contradicts itself in `part`.

    `end_s` is the deadline on the monotonic clock. Raises `CertificateError` if `core` has a legal
    order.
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
    """Confirm `core`, or if that fails the core that consists of all returned operations.

    Returns the core, whether it is minimal, and the name of the method that confirmed it. The name
    is empty if no method confirmed the core.
    """
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
    # Next, take all returned operations as the core. With fewer optional operations, a search has
    # fewer possibilities to try.
    core = [operation.id for operation in part.operations if not operation.is_unknown]
    return core, False, _confirm(part, core, limits, steps, clock)


def _confirm(
    part: Projection[Any, Any, Any], core: Sequence[int], limits: Limits, steps: int, clock: Clock
) -> str:
    """Confirm `core` by searches in Python; return the name of the search that confirmed it.

    Returns an empty name if no search finishes in time. The native breadth-first search found the
    core, so an independent implementation must confirm it.
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


def details_of(
    outcome: CheckOutcome, proof: Certificate | None, operations: Sequence[AnyOperation]
) -> dict[str, Any]:
    """Return the details of a result, with the size of the search, the proof and the failure."""
    details: dict[str, Any] = {
        "operations": len(operations),
        "unknown": sum(operation.is_unknown for operation in operations),
        "steps": outcome.steps,
        "configurations": outcome.configurations,
        "decided_by": outcome.decided_by,
        "returns_passed": outcome.progress,
        "returns": outcome.returns,
        "limited": outcome.result is Result.UNKNOWN
        or (proof is not None and not proof.confirmed_by),
    }
    if proof is not None:
        details["proof"] = proof.to_json()
    failure = outcome.failure
    if failure is not None:
        details["failure"] = {
            "operation": failure.operation,
            "previous": failure.previous,
            "core": list(failure.core[:OPERATIONS_MAX]),
            "core_minimal": failure.core_minimal,
            "weakened": len(failure.weakened),
            "projection": failure.projection,
            "survivors_total": failure.survivors_total,
            "survivors": [
                {
                    "state": survivor.state_text[:2000],
                    "last": list(survivor.order[-10:]),
                    "pending": list(survivor.pending[:OPERATIONS_MAX]),
                    "unknown_used": list(survivor.unknown_used[:OPERATIONS_MAX]),
                }
                for survivor in failure.survivors
            ],
        }
    return details
