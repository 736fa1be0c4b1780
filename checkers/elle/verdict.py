"""Converts Elle's results to `CheckResult`s, with a certificate if the verdict is `invalid`.

`checkers.elle.verify.verify` derives the first case of each anomaly independently. If the verifier
refutes a case, the check has a bug, and the verdict is `unknown`. A case that the verifier cannot
decide does not change the verdict. The certificate lists such a case under `not_verified`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from harness.ops import CheckResult, History, Verdict

if TYPE_CHECKING:
    from checkers.elle import ElleResult

KINDS: Final = ("list-append", "rw-register", "closed-predicate")
"""The kinds of transactions that have a verifier. Checks of other kinds have no certificate."""

CASES_TOLD_MAX: Final = 4
SENTENCES_MAX: Final = 60
OPERATIONS_MAX: Final = 64  # The maximum number of operations per described case, and per result.
DRAWINGS_MAX: Final = 8

BROKEN: Final = "the check crashed: its own certificate does not hold for the verdict invalid"


def certified(
    result: ElleResult, history: History, kind: str, promised: Collection[str] = ()
) -> tuple[ElleResult, dict[str, Any] | None]:
    """Verify an invalid `result`; return the result and its certificate.

    If a case is refuted, the returned result is `unknown` and has no certificate. `kind` is one of
    `KINDS`. `promised` are the promises about version orders that the check assumed.
    """
    from checkers.elle.models import UNKNOWN_TYPES, canonical, impossible_models
    from checkers.elle.recorded import CaseError, NotVerified, transactions
    from checkers.elle.verify.predicates import PredicateVerifier, declared
    from checkers.elle.verify.verify import Verifier

    if result.verdict is not Verdict.INVALID or kind not in KINDS:
        return result, None
    cases = [
        first_cases[0]
        for name, first_cases in result.anomalies.items()
        if name not in UNKNOWN_TYPES
    ]
    verified: list[str] = []
    beyond: dict[str, str] = {}
    try:
        verifier: PredicateVerifier | Verifier
        if kind == "closed-predicate":
            universe, txns = declared(history)
            verifier = PredicateVerifier(txns, cases, universe)
        else:
            verifier = Verifier(transactions(history), cases, kind, promised)
        for case in cases:
            try:
                verifier.verify(case)
                verified.append(case.type)
            except NotVerified as why:
                beyond[case.type] = f"not verified independently: {why}"
    except CaseError as error:
        reason = f"{BROKEN}: {error}"  # a refuted case does not prove `invalid`
        statistics = result.statistics
        return type(result)(
            Verdict.UNKNOWN, reason, notes=result.notes, statistics=statistics
        ), None
    text = f"{len(verified)} of {len(cases)} cases verified"
    fallen = impossible_models(verified)
    if not any(canonical(model) in fallen for model in result.not_):
        text += "; by themselves they refute none of the weakest models, only the whole check does"
    certificate = {
        "verdict": result.verdict.value,
        "text": text,
        "verified": verified,
        "not_verified": beyond,
        "confirmed_by": "a verifier that derives each case from the transactions alone",
    }
    return result, certificate


def told(
    name: str, result: ElleResult, proof: Mapping[str, Any] | None, operations: int
) -> CheckResult:
    """Convert an Elle result to the result of the checker `name`.

    `proof` is the certificate, and `operations` the number of checked operations.
    """
    cases = [case for kind_cases in result.anomalies.values() for case in kind_cases]
    blamed = tuple(dict.fromkeys(index for case in cases for index in case.operations))
    details: dict[str, Any] = {
        "operations": operations,
        "configurations": 0,
        "not": list(result.not_),
        "also_not": list(result.also_not),
        "counts": dict(result.counts),
        "drawings": [case.drawing for case in cases if case.drawing][:DRAWINGS_MAX],
        "statistics": dict(result.statistics),
        "anomalies": {
            anomaly: [
                {
                    "text": list(case.text),
                    "operations": list(case.operations[:OPERATIONS_MAX]),
                    **case.details,
                }
                for case in kind_cases
            ]
            for anomaly, kind_cases in result.anomalies.items()
        },
        "notes": list(result.notes),
    }
    text = _sentences(result)
    if proof is not None:
        details["proof"] = dict(proof)
        text.append(f"Certificate: {proof['text']}.")
    return CheckResult(
        name, result.verdict, result.reason, tuple(text), blamed[:OPERATIONS_MAX], details
    )


def _sentences(result: ElleResult) -> list[str]:
    lines: list[str] = []
    for anomaly, cases in result.anomalies.items():
        count = result.counts.get(anomaly, len(cases))
        lines.append(f"{anomaly} ({count} found):")
        lines += (f"  {sentence}" for case in cases[:CASES_TOLD_MAX] for sentence in case.text)
    lines += result.notes
    if len(lines) > SENTENCES_MAX:
        lines = [*lines[:SENTENCES_MAX], f"... and {len(lines) - SENTENCES_MAX} more lines."]
    return lines
