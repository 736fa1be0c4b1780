"""Maps in memory against the rows that are logged: a leader's and a follower's equal a scan.

Masters answer from maps, which they load from the rows of the system tablet and then move forward.
An entry that no row holds was never decided; a missing entry was forgotten (KUDU-765 loaded too
early, ORDER-REPLACE showed changes before they were replicated). Two checks:

* each master's dump says where its maps differ from a scan of its rows at that moment
  (`unlike_rows`), and its `name_map` is compared with its rows here;
* a refusal that names a tablet (TABLET_NOT_RUNNING) is an answer from the maps: rows are kept for
  ever, so the tablet must be among them in the end.
"""

from __future__ import annotations

import re
from typing import Final

from checkers.catalog.invariants.permissions import CatalogFindings
from checkers.catalog.invariants.snapshot import LIVE_TABLES, Snapshot
from checkers.catalog.sentences import tried
from harness.ops import History, OpType

NAMED: Final = re.compile(r"TABLET_NOT_RUNNING/\w+: \D*?\b([0-9a-f]{32})\b")


def check_maps(snapshot: Snapshot, findings: CatalogFindings) -> None:
    """Every map of every master that shows its maps; dumps of others say nothing of them."""
    for master, dump in sorted(snapshot.masters.items()):
        for which, differences in sorted((dump.get("unlike_rows") or {}).items()):
            findings.look("maps-equal-rows")
            if differences:
                findings.violate(
                    "maps-equal-rows",
                    f"On master {master} the {which}'s maps are not what a scan of its rows "
                    f"gives: {'; '.join(map(str, differences))}.",
                )
        if "unlike_rows" not in dump or any((dump.get("truncated") or {}).values()):
            continue
        findings.look("maps-equal-rows")
        rows = {row["name"]: row["id"] for row in dump["tables"] if row["state"] in LIVE_TABLES}
        name_map = dump.get("name_map") or {}
        for name in sorted(set(rows) | set(name_map)):
            if rows.get(name) != name_map.get(name):
                findings.violate(
                    "maps-equal-rows",
                    f"On master {master} the name {name!r} resolves to "
                    f"{name_map.get(name) or 'nothing'}, but its own rows say "
                    f"{rows.get(name) or 'nothing'}.",
                )


def check_named_tablets(history: History, snapshot: Snapshot, findings: CatalogFindings) -> None:
    """No answer names a tablet that no log holds; not judged where the dump is cut."""
    if snapshot.rows_left_out:
        return
    for pair in history.pairs:
        done = pair.completion
        if done is None or done.type is not OpType.FAIL or not done.error:
            continue
        named = NAMED.match(done.error)
        if named is None:
            continue
        findings.look("named-tablets")
        if named[1] not in snapshot.tablets:
            findings.violate(
                "named-tablets",
                f"{tried(pair)} and was answered that tablet {named[1]} is not running, but no "
                "such "
                f"tablet was ever logged: master {snapshot.leader} has no row of it.",
                pair.invoke.index,
                permit=findings.may.lost(pair),
            )
