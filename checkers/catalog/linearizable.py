"""The checker `linearizable-catalog`: DDL over the whole catalog.

`check` is the way of a history to its verdict, phase by phase:

| phase                                                             | module                    |
|-------------------------------------------------------------------|---------------------------|
| convert the history to operations                                 | `history`                 |
| look for contradictions between a few answers                     | `passes.refutation`       |
| replay the answers in the order of their revisions                | `passes.revisions`        |
| search, at first with narrowed intervals for lost answers         | `passes.narrowing`        |
| prove the outcome by a certificate that another method verifies   | `linearizability.proof`   |
| explain an invalid verdict by sentences that name the operations  | `sentences`               |
| judge an invalid history again under the profile's permits        | `permits`                 |

A certificate that proves nothing is an internal error, and one that was not confirmed in time makes
the verdict `unknown`. Time, memory and (if requested) steps limit a search; a search that reaches a
limit is `unknown`, so that no other verdict depends on the machine.
"""

from __future__ import annotations

import time
from dataclasses import replace

from checkers.catalog.history import CatalogHistory, catalog_history
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.passes import Contradiction, conflict, narrowed, refute, replay
from checkers.catalog.permits import under_permits_of
from checkers.catalog.sentences import tell_conflicts, tell_contradiction, tell_failure
from checkers.linearizability import CheckOutcome, Limits, Result, check_operations
from checkers.linearizability.proof import certify_core, convicted, judged
from checkers.verdict.invariants import KEY, counted_by_name, invariant_of
from checkers.verdict.search import Attempt, SearchChecker, first_order
from harness.ops import CheckResult, History, Verdict

# share of the remaining time and of the steps, for the attempt with narrowed intervals
NARROWED_SHARE = 0.5


class CatalogLinearizable(SearchChecker):
    """The whole catalog is one linearizable object: names, ids, versions, columns and lists."""

    name = "linearizable-catalog"
    doc = "DDL is linearizable over the whole catalog, lists and renames included"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; raises `HistoryError` for a history that is not in the vocabulary "ddl"."""
        del case
        end_s = time.monotonic() + time_limit_s
        converted = catalog_history(history)
        strict = self._refuted(converted) or self._searched(converted, end_s)
        looked = {**strict.details.get("looked", {})}
        strict.details[KEY] = counted_by_name(looked, [invariant_of("answers")])
        if strict.verdict is not Verdict.INVALID:
            return strict
        return under_permits_of(history, strict, end_s)

    def _refuted(self, converted: CatalogHistory) -> CheckResult | None:
        """The result of a contradiction between a few answers, if a pass finds one."""
        operations, conflicts = converted.operations, converted.conflicts
        if conflicts:
            broken: Contradiction | None = conflict(conflicts[0].shown, conflicts[0].text)
        else:
            broken = refute(operations)
        if broken is None:
            return None
        proof = certify_core(broken.part, broken.core, minimal=True, limits=self._limits)
        if not proof.confirmed_by:
            return None
        if conflicts:
            details = {"conflicts": len(conflicts), "proof": proof.to_json()}
            return convicted(self.name, tell_conflicts(converted), details)
        told = tell_contradiction(broken.core, broken.rule, converted.pairs)
        details = {
            "operations": len(operations),
            "unknown": sum(operation.is_unknown for operation in operations),
            "decided_by": f"a pass over the {broken.part.name}",
            "proof": proof.to_json(),
        }
        return convicted(self.name, told, details)

    def _searched(self, converted: CatalogHistory, end_s: float) -> CheckResult:
        """The proven result of a replay, or of a search until `end_s` on the monotonic clock."""
        model = Catalog(converted.operations, converted.bindings)
        outcome = _replayed(model, converted) or _ordered(model, converted, end_s, self._limits)
        return judged(
            self.name,
            model,
            converted.operations,
            outcome,
            tell=lambda failure, _: tell_failure(failure, converted, model),
            limits=self._limits,
        )


def _replayed(model: Catalog, converted: CatalogHistory) -> CheckOutcome | None:
    """The order of the revisions in the answers, if that order is legal."""
    revisions: dict[int, int] = {}
    for index, pair in converted.pairs.items():
        value = None if pair.completion is None else pair.completion.value
        revision = value.get("revision") if isinstance(value, dict) else None
        if isinstance(revision, int):
            revisions[index] = revision
    if not revisions:
        return None
    order = replay(model, converted.operations, revisions)
    if order is None:
        return None
    returns = sum(not operation.is_unknown for operation in converted.operations)
    return CheckOutcome(
        result=Result.OK,
        reason="a legal order exists",
        witness=(order,) if order else (),
        decided_by="a replay in the order of revisions",
        steps=len(order),
        configurations=0,
        progress=returns,
        returns=returns,
    )


def _ordered(
    model: Catalog, converted: CatalogHistory, end_s: float, limits: Limits
) -> CheckOutcome:
    """The outcome of a search until `end_s`, on the monotonic clock.

    The first attempt uses narrowed intervals. An order that it finds is also an order for the
    original intervals. A core must be found with the original intervals.
    """

    def left_s() -> float:
        return max(0.0, end_s - time.monotonic())

    operations = None
    if any(operation.is_unknown for operation in converted.operations):
        operations = narrowed(converted.operations, is_over=lambda: left_s() == 0.0)
    attempts = []
    if operations is not None:
        narrow = Catalog(operations, converted.bindings)
        attempts.append(Attempt(narrow, operations, NARROWED_SHARE, left_s() * NARROWED_SHARE))
    order, spent = first_order(attempts, limits)
    if order is not None:
        return order
    outcome = check_operations(model, converted.operations, timeout_s=left_s(), limits=limits)
    reason = outcome.reason
    if spent and outcome.result is Result.UNKNOWN:
        reason = f"{reason}; before that, {spent} steps with narrowed intervals found no order"
    return replace(outcome, reason=reason, steps=outcome.steps + spent)
