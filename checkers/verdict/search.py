"""Checkers that search for an order: their limits, the steps of a judgement, and the blame.

A judgement first tries searches that are likely to be short, within their shares of the budget
(`first_order`). Then it searches the operations as they are. If no order explains the history, it
is judged again under the permits of the profile (`under_permits`).
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
    """A checker whose search has limits."""

    api_version = 1

    def __init__(self, *, limits: Limits | None = None) -> None:
        """`limits` bounds the search; its time comes from `check`."""
        self._limits = limits or Limits()

    def bounded(self, *, steps: int, configurations: int) -> Self:
        return type(self)(limits=replace(self._limits, steps=steps, configurations=configurations))


class Attempt(NamedTuple):
    """A search with more decided beforehand; an order that it finds is valid in general.

    `share` is the attempt's share of the steps, and `timeout_s` its time.
    """

    model: Model[Any, Any, Any]
    operations: Sequence[Operation[Any, Any]]
    share: float
    timeout_s: float


def attempted(attempt: Attempt, limits: Limits) -> CheckOutcome:
    """The outcome of an attempt, without an explanation if no order was found."""
    return check_operations(
        attempt.model,
        attempt.operations,
        timeout_s=attempt.timeout_s,
        limits=limits.share(attempt.share),
        explained=False,
    )


def first_order(attempts: Iterable[Attempt], limits: Limits) -> tuple[CheckOutcome | None, int]:
    """The outcome of the first attempt that finds an order, if any; steps of the other attempts."""
    spent = 0
    for attempt in attempts:
        outcome = attempted(attempt, limits)
        if outcome.result is Result.OK:
            return outcome, spent
        spent += outcome.steps
    return None, spent


class Relaxed(NamedTuple):
    """An order under permits: how often the order needed each permit, and for which operations.

    `counts` is `None` if no order was found; `exhausted` says that no order exists. `stuck` is an
    operation that fits nowhere.
    """

    counts: Mapping[str, int] | None
    exhausted: bool = False
    operations: tuple[int, ...] = ()
    steps: int = 0
    stuck: int | None = None


def undecided(strict: CheckResult) -> CheckResult:
    """The result of an invalid history if the search under its permits reached a limit."""
    reason = f"{strict.reason}; whether the profile permits that could not be decided in time"
    details = {**strict.details, "rule": UNDECIDED, "limited": True}
    return replace_result(strict, verdict=Verdict.UNKNOWN, reason=reason, details=details)


def under_permits(
    strict: CheckResult,
    relaxed: Relaxed | None,
    permits: Mapping[str, Permit],
    names: Iterable[str],
    stuck: str = "",
) -> CheckResult:
    """The invalid result `strict`, revised under the permits called `names`.

    `relaxed` is `None` if no permit is about the order of operations.
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
    """Sentences about the last operations of a core, and a count of the earlier ones.

    The first operation, `blamed[0]`, is left out.
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
