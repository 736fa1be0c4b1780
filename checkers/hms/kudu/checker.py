"""The checker of invariant I10: Kudu's catalog and the metastore agree.

| rule          | promise                                                                      |
|---------------|------------------------------------------------------------------------------|
| no-entry      | at rest each live table in Kudu has a metastore entry with its name and id   |
| no-table      | at rest each entry of a table that Kudu created belongs to a live table      |
| orphan        | at rest each other entry also belongs to a live table                        |
| names         | at rest an entry has the name of its table                                   |
| ids           | at rest no two entries have the same table id                                |
| addresses     | at rest each entry names exactly the voting masters                          |
| events        | masters stored the ids of metastore events once each, in rising order        |
| caught-up     | at rest the leader has stored the newest event                               |

"At rest" means that the target had settled at the last snapshot. The harness records this
(`converged`, `pending`). Without such a record, the verdict is `unknown`, unless another rule is
violated. A table counts as created by Kudu if an answer of Kudu shows its id.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Final

from checkers.verdict.findings import Findings
from harness.errors import counted
from harness.ops import CheckResult, History, Op, OpType
from harness.permits import permits_of
from harness.plugins import Checker
from harness.vocabularies import ddl, fields_of

LIVE: Final = frozenset({"RUNNING", "ALTERING"})
_SHOWS: Final = frozenset({ddl.Create.f, ddl.Get.f, ddl.List.f})


class KuduHmsChecker(Checker):
    """Checks that Kudu's tables and the metastore's entries match one to one.

    The checker also judges the masters' addresses in entries, and the order of stored events.
    """

    api_version = 1
    name = "kudu-hms"
    doc = "Kudu's tables and the metastore's entries match, and each event was applied once"

    def check(self, history: History, case: object, *, time_limit_s: float) -> CheckResult:
        del case, time_limit_s
        findings = Findings(self.name, permits_of(history))
        op = next(iter([*history.facts("snapshot")][::-1]), None)
        snapshot = fields_of(op)
        gap = _gap(history, snapshot)
        dumps = {
            name: dump
            for name, dump in (snapshot.get("masters") or {}).items()
            if isinstance(dump, Mapping) and isinstance(dump.get("hms"), Mapping)
        }
        for name, dump in dumps.items():
            _check_events(findings, name, dump["hms"]["events"], op)
        if not gap:
            leaders = [dump for dump in dumps.values() if dump.get("ready")]
            if len(leaders) == 1:
                _check_rest(findings, leaders[0], snapshot["hms"], op, _created(history))
            else:
                gap = f"{len(leaders)} masters led when their state was read"
        if gap:
            findings.gap(gap, rule="not-at-rest")
        return findings.result(f"{counted(findings.looked.total(), 'check')} hold")


def _gap(history: History, snapshot: Mapping[str, Any]) -> str:
    """Return the reason why the state at rest cannot be judged; empty if it can be judged."""
    if not snapshot:
        return "the run ended before its final snapshot"
    settled = fields_of(next(iter([*history.facts("converged")][::-1]), None))
    if not settled.get("ok"):
        return "the run ended before it was known to have settled"
    if snapshot.get("pending"):
        return "the target had settled, but not any more when its state was read"
    if not isinstance(snapshot.get("hms"), Mapping):
        return "no metastore answered at the end of the run"
    return ""


def _at(op: Op | None) -> tuple[int, ...]:
    return () if op is None else (op.index,)


def _check_events(findings: Findings, name: str, events: list[list[int]], op: Op | None) -> None:
    for (earlier, at), (later, then) in itertools.pairwise(events):
        text = (
            f"{name} stored event {later} of the metastore in operation {then}, after event "
            f"{earlier} "
            f"in operation {at}: it followed an event twice, or out of order."
        )
        findings.hold("events", earlier < later, text, _at(op))


def _created(history: History) -> set[str]:
    answers = (op for op in history if op.type is OpType.OK and op.f in _SHOWS)
    fields = [fields_of(op) for op in answers]
    listed = {str(row[1]) for each in fields for row in each.get("tables") or () if row[1]}
    return listed | {str(each["table_id"]) for each in fields if each.get("table_id")}


def _check_rest(
    findings: Findings,
    leader: Mapping[str, Any],
    seen: Mapping[str, Any],
    op: Op | None,
    created: Collection[str],
) -> None:
    hms, at = leader["hms"], _at(op)
    text = (
        f"At rest event {hms['last_event']} is the last one that the leader stored, but the "
        f"metastore has {seen['event']}."
    )
    findings.hold("caught-up", hms["last_event"] == seen["event"], text, at)
    ours = [row for row in seen["entries"] if row[3] == leader["cluster_id"]]
    tables = {table["id"]: table["name"] for table in leader["tables"] if table["state"] in LIVE}
    by_id: dict[str, list[str]] = {}
    for name, table_id, masters, _ in ours:
        by_id.setdefault(table_id, []).append(name)
        there = tables.get(table_id)
        known_as = "no such table" if there is None else f"that table under the name {there}"
        text = f"At rest the metastore has {name} with the id {table_id}, and Kudu {known_as}."
        if there is None:
            findings.hold("no-table" if table_id in created else "orphan", False, text, at)
        else:
            findings.hold("names", there == name, text, at)
        same = Counter(masters) == Counter(hms["masters"])
        text = (
            f"At rest the entry {name} names the masters {_list(masters)}, "
            f"but these vote: {_list(hms['masters'])}."
        )
        findings.hold("addresses", same, text, at)
    for table_id, name in tables.items():
        entries = by_id.get(table_id, [])
        text = f"At rest Kudu has {name} with the id {table_id}, and the metastore has no entry."
        findings.hold("no-entry", bool(entries), text, at)
    for table_id, entries in by_id.items():
        text = f"At rest {_list(entries)} have one id, {table_id}."
        findings.hold("ids", len(entries) == 1, text, at)


def _list(names: list[str]) -> str:
    return ", ".join(names) or "none"
