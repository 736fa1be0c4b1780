"""Claims of a bench about the target, each with the measured value, printed as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Claim(NamedTuple):
    """`what` must hold in the case `where`; `measured` is the result as text."""

    where: str
    what: str
    measured: str
    holds: bool


def tell(claims: Iterable[Claim]) -> int:
    """Print a line for each as it comes; the exit status: 1 where one does not hold, or none is."""
    total = bad = 0
    for claim in claims:
        total += 1
        bad += not claim.holds
        says = "holds" if claim.holds else "DOES NOT HOLD"
        print(f"{claim.where:<28} {claim.what:<54} {claim.measured:<44} {says}", flush=True)
    print(f"{total} claims, {bad} of which do not hold")
    return 1 if bad or not total else 0
