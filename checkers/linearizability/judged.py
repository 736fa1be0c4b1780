"""Turn the outcome of a search into a proven `CheckResult`.

Checkers of runs and models of imported histories share this module; they differ only in how they
describe an invalid history, see `Told`. Every verdict gets a certificate, which
`linearizability.verify` verifies and which the result shows as `proof`. If the certificate proves
nothing, the search is wrong, and the verdict is `unknown` for that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from checkers.linearizability import (
    UNKNOWN,
    CheckOutcome,
    Failure,
    Limits,
    Model,
    Operation,
    Result,
    certify,
    observations,
)
from checkers.linearizability.certificate import Certificate
from harness.errors import counted
from harness.ops import (
    CheckResult,
    Pair,
    Verdict,
)

AnyOperation = Operation[Any, Any]

UNDECIDED: Final = "undecided"  # the rule of any other `unknown` verdict
BROKEN: Final = "the check crashed: its own certificate does not hold"
UNCONFIRMED: Final = "there is a verdict, but nothing else could confirm it in time"
OPERATIONS_MAX: Final = 64  # the maximum number in the details of a failure


def operation_of(pair: Pair, given: Any, answer: Any = UNKNOWN) -> AnyOperation:
    """The operation that `pair` records; without an `answer`, its outcome is unknown."""
    call, done = pair.invoke, pair.completion
    assert isinstance(call.process, int), "pairs are of clients only"
    returned = None if done is None or answer is UNKNOWN else done.index
    return Operation(call.process, given, call.index, answer, returned, call.index)


class Told(NamedTuple):
    """An invalid history in words: the subject, the reasons, and the operations to blame.

    `rule` is the short name of the broken rule; reports group failures by it.
    """

    subject: str
    sentences: Sequence[str]
    operations: tuple[int, ...]
    rule: str = ""


def judged(
    name: str,
    model: Model[Any, Any, Any],
    operations: Sequence[AnyOperation],
    outcome: CheckOutcome,
    *,
    tell: Callable[[Failure, Certificate], Told],
    limits: Limits,
) -> CheckResult:
    """The result of the check `name` with this `outcome`, including the proof.

    The result of an unconfirmed outcome is `unknown`. `tell` describes a confirmed failure. Raises
    `CertificateError` if the proof is wrong.
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
    """The result of the check `name` on a history that is proven to be invalid."""
    if told.rule:
        details["rule"] = told.rule
    text, blamed = tuple(told.sentences), told.operations
    reason = f"not linearizable: {told.subject}"
    return CheckResult(name, Verdict.INVALID, reason, text, blamed, details)


def details_of(
    outcome: CheckOutcome, proof: Certificate | None, operations: Sequence[AnyOperation]
) -> dict[str, Any]:
    """The details of the result: the size of the search, the proof, and the failure."""
    details: dict[str, Any] = {
        "operations": len(operations),
        "unknown": sum(operation.is_unknown for operation in operations),
        "steps": outcome.steps,
        "configurations": outcome.configurations,
        "decided_by": outcome.decided_by,
        "returns_passed": outcome.progress,
        "returns": outcome.returns,
        # A larger budget may decide the check.
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
