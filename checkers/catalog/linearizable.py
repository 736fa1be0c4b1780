"""The checker `linearizable-catalog` judges whether DDL over the whole catalog is linearizable.

`check` decides a history in these phases:

| phase                                                             | module                    |
|-------------------------------------------------------------------|---------------------------|
| convert the history to operations                                 | `history`                 |
| look for contradictions between a few answers                     | `passes.refutation`       |
| replay the answers in the order of their revisions                | `passes.revisions`        |
| search, at first with narrowed intervals for lost answers         | `passes.narrowing`        |
| prove the outcome by a certificate that another method verifies   | `linearizability.proof`   |
| explain an invalid verdict by sentences that name the operations  | `sentences`               |
| judge an invalid history again under the profile's permits        | `permits`                 |

A certificate that does not prove the verdict is an internal error. If no method confirms the
certificate in time, the verdict is `unknown`. Time, memory and (if requested) steps limit a search.
A search that reaches a limit yields `unknown`, so that no other verdict depends on the machine.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from checkers.catalog.history import CatalogHistory, catalog_history
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.passes import Contradiction, conflict, narrowed, refute, replayed
from checkers.catalog.permits import under_permits_of
from checkers.catalog.sentences import tell_conflicts, tell_contradiction, tell_failure
from checkers.linearizability import Result, check_operations
from checkers.linearizability.proof import certify_core, convicted, judged
from checkers.verdict.invariants import KEY, counted_by_name, invariant_of
from checkers.verdict.search import Attempt, SearchChecker, first_order
from harness.ops import CheckResult, History, Verdict

# the share of the remaining time and steps that the search with narrowed intervals gets
NARROWED_SHARE = 0.5


class CatalogLinearizable(SearchChecker, judges_prefixes=True):
    """Checks that the whole catalog (names, ids, versions, columns) is linearizable."""

    name = "linearizable-catalog"
    doc = "DDL is linearizable over the whole catalog, lists and renames included"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge `history`; raises `HistoryError` if it is not in the vocabulary "ddl"."""
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
        """Return an invalid result if a pass finds a contradiction between a few answers.

        Returns `None` if no pass finds a contradiction that can be confirmed.
        """
        operations, conflicts = converted.operations, converted.conflicts
        if conflicts:
            broken: Contradiction | None = conflict(conflicts[0].answers, conflicts[0].text)
        else:
            broken = refute(operations)
        if broken is None:
            return None
        proof = certify_core(broken.part, broken.core, minimal=True, limits=self._limits)
        if not proof.confirmed_by:
            return None
        details: dict[str, Any] = {"conflicts": len(conflicts)}
        if not conflicts:
            details = {
                "operations": len(operations),
                "unknown": sum(operation.is_unknown for operation in operations),
                "decided_by": f"a pass over the {broken.part.name}",
            }
        details["proof"] = proof.to_json()
        words = (
            tell_conflicts(converted)
            if conflicts
            else tell_contradiction(broken.core, broken.rule, converted.pairs)
        )
        return convicted(self.name, words, details)

    def _searched(self, converted: CatalogHistory, end_s: float) -> CheckResult:
        """Return the proven result of a replay, or of searches until `end_s` (monotonic clock).

        The first search uses narrowed intervals, and an order that it finds is also legal for the
        original intervals. If it finds none, a second search uses the original intervals.
        """

        def left_s() -> float:
            return max(0.0, end_s - time.monotonic())

        operations, limits = converted.operations, self._limits
        model = Catalog(operations, converted.bindings)
        outcome, spent = replayed(model, operations, converted.pairs), 0
        if outcome is None and any(operation.is_unknown for operation in operations):
            shorter = narrowed(operations, is_over=lambda: left_s() == 0.0)
            if shorter is not None:
                narrow = Catalog(shorter, converted.bindings)
                attempt = Attempt(narrow, shorter, NARROWED_SHARE, left_s() * NARROWED_SHARE)
                outcome, spent = first_order([attempt], limits)
        if outcome is None:
            outcome = check_operations(model, operations, timeout_s=left_s(), limits=limits)
            reason = outcome.reason
            if spent and outcome.result is Result.UNKNOWN:
                reason += f"; before that, {spent} steps with narrowed intervals found no order"
            outcome = replace(outcome, reason=reason, steps=outcome.steps + spent)
        return judged(
            self.name,
            model,
            operations,
            outcome,
            tell=lambda failure, _: tell_failure(failure, converted, model),
            limits=limits,
        )
