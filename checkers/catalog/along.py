"""Invariants along the history, all near-linear: real time is the order of indices.

* ids are never reused: after an acknowledged delete of a table no operation invoked later sees it;
* the applied schema version of a table never goes back;
* once an alter was reported done, its version is the applied one for everybody who asks later;
* revisions: an answer's revision is at least that of everything acknowledged before it was asked;
* acknowledged tables that nothing can have deleted are in the final snapshot, under a name that
  they can have (I3 of the bug catalogue).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from checkers._sentences import sentence
from checkers.catalog.findings import Findings
from checkers.catalog.snapshot import Snapshot
from harness.ops import History, Op, OpType, Pair

__all__ = ["check_acknowledged", "check_history"]

MUTATIONS = frozenset({"create", "alter", "rename", "delete"})


def _value(op: Op | None) -> Mapping[str, Any]:
    return op.value if op is not None and isinstance(op.value, dict) else {}


def _always(pair: Pair) -> bool:
    del pair
    return True


def _ok(pair: Pair) -> bool:
    return pair.type is OpType.OK and _value(pair.completion).get("result", "ok") == "ok"


def check_history(history: History, findings: Findings) -> None:
    """All invariants that need no snapshot."""
    pairs = history.pairs
    _monotone(
        "revisions",
        "revision",
        ((p, "", _value(p.completion).get("revision")) for p in pairs if p.completion is not None),
        findings,
        ack=lambda pair: pair.invoke.f in MUTATIONS and _ok(pair),
    )
    _monotone(
        "applied-versions",
        "applied schema version",
        (
            (
                p,
                str(_value(p.completion).get("table_id")),
                _value(p.completion).get("applied_schema_version"),
            )
            for p in pairs
            if _ok(p) and p.invoke.f == "get"
        ),
        findings,
    )
    _monotone(
        "alter-done",
        "applied schema version",
        _alter_done(pairs),
        findings,
        ack=lambda pair: pair.invoke.f == "is-alter-done",
    )
    _ids_not_reused(pairs, findings)


def _alter_done(pairs: Iterable[Pair]) -> Iterable[tuple[Pair, str, Any]]:
    for pair in pairs:
        value = _value(pair.completion)
        if not _ok(pair):
            continue
        if pair.invoke.f == "get":
            yield pair, str(value.get("table_id")), value.get("applied_schema_version")
        elif pair.invoke.f == "is-alter-done" and value.get("done"):
            yield pair, str(value.get("table_id")), value.get("schema_version")


def _monotone(
    name: str,
    what: str,
    observations: Iterable[tuple[Pair, str, Any]],
    findings: Findings,
    *,
    ack: Callable[[Pair], bool] = _always,
) -> None:
    """Whatever was invoked after an `ack` completed shows at least its number, per subject.

    One sweep over calls and returns: at a call, the highest number acknowledged is the bound.
    """
    events: list[tuple[int, int, Pair, str, int]] = []
    for pair, subject, number in observations:
        if isinstance(number, int):
            assert pair.completion is not None
            events.append((pair.invoke.index, 0, pair, subject, number))
            if ack(pair):
                events.append((pair.completion.index, 1, pair, subject, number))
    highest: dict[str, tuple[int, Pair]] = {}
    for _, kind, pair, subject, number in sorted(events, key=lambda event: event[:2]):
        best = highest.get(subject)
        if kind == 1:
            if best is None or number > best[0]:
                highest[subject] = (number, pair)
            continue
        findings.look(name)
        if best is not None and number < best[0]:
            about = f" of table {subject}" if subject else ""
            findings.violate(
                name,
                f"The {what}{about} went back from {best[0]} to {number}: "
                f"{_lower(sentence(best[1]))}, and after that {_lower(sentence(pair))}.",
                best[1].invoke.index,
                pair.invoke.index,
            )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _seen_ids(pair: Pair) -> list[str]:
    value = _value(pair.completion)
    if not _ok(pair):
        return []
    if pair.invoke.f == "list":
        return [entry[1] for entry in value.get("tables", ()) if entry[1]]
    return [value["table_id"]] if value.get("table_id") else []


def _ids_not_reused(pairs: Iterable[Pair], findings: Findings) -> None:
    deleted: dict[str, Pair] = {}
    created: dict[str, Pair] = {}
    every = list(pairs)
    for pair in every:
        ids = _seen_ids(pair)
        book = {"delete": deleted, "create": created}.get(pair.invoke.f)
        for ident in ids if book is not None else ():
            assert book is not None
            findings.look("ids-not-reused")
            first = book.setdefault(ident, pair)
            if first is not pair:
                findings.violate(
                    "ids-not-reused",
                    f"Table {ident} was {pair.invoke.f}d twice: {_lower(sentence(first))}, and "
                    f"{_lower(sentence(pair))}.",
                    first.invoke.index,
                    pair.invoke.index,
                )
    for pair in every:
        for ident in _seen_ids(pair):
            grave = deleted.get(ident)
            if grave is None or grave is pair:
                continue
            assert grave.completion is not None
            if pair.invoke.index > grave.completion.index:
                findings.violate(
                    "ids-not-reused",
                    f"Table {ident} was seen after its deletion: {_lower(sentence(grave))}, and "
                    f"after that {_lower(sentence(pair))}.",
                    grave.invoke.index,
                    pair.invoke.index,
                )


def check_acknowledged(history: History, snapshot: Snapshot, findings: Findings) -> None:
    """Acknowledged changes are in the snapshot; it is younger than every completion before it.

    A table is only demanded where nothing of unknown outcome can have removed it: a lost delete
    could have hit any table that ever had its name. The last acknowledged version is a lower bound
    for the version in the rows (lost alters may have added to it).
    """
    last: dict[str, tuple[int, Pair]] = {}
    names: dict[str, set[str]] = {}
    lost_deletes: set[str] = set()
    lost_renames: list[tuple[str, str]] = []
    deletes: dict[str, Pair] = {}
    creates: dict[str, Pair] = {}
    for pair in history.pairs:
        call, value = pair.invoke, _value(pair.completion)
        given = _value(call)
        if pair.type is OpType.INFO:
            if call.f == "delete":
                lost_deletes.add(given["name"])
            elif call.f == "rename":
                lost_renames.append((given["name"], given["new_name"]))
            continue
        if call.f not in MUTATIONS or not _ok(pair) or not value.get("table_id"):
            continue
        ident = value["table_id"]
        version = value.get("schema_version") or 0
        if ident not in last or version >= last[ident][0]:
            last[ident] = (version, pair)
        if call.f == "create":
            creates[ident] = pair
        if call.f == "delete":
            deletes[ident] = pair
        names.setdefault(ident, set()).add(given.get("new_name", given["name"]))
    for ident, (version, pair) in sorted(last.items()):
        _demand(
            ident,
            version,
            pair,
            _reachable(names[ident], lost_renames),
            lost_deletes,
            deletes.get(ident),
            snapshot,
            findings,
        )


def _reachable(names: set[str], lost_renames: list[tuple[str, str]]) -> set[str]:
    """Names that a table can have had, with lost renames that may have moved it."""
    reached = set(names)
    grown = True
    while grown:
        grown = False
        for old, new in lost_renames:
            if old in reached and new not in reached:
                reached.add(new)
                grown = True
    return reached


def _demand(
    ident: str,
    version: int,
    pair: Pair,
    names: set[str],
    lost_deletes: set[str],
    delete: Pair | None,
    snapshot: Snapshot,
    findings: Findings,
) -> None:
    findings.look("acknowledged")
    row = snapshot.tables.get(ident)
    live = row is not None and row["state"] in ("RUNNING", "ALTERING")
    where = f"the snapshot of the leading master {snapshot.leader}"
    if delete is not None:
        if live:
            findings.violate(
                "acknowledged",
                f"{sentence(delete)}, but in {where} table {ident} lives as {row['name']!r}."
                if row is not None
                else "",
                delete.invoke.index,
            )
        return
    if not live:
        if not names & lost_deletes:
            state = "is missing" if row is None else f"is {row['state']}"
            findings.violate(
                "acknowledged",
                f"{sentence(pair)}, and nothing deleted table {ident} since, but in {where} it "
                f"{state}.",
                pair.invoke.index,
            )
        return
    assert row is not None
    given = _value(pair.invoke)
    name = given.get("new_name", given["name"])
    if row["version"] < version:
        findings.violate(
            "acknowledged",
            f"{sentence(pair)}, but in {where} table {ident} is only at version {row['version']}, "
            f"below {version}.",
            pair.invoke.index,
        )
    elif row["version"] == version and row["name"] != name:
        findings.violate(
            "acknowledged",
            f"{sentence(pair)}, but in {where} table {ident} is named {row['name']!r} at that "
            "version.",
            pair.invoke.index,
        )
