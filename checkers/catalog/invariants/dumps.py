"""Compares the dumps of different nodes in the final snapshot.

* Masters apply the same log, so a master that lags shows an earlier state of the same catalog (I5).
  A master that is ahead lacks no row and has no row in an earlier state.
* At rest, all masters have the same members and name the same leader, which is a member (I7).
* The tablets of a live table cover each of its partitions exactly once (I6). Keys are hexadecimal,
  and the empty key is both the start and the end of the key space.
* Replicas of a tablet with the same applied index hold the same rows (I8). They are compared by the
  number of rows (`live_rows`) and their `digest`. A replica without these values is not judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from checkers.catalog.invariants.ranges import cover_ranges
from checkers.catalog.invariants.snapshot import Snapshot
from checkers.catalog.sentences import table_words
from checkers.verdict.findings import Findings

Json = Mapping[str, Any]
_FOLLOWED_BY: Final[Mapping[str, frozenset[str]]] = {
    "PREPARING": frozenset({"CREATING", "RUNNING", "REPLACED", "DELETED"}),
    "CREATING": frozenset({"RUNNING", "REPLACED", "DELETED"}),
    "RUNNING": frozenset({"ALTERING", "REMOVED", "DELETED"}),
    "ALTERING": frozenset({"RUNNING", "REMOVED"}),
}
"""The states that may follow each state of a table or tablet. A state without an entry is final."""
_FINAL: Final = frozenset({"REMOVED", "REPLACED", "DELETED"})
_NUMBERS: Final = ("version", "applied_version", "next_column_id", "running_index")


def check_forward(snapshot: Snapshot, findings: Findings) -> None:
    """Check that no row is in an earlier state in the dump of a master that is further ahead."""
    dumps: dict[int, tuple[str, Json]] = {}
    for name, dump in sorted(snapshot.masters.items()):
        applied = (dump.get("raft") or {}).get("applied_index")
        if isinstance(applied, int):
            dumps.setdefault(applied, (name, dump))
    for (_, (behind, older)), (_, (ahead, newer)) in pairwise(sorted(dumps.items())):
        cut = any((newer.get("truncated") or {}).values())
        for kind in ("tables", "tablets"):
            later = {row["id"]: row for row in newer[kind]}
            for row in older[kind]:
                after = later.get(row["id"])
                findings.look("forward")
                forgets = newer.get("hides_removed") and row["state"] in _FINAL
                what = _gone(cut or forgets) if after is None else _went_back(row, after)
                if what is not None:
                    words = (
                        table_words(row["id"], row["name"])
                        if kind == "tables"
                        else f"tablet {row['id']}"
                    )
                    findings.violate(
                        "forward",
                        f"{ahead} has applied more than {behind}, but on {ahead} {words} {what}.",
                    )


def _gone(cut: object) -> str | None:
    return None if cut else "no longer has a row"


def _went_back(row: Json, after: Json) -> str | None:
    before, now = row["state"], after["state"]
    if before != now and not _reaches(before, now):
        return f"went from {before} to {now}"
    for name in _NUMBERS:
        if _fell(row.get(name), after.get(name)):
            return f"fell from {name} {row[name]} to {after[name]}"
    old, new = ((each.get("consensus") or {}).get("opid_index") for each in (row, after))
    return f"fell from opid_index {old} to {new}" if _fell(old, new) else None


def _fell(before: object, now: object) -> bool:
    return isinstance(before, int) and isinstance(now, int) and now < before


def _reaches(before: str, now: str) -> bool:
    seen, todo = {before}, [before]
    while todo:
        for state in sorted(_FOLLOWED_BY.get(todo.pop(), ())):
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return now in seen


def check_members(snapshot: Snapshot, findings: Findings) -> None:
    """Check that each master has the same members and the same leader as the leading master."""
    leading = _members(snapshot.masters[snapshot.leader])
    if leading is None:
        return
    leader_uuid = snapshot.masters[snapshot.leader].get("uuid")
    findings.look("members")
    if leader_uuid is not None and leader_uuid not in leading[0]:
        findings.violate(
            "members", f"The leading master {snapshot.leader} is not in its own list of members."
        )
    for name, dump in sorted(snapshot.masters.items()):
        members = _members(dump)
        if members is None or name == snapshot.leader:
            continue
        findings.look("members")
        if members[0] != leading[0]:
            findings.violate(
                "members",
                f"Master {name} has the members {', '.join(members[0])}; {snapshot.leader}, which "
                f"leads, has {', '.join(leading[0])}.",
            )
        elif None not in (members[1], leading[1]) and members[1] != leading[1]:
            findings.violate(
                "members",
                f"Master {name} regards {members[1]} as the leader; {snapshot.leader}, "
                "which leads, "
                f"says {leading[1]}.",
            )


def _members(dump: Json) -> tuple[list[str], str | None] | None:
    raft = dump.get("raft") or {}
    config = raft.get("config")
    if not isinstance(config, Mapping) or not isinstance(config.get("peers"), list | tuple):
        return None
    members = [f"{peer['uuid']}{_mark(peer)}" for peer in config["peers"]]
    return sorted(members), raft.get("leader_uuid") or None


def _mark(peer: Json) -> str:
    return "" if peer.get("member_type", "VOTER") == "VOTER" else " (no voter)"


def check_checksums(snapshot: Snapshot, findings: Findings) -> None:
    """Check that replicas that applied a tablet up to the same index hold the same rows."""
    first: dict[tuple[str, int], tuple[str, int | None, str]] = {}
    for name, dump in sorted(snapshot.tservers.items()):
        for replica in dump["tablets"]:
            rows = replica.get("rows") or {}
            index, checksum = rows.get("applied_index"), rows.get("digest")
            if checksum is None or not isinstance(index, int) or replica["data_state"] != "READY":
                continue
            held = (name, rows.get("live_rows"), str(checksum))
            other = first.setdefault((replica["tablet_id"], index), held)
            if other is held:
                continue
            # Two empty replicas are always equal, so they do not count as a check.
            if (other[1], held[1]) != (0, 0):
                findings.look("replica-checksums")
            if other[1:] != held[1:]:
                findings.violate(
                    "replica-checksums",
                    f"{other[0]} and {name} have applied tablet {replica['tablet_id']} up to "
                    f"index {index} and hold other rows: {other[1]} with the checksum {other[2]}, "
                    f"and {held[1]} with {held[2]}.",
                )


def check_coverage(snapshot: Snapshot, findings: Findings) -> None:
    """Check that each live table's tablets, in the leader's rows, cover its keys exactly once."""
    for table in snapshot.live_tables:
        findings.look("coverage")
        words = table_words(table["id"], table["name"])
        if table.get("is_bounded"):
            cover_ranges(table, words, snapshot.live_tablets(table["id"]), findings)
            continue
        position = ""
        ended = False
        for tablet in snapshot.live_tablets(table["id"]):
            start, end = tablet["start"], tablet["end"]
            if ended or start < position:
                findings.violate(
                    "coverage",
                    f"{words} is covered twice from key {start or 'the start'} on: tablet "
                    f"{tablet['id']} overlaps the previous tablet.",
                )
            elif start > position:
                findings.violate(
                    "coverage",
                    f"{words} has no tablet for keys from {position or 'the start'} to {start}.",
                )
            ended = ended or end == ""
            position = max(position, end)
        if not ended:
            findings.violate(
                "coverage", f"{words} has no tablet for keys from {position or 'the start'} on."
            )
