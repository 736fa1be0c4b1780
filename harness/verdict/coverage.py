"""Coverage: makes the verdict `unknown` if a check left out too many cases.

For each of its checks, a checker counts two kinds of cases (`{"acknowledged": 36}`): the ones that
it judged (`details["looked"]`), and the ones that it left out because something else explains them
(`details["exempt"]`). If a check left out more than half of its cases, `valid` or `permitted`
becomes `unknown`, with the reason. The counts of all checkers go into the certificate of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from harness.errors import counted, listed
from harness.ops import CheckResult, Verdict

INVARIANTS: Final = "invariants"
"""The key in a result's details that maps each invariant to how many cases of it were judged."""
EXEMPT_SHARE_MAX: Final = 0.5
"""If a check leaves out a larger share of its cases, it proves too little."""
CHECKS_NAMED_MAX: Final = 5


def weighed(result: CheckResult) -> CheckResult:
    """Return `result`, changed to `unknown` if it passes only because too little was judged."""
    looked, exempt = _counts(result, "looked"), _counts(result, "exempt")
    if not result.verdict.holds or not (looked or exempt):
        return result
    checks: dict[str, list[str]] = {}
    for check, count in exempt.items():
        total = count + looked.get(check, 0)
        if count > total * EXEMPT_SHARE_MAX:
            checks.setdefault(f"{count} of {total}", []).append(check)
    doubts = [
        f"{listed(names, limit=CHECKS_NAMED_MAX)} exempted {share}{' each' if names[1:] else ''}"
        for share, names in checks.items()
    ]
    if not any(looked.values()):
        doubts.append("there was nothing to judge")
    if not doubts:
        return result
    return msgspec.structs.replace(
        result,
        verdict=Verdict.UNKNOWN,
        reason=f"too little was looked at: {'; '.join(doubts)}",
        details={**result.details, "rule": "exempt"},
    )


def certified(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Add all checkers' counts of judged cases to the result that has the run's certificate."""
    every = list(results)
    looked = {}
    for result in every:
        judged, exempt = _counts(result, "looked"), _counts(result, "exempt")
        if judged:
            total = sum(judged.values())
            looked[result.checker] = f"{total} judged, {sum(exempt.values())} exempt"
    invariants = _invariants(every)
    return [_with(result, looked, invariants) for result in every]


def _invariants(results: Iterable[CheckResult]) -> dict[str, str]:
    """Map each invariant to a phrase that says how many of its cases the checkers judged."""
    total: dict[str, int] = {}
    for result in results:
        for name, count in _counts(result, INVARIANTS).items():
            total[name] = total.get(name, 0) + count
    return {
        name: f"looked at {counted(count, 'time')}" if count else "not looked at"
        for name, count in sorted(total.items())
    }


def _counts(result: CheckResult, name: str) -> dict[str, int]:
    counts = result.details.get(name)
    if not isinstance(counts, Mapping):
        return {}
    return {str(check): count for check, count in counts.items() if isinstance(count, int)}


def _with(result: CheckResult, looked: dict[str, str], invariants: dict[str, str]) -> CheckResult:
    certificate = result.details.get("certificate")
    if not isinstance(certificate, Mapping) or not looked:
        return result
    more = {**certificate, "looked": looked}
    if invariants:
        more[INVARIANTS] = invariants
    details = {**result.details, "certificate": more}
    return msgspec.structs.replace(result, details=details)
