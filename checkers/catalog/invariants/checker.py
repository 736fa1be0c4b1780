"""The plug-in: invariants of the catalog on the snapshot and along the history."""

from __future__ import annotations

import math
from typing import Any, Final

from checkers.catalog.invariants.acknowledged import check_acknowledged
from checkers.catalog.invariants.answers import check_answers
from checkers.catalog.invariants.coverage import check_coverage
from checkers.catalog.invariants.dumps import check_checksums, check_forward, check_members
from checkers.catalog.invariants.findings import Findings, counted
from checkers.catalog.invariants.history_invariants import check_history
from checkers.catalog.invariants.maps import check_maps, check_named_tablets
from checkers.catalog.invariants.permissions import Permissions
from checkers.catalog.invariants.refusals import check_refusals
from checkers.catalog.invariants.snapshot import check_snapshot, read_snapshot
from checkers.catalog.invariants.state import check_checkpoints, check_column_ids, check_state
from checkers.catalog.part import unbounded_part
from checkers.verdict.invariants import CATALOG, KEY, invariant_of
from checkers.verdict.invariants import counted as counted_by_name
from checkers.verdict.permitted import gone_nodes, permit_rules, permitted_result
from harness.ops import CheckResult, History, Verdict
from harness.permits import PERMITTED
from harness.plugins import Checker

PER_INVARIANT_MAX: Final = 4
GAPS_MAX: Final = 10
OPERATIONS_MAX: Final = 100
AFTER_LOSS: Final = (
    *("logs-agree", "replica-logs-agree", "rows-agree", "forward", "replica-columns"),
    *("schema-versions", "replicas", "orphans", "replica-checksums"),
)
"""What compares nodes, of which some may have lost what others have kept."""


class CatalogInvariantsChecker(Checker):
    """Unique names, ids never reused, legal states, full coverage, settled replicas, equal logs."""

    api_version = 1
    name = "catalog-invariants"
    doc = "the final state of all nodes is sound, and nothing acknowledged was lost or went back"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge; a missing or incomplete snapshot is `unknown`, unless something else is invalid.

        Linear in the history and the snapshot, so `time_limit_s` is not needed.
        """
        del case, time_limit_s
        history = unbounded_part(history)
        findings, permissions = Findings(), Permissions(history)
        check_history(history, findings, permissions)
        snapshots = list(history.facts("snapshot"))
        snapshot = None
        if snapshots:
            snapshot = read_snapshot(
                snapshots[-1].value, findings, gone_nodes(history, permissions.permits)
            )
            if snapshot is not None:
                settled = [fact.value.get("ok") for fact in history.facts("converged")]
                at_rest = bool(settled and settled[-1]) and not snapshots[-1].value.get("pending")
                check_snapshot(snapshot, findings, settled=at_rest)
                check_coverage(snapshot, findings)
                check_state(snapshot, findings, permissions)
                check_maps(snapshot, findings)
                check_named_tablets(history, snapshot, findings, permissions)
                check_forward(snapshot, findings)
                check_checksums(snapshot, findings)
                if at_rest:
                    check_members(snapshot, findings)
                check_acknowledged(history, snapshot, findings, permissions)
                if not settled:
                    findings.gaps.append("the run ended before it was known to have settled")
                elif settled[-1] and not at_rest:
                    findings.gaps.append("all had settled, but not when its state was looked at")
        else:
            findings.gaps.append("the run ended before its final snapshot")
        check_checkpoints(history, findings, permissions)
        check_column_ids(history, snapshot, findings, permissions)
        check_answers(history, snapshot, findings, permissions)
        check_refusals(history, findings, permissions)
        for name in findings.vacuous:
            findings.gaps.append(
                f"{name} was looked at nowhere: all {findings.exempt[name]} cases are exempt"
            )
        findings.give_up(AFTER_LOSS, permissions.lost_before(math.inf))
        return permit_rules(self._result(findings, permissions), permissions.permits)

    def _result(self, findings: Findings, permissions: Permissions) -> CheckResult:
        found = findings.violations
        details: dict[str, Any] = {
            "looked": dict(sorted(findings.looked.items())),
            KEY: counted_by_name(findings.looked, CATALOG),
            "exempt": dict(sorted(findings.exempt.items())),
            "gaps": findings.gaps[:GAPS_MAX],
            "violations": len(found),
            "by_invariant": {
                name: sum(v.invariant == name for v in found)
                for name in sorted({v.invariant for v in found})
            },
        }
        permitted = {permit: len(each) for permit, each in findings.permitted.items()}
        if permitted:
            details[PERMITTED] = permitted
        if found:
            shown = [
                violation
                for name in details["by_invariant"]
                for violation in [v for v in found if v.invariant == name][:PER_INVARIANT_MAX]
            ]
            text = [
                f"[{invariant_of(v.invariant).name}] {v.invariant}: {v.sentence}" for v in shown
            ]
            if len(found) > len(shown):
                more = counted(len(found) - len(shown), "more violation")
                text.append(f"{more} {'is' if len(found) - len(shown) == 1 else 'are'} not shown.")
            indices = dict.fromkeys(i for v in shown for i in v.operations)
            first = ", first" if len(found) > 1 else ""
            reason = f"{counted(len(found), 'violation')}{first}: {found[0].sentence}"
            details["rule"] = found[0].invariant
            return CheckResult(
                self.name, Verdict.INVALID, reason, tuple(text), tuple(indices), details
            )
        if findings.gaps:
            others = len(findings.gaps) - 1
            reason = findings.gaps[0] + (f" (and {counted(others, 'more gap')})" if others else "")
            details["rule"] = "incomplete"
            return CheckResult(self.name, Verdict.UNKNOWN, reason, details=details)
        if permitted:
            broken = CheckResult(self.name, Verdict.INVALID, "", details=details)
            return permitted_result(
                broken,
                permissions.permits,
                permitted,
                sorted(set().union(*findings.permitted.values()))[:OPERATIONS_MAX],
                details,
            )
        total, exempt = sum(findings.looked.values()), sum(findings.exempt.values())
        by_name = details[KEY]
        held_names = ", ".join(name.split()[0] for name, count in by_name.items() if count)
        reason = f"{counted(total, 'check')} of {held_names or 'no invariant'} hold"
        unseen = [name for name, count in by_name.items() if not count]
        if unseen:
            reason += f"; not looked at: {', '.join(unseen)}"
        if exempt:
            reason += f"; {exempt} more are exempt, since a lost answer may explain what is there"
        return CheckResult(self.name, Verdict.VALID, reason, details=details)
