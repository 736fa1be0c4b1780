"""Dumps of nodes against each other: what only more of them together tell.

* Masters apply one log, so that the dump of one that lags is an earlier state of it (I5): from
  there to one that is ahead, states go forward only, no row vanishes, no number falls.
* At rest all masters have the same members and know one leader, who is one of them (I7).
* Replicas of a tablet that applied equally much hold the same rows (I8): their dumps may say how
  many rows (`live_rows`) and their `digest`, as of `applied_index`. Others are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

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
"""By states of tables and tablets; those that are not here are the last of a row."""
_NUMBERS: Final = ("version", "applied_version", "next_column_id", "running_index")


def check_forward(snapshot: Snapshot, findings: Findings) -> None:
    """Rows of masters, in the order of what they have applied."""
    dumps: dict[int, tuple[str, Json]] = {}
    for name, dump in sorted(snapshot.masters.items()):
        applied = (dump.get("raft") or {}).get("applied_index")
        if isinstance(applied, int):
            dumps.setdefault(applied, (name, dump))
    for (_, (one, older)), (_, (two, newer)) in pairwise(sorted(dumps.items())):
        cut = any((newer.get("truncated") or {}).values())
        for kind in ("tables", "tablets"):
            later = {row["id"]: row for row in newer[kind]}
            for row in older[kind]:
                after = later.get(row["id"])
                findings.look("forward")
                what = _gone(cut) if after is None else _went_back(row, after)
                if what is not None:
                    words = (
                        table_words(row["id"], row["name"])
                        if kind == "tables"
                        else f"tablet {row['id']}"
                    )
                    findings.violate(
                        "forward", f"{two} has applied more than {one}, and there {words} {what}."
                    )


def _gone(cut: bool) -> str | None:
    return None if cut else "has no row any more"


def _went_back(row: Json, after: Json) -> str | None:
    """What of a row fell, in words."""
    before, now = row["state"], after["state"]
    if before != now and not _reaches(before, now):
        return f"went from {before} to {now}"
    for name in _NUMBERS:
        if _fell(row.get(name), after.get(name)):
            return f"fell from {name} {row[name]} to {after[name]}"
    old, new = ((one.get("consensus") or {}).get("opid_index") for one in (row, after))
    return f"fell from opid_index {old} to {new}" if _fell(old, new) else None


def _fell(before: object, now: object) -> bool:
    return isinstance(before, int) and isinstance(now, int) and now < before


def _reaches(before: str, now: str) -> bool:
    """Several steps may lie between two dumps."""
    seen, todo = {before}, [before]
    while todo:
        for state in sorted(_FOLLOWED_BY.get(todo.pop(), ())):
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return now in seen


def check_members(snapshot: Snapshot, findings: Findings) -> None:
    """At rest: the configuration of each master against that of the leading one."""
    leading = _members(snapshot.masters[snapshot.leader])
    if leading is None:
        return
    leader_uuid = snapshot.masters[snapshot.leader].get("uuid")
    findings.look("members")
    if leader_uuid is not None and leader_uuid not in leading[0]:
        findings.violate(
            "members", f"The leading master {snapshot.leader} is none of its own members."
        )
    for name, dump in sorted(snapshot.masters.items()):
        own = _members(dump)
        if own is None or name == snapshot.leader:
            continue
        findings.look("members")
        if own[0] != leading[0]:
            findings.violate(
                "members",
                f"Master {name} has the members {', '.join(own[0])}; {snapshot.leader}, which "
                f"leads, has {', '.join(leading[0])}.",
            )
        elif None not in (own[1], leading[1]) and own[1] != leading[1]:
            findings.violate(
                "members",
                f"Master {name} takes {own[1]} for the leader; {snapshot.leader}, which leads, "
                f"says {leading[1]}.",
            )


def _members(dump: Json) -> tuple[list[str], str | None] | None:
    """The members that a master has, and whom it takes for their leader."""
    raft = dump.get("raft") or {}
    config = raft.get("config")
    if not isinstance(config, Mapping) or not isinstance(config.get("peers"), list | tuple):
        return None
    members = [f"{peer['uuid']}{_mark(peer)}" for peer in config["peers"]]
    return sorted(members), raft.get("leader_uuid") or None


def _mark(peer: Json) -> str:
    """Those that do not vote are told apart."""
    return "" if peer.get("member_type", "VOTER") == "VOTER" else " (no voter)"


def check_checksums(snapshot: Snapshot, findings: Findings) -> None:
    """Rows of replicas, where they say what they hold at which index."""
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
            if (other[1], held[1]) != (0, 0):  # that none holds a row says nothing of rows
                findings.look("replica-checksums")
            if other[1:] != held[1:]:
                findings.violate(
                    "replica-checksums",
                    f"{other[0]} and {name} have applied tablet {replica['tablet_id']} up to "
                    f"index {index} and hold other rows: {other[1]} with the checksum {other[2]}, "
                    f"and {held[1]} with {held[2]}.",
                )
