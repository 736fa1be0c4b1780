"""Code shared by the checkers that search for a legal order of a history's operations.

A checker first tries searches that are likely to be short, each within a share of the budget
(`first_order`). Then it searches without additional assumptions. If no order explains the history,
the checker judges it again under the permits of the profile (`under_permits`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Self

from msgspec.structs import replace as replace_result

from checkers.linearizability import (
    CheckOutcome,
    Limits,
    Model,
    Operation,
    Result,
    check_operations,
)
from checkers.linearizability.proof import UNDECIDED
from checkers.verdict.permitted import permit_rules, permitted_result
from checkers.verdict.sentences import ops
from harness.errors import counted
from harness.ops import CheckResult, Verdict
from harness.permits import Permit
from harness.plugins import Checker

CORE_SHOWN_MAX: Final = 3


class SearchChecker(Checker):
    """The base class of checkers that search for an order within limits."""

    api_version = 1

    def __init__(self, *, limits: Limits | None = None) -> None:
        """Set the `limits` of the search, except the time limit, an argument of `check`."""
        self._limits = limits or Limits()

    def bounded(self, *, steps: int, configurations: int) -> Self:
        return type(self)(limits=replace(self._limits, steps=steps, configurations=configurations))


class Attempt(NamedTuple):
    """A search under additional assumptions. An order that it finds is also valid without them.

    `share` is the attempt's share of the steps, and `timeout_s` its time limit.
    """

    model: Model[Any, Any, Any]
    operations: Sequence[Operation[Any, Any]]
    share: float
    timeout_s: float


def attempted(attempt: Attempt, limits: Limits) -> CheckOutcome:
    """Run the search of an attempt, without an explanation if it finds no order."""
    return check_operations(
        attempt.model,
        attempt.operations,
        timeout_s=attempt.timeout_s,
        limits=limits.share(attempt.share),
        explained=False,
    )


def first_order(attempts: Iterable[Attempt], limits: Limits) -> tuple[CheckOutcome | None, int]:
    """Run attempts until an order is found; return the outcome with the order, or `None`.

    The second result is the total number of steps of the attempts that found no order.
    """
    spent = 0
    for attempt in attempts:
        outcome = attempted(attempt, limits)
        if outcome.result is Result.OK:
            return outcome, spent
        spent += outcome.steps
    return None, spent


class Relaxed(NamedTuple):
    """The result of a search for an order under permits.

    `counts` has the number of uses of each permit, and `operations` the operations that needed a
    permit. If no order was found, `counts` is `None`. If none exists, `exhausted` is also set.
    `stuck` is an operation that the search could not place.
    """

    counts: Mapping[str, int] | None
    exhausted: bool = False
    operations: tuple[int, ...] = ()
    steps: int = 0
    stuck: int | None = None


def undecided(strict: CheckResult) -> CheckResult:
    """Turn the invalid result `strict` into `unknown`, because the search under permits hit a
    limit.
    """
    reason = f"{strict.reason}; whether the profile permits this could not be decided in time"
    details = {**strict.details, "rule": UNDECIDED, "limited": True}
    return replace_result(strict, verdict=Verdict.UNKNOWN, reason=reason, details=details)


def under_permits(
    strict: CheckResult,
    relaxed: Relaxed | None,
    permits: Mapping[str, Permit],
    names: Iterable[str],
    stuck: str = "",
) -> CheckResult:
    """Revise the invalid result `strict` under the permits called `names`.

    `relaxed` is the result of the search under these permits. It is `None` if no permit is about
    the order of operations.
    """
    if relaxed is not None and relaxed.counts is None:
        if not relaxed.exhausted:
            return undecided(strict)
        text = f"Nor does what the profile permits ({', '.join(names)}) explain it{stuck}."
        strict = replace_result(strict, explanation=(*strict.explanation, text))
    if relaxed is None or relaxed.counts is None:
        return permit_rules(strict, permits)
    operations = relaxed.operations
    return permitted_result(strict, permits, relaxed.counts, operations, strict.details)


def rest_of_core(
    blamed: Sequence[int], sentences: Mapping[int, str], *, minimal: bool
) -> list[str]:
    """Describe the operations that contradict the failing operation `blamed[0]`.

    The last few of them get a sentence each. The others are only listed.
    """
    rest = sorted(blamed[1:])
    if not rest:
        return []
    small = "" if minimal else " (not proven minimal)"
    earlier, last = rest[:-CORE_SHOWN_MAX], rest[-CORE_SHOWN_MAX:]
    text = [f"With these it is a contradiction, with any outcome of the others{small}:"]
    text += [f"{sentences[index]}." for index in last]
    if earlier:
        count = counted(len(earlier), "earlier operation")
        text.append(f"The contradiction also needs {count}: {ops(earlier)}.")
    return text
