"""Compares the masters' in-memory maps with the rows in their logs.

Masters answer requests from maps, which they load from the rows of the system tablet and then
update. A map entry without a row shows a change that was never committed. A row without a map entry
is a forgotten change. In KUDU-765, a master loaded its maps too early. There are two checks:

* Each master's dump lists where its maps differ from a scan of its rows (`unlike_rows`). This
  module also compares the dump's `name_map` with the dump's rows.
* A refusal that names a tablet (TABLET_NOT_RUNNING) is an answer from the maps. Rows are kept
  forever, so the final rows must contain this tablet.
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
    """Check the maps of every master whose dump has maps; skip other dumps."""
    for master, dump in sorted(snapshot.masters.items()):
        for which, differences in sorted((dump.get("unlike_rows") or {}).items()):
            findings.look("maps-equal-rows")
            if differences:
                findings.violate(
                    "maps-equal-rows",
                    f"On master {master} the maps of the {which} differ from a scan of its rows: "
                    f"{'; '.join(map(str, differences))}.",
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
    """Check that refusals name only tablets that have a row in the leading master's dump.

    A dump is not judged if it is truncated or hides removed tables.
    """
    if snapshot.rows_left_out or snapshot.hides_removed:
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
                f"{tried(pair)} and was answered that tablet {named[1]} is not running, but this "
                f"tablet never existed: master {snapshot.leader} has no row of it.",
                pair.invoke.index,
                permit=findings.may.lost(pair),
            )
