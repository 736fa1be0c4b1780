"""The checker `catalog-invariants`, which checks the final snapshot and the whole history."""

from __future__ import annotations

import math
from typing import Final

from checkers.catalog.history import catalog_part
from checkers.catalog.invariants.acknowledged import check_acknowledged
from checkers.catalog.invariants.answers import check_answers
from checkers.catalog.invariants.dumps import (
    check_checksums,
    check_coverage,
    check_forward,
    check_members,
)
from checkers.catalog.invariants.history_invariants import check_history
from checkers.catalog.invariants.maps import check_maps, check_named_tablets
from checkers.catalog.invariants.permissions import CatalogFindings
from checkers.catalog.invariants.ranges import check_ranges
from checkers.catalog.invariants.refusals import check_refusals
from checkers.catalog.invariants.snapshot import check_snapshot, read_snapshot
from checkers.catalog.invariants.state import check_checkpoints, check_column_ids, check_state
from checkers.verdict.invariants import CATALOG, counted_by_name
from checkers.verdict.permitted import gone_nodes
from harness.errors import counted
from harness.ops import CheckResult, History
from harness.plugins import Checker

AFTER_LOSS: Final = (
    *("logs-agree", "replica-logs-agree", "rows-agree", "forward", "replica-columns"),
    *("schema-versions", "replicas", "orphans", "replica-checksums"),
)
"""The checks that compare nodes. A permit for power cuts excuses their violations, since a cut may
destroy data on some nodes only.
"""


class CatalogInvariantsChecker(Checker):
    """The checker of the invariants of the catalog.

    Examples are unique names, ids that are never reused, legal states, full coverage of the key
    space, settled replicas and equal logs.
    """

    api_version = 1
    name = "catalog-invariants"
    doc = "the final state of all nodes is sound, and nothing acknowledged was lost or went back"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        """Judge the history and its last snapshot.

        If the snapshot is missing or incomplete, the verdict is `unknown`, unless a check found a
        violation. The checks take linear time and ignore `time_limit_s`.
        """
        del case, time_limit_s
        history = catalog_part(history, bounded=False)
        findings = CatalogFindings(self.name, history)
        check_history(history, findings)
        snapshots = list(history.facts("snapshot"))
        snapshot = None
        if snapshots:
            snapshot = read_snapshot(
                snapshots[-1].value, findings, gone_nodes(history, findings.permits)
            )
            if snapshot is not None:
                settled = [fact.value.get("ok") for fact in history.facts("converged")]
                at_rest = bool(settled and settled[-1]) and not snapshots[-1].value.get("pending")
                check_snapshot(snapshot, findings, settled=at_rest)
                check_coverage(snapshot, findings)
                check_state(snapshot, findings)
                check_maps(snapshot, findings)
                check_named_tablets(history, snapshot, findings)
                check_forward(snapshot, findings)
                check_checksums(snapshot, findings)
                if at_rest:
                    check_members(snapshot, findings)
                check_acknowledged(history, snapshot, findings)
                check_ranges(history, snapshot, findings)
                if not settled:
                    findings.gap("the run ended before it was known to have settled")
                elif settled[-1] and not at_rest:
                    findings.gap("the target had settled, but not any more when its state was read")
        else:
            findings.gap("the run ended before its final snapshot")
        check_checkpoints(history, snapshot, findings)
        check_column_ids(history, snapshot, findings)
        check_answers(history, snapshot, findings)
        check_refusals(history, findings)
        for name in findings.vacuous:
            findings.gap(f"{name} was never judged: all {findings.exempted[name]} cases are exempt")
        findings.give_up(AFTER_LOSS, findings.may.lost_before(math.inf))
        return findings.result(_summary(findings))


def _summary(findings: CatalogFindings) -> str:
    by_name = counted_by_name(findings.looked, CATALOG)
    held = ", ".join(name.split()[0] for name, count in by_name.items() if count)
    text = f"{counted(findings.looked.total(), 'check')} of {held or 'no invariant'} hold"
    unseen = [name for name, count in by_name.items() if not count]
    if unseen:
        text += f"; not judged: {', '.join(unseen)}"
    if exempt := findings.exempted.total():
        text += f"; {exempt} more are exempt, since a lost answer may explain the state"
    return text
