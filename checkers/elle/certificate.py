"""The certificate of Elle's verdicts: what `checkers.elle.verify.verify` says of the cases shown.

The first case of each anomaly is gone over. If one is not there, the check is wrong and its verdict
is no verdict. What the verifier has no simple means to derive (the existence of a cycle that nobody
showed, say) is not refuted by that: it keeps its verdict, and the certificate says that nothing but
the check itself stands for it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from harness.ops import History, Verdict

if TYPE_CHECKING:
    from checkers.elle import ElleResult

KINDS: Final = ("list-append", "rw-register", "closed-predicate")
"""What the verifier knows; whatever else is checked goes without a certificate."""

BROKEN: Final = "the check crashed: its own certificate does not hold for the verdict invalid"


def certified(
    result: ElleResult, history: History, kind: str, promised: Collection[str] = ()
) -> tuple[ElleResult, dict[str, Any] | None]:
    """The result, or `unknown` in its place; and the certificate, if it was about cases.

    `kind` is one of `KINDS`, `promised` what the check was allowed to assume.
    """
    from checkers.elle.models import UNKNOWN_TYPES, canonical, impossible_models
    from checkers.elle.verify.predicates import PredicateVerifier, declared
    from checkers.elle.verify.verify import CaseError, NotVerified, Verifier, transactions

    if result.verdict is not Verdict.INVALID or kind not in KINDS:
        return result, None
    cases = [found[0] for name, found in result.anomalies.items() if name not in UNKNOWN_TYPES]
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
        reason = f"{BROKEN}: {error}"  # and nothing else is claimed
        statistics = result.statistics
        return type(result)(
            Verdict.UNKNOWN, reason, notes=result.notes, statistics=statistics
        ), None
    text = f"{len(verified)} of {len(cases)} cases verified"
    fallen = impossible_models(verified)
    if not any(canonical(model) in fallen for model in result.not_):
        text += ", none of which refutes a weakest model by itself: the check alone stands for that"
    certificate = {
        "verdict": result.verdict.value,
        "text": text,
        "verified": verified,
        "not_verified": beyond,
        "confirmed_by": "a verifier that derives each case from the transactions alone",
    }
    return result, certificate
