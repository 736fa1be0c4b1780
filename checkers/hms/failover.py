"""Checks client failover: how soon a client retries, and at which metastore.

| rule            | promise                                                                    |
|-----------------|----------------------------------------------------------------------------|
| bound           | after a lost call the client sends the next call within this time: rounds  |
|                 | x metastores x connect time, plus the delays in between, plus a second     |
| other-not-tried | an operation that was sent twice and not served was sent to more than one  |
|                 | metastore, if another metastore was free of faults all that time           |

The bound depends on the client's settings, which are in the snapshot, and on the number of
metastores that the client knew (`uris` in the answer). In the rule `other-not-tried`, another
metastore counts only if it was on the client's list during the whole operation (`listed` in the
answer). Operations during a disturbance of the harness or its host are exempt, and so are
operations after the end of the workload.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Final

from checkers.hms.reading import sentence
from checkers.verdict.disturbances import Disturbance, disturbances_of
from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.ops import NEMESIS, NS_PER_S, Attempt, CheckResult, History, Op, OpType, Pair
from harness.permits import permits_of
from harness.plugins import Checker
from harness.timeline import Fault, faults_of
from harness.vocabularies import fields_of
from harness.vocabularies.hms import NOT_SENT, times_sent

AFTER_S: Final = 5.0
"""How long a fault may have effects after its end, while nodes start and reconnect."""
ADDS: Final = "add-metastore"
"""The operation that adds a metastore to the list. It does not disturb this metastore."""
NEEDED: Final = re.compile(r"db|zk[0-9]+")
"""Matches the names of the nodes on which every metastore depends."""


class FailoverChecker(Checker):
    """Checks that clients go to another metastore within a time bound after a failure."""

    api_version = 1
    name = "hms-failover"
    doc = "after a failure, clients of a metastore go to another within their bound"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        findings = Findings(self.name, permits_of(history))
        snapshot = fields_of(next(iter([*history.facts("snapshot")][::-1]), None))
        bound_s, metastores = snapshot.get("failover_s"), snapshot.get("metastores")
        if not isinstance(bound_s, int | float) or not isinstance(metastores, dict):
            reason = "the run ended before the list of metastores was recorded"
            findings.gap(reason, rule="unfinished")
            return findings.result("")
        ends = [op.time for op in history.facts("phase") if op.value.get("phase") == "heal-core"]
        end_ns = min(ends, default=1 << 62)
        faults = faults_of(history.of_process(NEMESIS), most=None)
        disturbances = disturbances_of(history)
        moved = 0
        for pair in history.pairs:
            done = pair.completion
            if done is None or done.time > end_ns or _is_disturbed(pair, disturbances):
                continue
            sent = _sent(done)
            moved += sum(first.node != other.node for first, other in itertools.pairwise(sent))
            uris, listed = _names(done, "uris"), _names(done, "listed")
            by_uris = snapshot.get("failover_by_uris_s")
            if uris and isinstance(by_uris, list) and len(uris) <= len(by_uris):
                own_s, others_of = by_uris[len(uris) - 1], listed or []
            else:
                own_s, others_of = bound_s, list(metastores)
            _check_bound(findings, pair, own_s)
            served = done.type is OpType.OK or "result" in fields_of(done)
            others = [] if served else _untried(pair, others_of, faults)
            text = f"{sentence(pair)}: it was only sent to {done.node}, although {others} served."
            findings.hold("other-not-tried", not others, text, (pair.invoke.index,))
        return findings.result(
            f"{counted(moved, 'failover')} within {bound_s:g} s",
            {"failovers": moved, "bound_s": bound_s},
        )


def _sent(done: Op) -> list[Attempt]:
    return [each for each in done.attempts if not each.outcome.startswith(NOT_SENT)]


def _names(done: Op, field: str) -> list[str] | None:
    names = fields_of(done).get(field)
    return list(map(str, names)) if isinstance(names, list | tuple) else None


def _check_bound(findings: Findings, pair: Pair, bound_s: float) -> None:
    assert pair.completion is not None, "only completed operations are judged"
    sent = _sent(pair.completion)
    for first, other in itertools.pairwise(sent):
        took_s = (other.start - first.end) / NS_PER_S
        text = f"{sentence(pair)}: {took_s:.1f} s from one attempt to the next; {bound_s:g} s are"
        blamed = (pair.invoke.index,)
        findings.hold("bound", took_s <= bound_s, f"{text} the bound.", blamed)


def _is_disturbed(pair: Pair, disturbances: Sequence[Disturbance]) -> bool:
    assert pair.completion is not None, "only completed operations are judged"
    begin_ns, end_ns = pair.invoke.time, pair.completion.time
    return any(each.overlaps(begin_ns, end_ns) for each in disturbances)


def _untried(pair: Pair, metastores: Sequence[str], faults: Sequence[Fault]) -> list[str]:
    done = pair.completion
    assert done is not None, "only completed operations are judged"
    if times_sent(done.attempts) < 2:
        return []
    tried = {attempt.node for attempt in done.attempts}
    touched = {
        node
        for fault in faults
        if fault.start <= done.time
        and not _adds(fault)
        and (fault.end is None or pair.invoke.time <= fault.end + AFTER_S * NS_PER_S)
        for node in fault.targets
    }
    if any(NEEDED.fullmatch(node) for node in touched):
        return []
    if len(tried) > 1:
        return []
    return [node for node in metastores if node not in tried and node not in touched]


def _adds(fault: Fault) -> bool:
    what = fields_of(fault.begin).get("what")
    return isinstance(what, Mapping) and what.get("name") == ADDS
