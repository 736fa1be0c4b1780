"""Compares what different nodes say about rows, columns, checkpoints and leaders.

* Masters with the same applied index have equal rows.
* A replica has the same name and columns as the catalog had at the replica's schema version.
* The column ids of a table are unique and less than its `next_column_id`. The id of a dropped
  column never comes back (KUDU-461). An id always belongs to the same column. If the column has
  several names, requested renames must connect these names.
* Two replicas that reached the same index of a Raft group had the same state
  (`harness.run.divergence`).
* All nodes that name a tablet's leader in the same term name the same leader (I1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from checkers.catalog.invariants.permissions import CatalogFindings
from checkers.catalog.invariants.snapshot import DEAD_TABLETS, LIVE_TABLES, Snapshot
from checkers.catalog.sentences import table_words
from checkers.verdict.sentences import seconds
from harness.ops import History, OpType
from harness.vocabularies import fields_of

Json = Mapping[str, Any]
SHOWN_MAX: Final = 120


def check_state(snapshot: Snapshot, findings: CatalogFindings) -> None:
    """Check the rules that also hold while the target is not at rest."""
    _rows_agree(snapshot, findings)
    _replicas_agree(snapshot, findings)
    _one_leader_named(snapshot, findings)


def _rows_agree(snapshot: Snapshot, findings: CatalogFindings) -> None:
    first: dict[int, str] = {}
    for name in [snapshot.leader, *sorted(set(snapshot.masters) - {snapshot.leader})]:
        dump = snapshot.masters[name]
        applied = (dump.get("raft") or {}).get("applied_index")
        if applied is None:
            continue
        other = first.setdefault(applied, name)
        if other != name:
            for kind in ("tables", "tablets"):
                _compare_rows(kind, (other, snapshot.masters[other]), (name, dump), findings)


def _compare_rows(
    kind: str, one: tuple[str, Json], two: tuple[str, Json], findings: CatalogFindings
) -> None:
    rows = [{row["id"]: row for row in dump[kind]} for _, dump in (one, two)]
    findings.look("rows-agree", max(1, len(rows[0])))
    for ident in sorted(set(rows[0]) | set(rows[1])):
        left, right = rows[0].get(ident), rows[1].get(ident)
        if left == right:
            continue
        present = left or right
        assert present is not None
        words = (
            table_words(ident, present["name"])
            if kind == "tables"
            else f"tablet {ident} of table {present['table_id']}"
        )
        at = f"{one[0]} and {two[0]} have applied the same entries"
        if left is None or right is None:
            has, lacks = (two[0], one[0]) if left is None else (one[0], two[0])
            findings.violate("rows-agree", f"{at}, but only {has} has {words}; {lacks} lacks it.")
            continue
        field = next(f for f in sorted({*left, *right}) if left.get(f) != right.get(f))
        values = f"{_short(left.get(field))} and {_short(right.get(field))}"
        findings.violate(
            "rows-agree", f"{at}, but their values of {field} for {words} differ: {values}."
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _columns(columns: list[Any]) -> list[tuple[int, str]]:
    return [
        (column["id"], column["name"]) if isinstance(column, Mapping) else (column[0], column[1])
        for column in columns
    ]


class _Held(NamedTuple):
    node: str
    columns: list[tuple[int, str]] | None
    name: str | None


def _replicas_agree(snapshot: Snapshot, findings: CatalogFindings) -> None:
    held: dict[tuple[str, int], _Held] = {}
    for table in snapshot.live_tables:
        if table.get("columns") is not None:
            columns = _columns(table["columns"])
            held[table["id"], table["version"]] = _Held("the catalog", columns, table["name"])
        if (
            table.get("applied_columns") is not None
            and table["applied_version"] != table["version"]
        ):
            columns = _columns(table["applied_columns"])
            held[table["id"], table["applied_version"]] = _Held("the catalog", columns, None)
    for node, dump in snapshot.tservers.items():
        for replica in dump["tablets"]:
            table = snapshot.tables.get(replica["table_id"], {})
            if replica.get("columns") is None or table.get("state") not in LIVE_TABLES:
                continue
            mine = _Held(node, _columns(replica["columns"]), replica.get("table_name"))
            _compare_replica(replica, table, mine, held, findings)


def _compare_replica(
    replica: Json,
    table: Json,
    mine: _Held,
    held: dict[tuple[str, int], _Held],
    findings: CatalogFindings,
) -> None:
    version = replica["schema_version"]
    words = f"At schema version {version} of {table_words(table['id'], table['name'])}"
    other = held.setdefault((table["id"], version), mine)
    findings.look("replica-columns")
    if other.columns != mine.columns:
        findings.violate(
            "replica-columns",
            f"{words}, {mine.node} holds the columns {_short(mine.columns)} in tablet "
            f"{replica['tablet_id']}; {other.node} has {_short(other.columns)}.",
        )
    if None not in (other.name, mine.name) and other.name != mine.name:
        findings.violate(
            "replica-columns",
            f"{words}, {mine.node} knows it as {mine.name!r}; {other.node} as {other.name!r}.",
        )


def _one_leader_named(snapshot: Snapshot, findings: CatalogFindings) -> None:
    """Check that masters' rows and replicas name one leader for each tablet and term.

    A tablet that a power cut destroyed is created again, and its terms start over. So a permit for
    power cuts may excuse a second leader.
    """
    named: dict[tuple[str, int], tuple[str, str]] = {}
    for tablet_id, term, leader, witness in _leaders_named(snapshot):
        findings.look("one-leader")
        first, by = named.setdefault((tablet_id, term), (leader, witness))
        if first != leader:
            findings.violate(
                "one-leader",
                f"Tablet {tablet_id} has two leaders in term {term}: {by} names {first}, "
                f"{witness} names {leader}.",
                permit=findings.may.lost_by(math.inf),
            )


def _leaders_named(snapshot: Snapshot) -> Iterator[tuple[str, int, str, str]]:
    for name, dump in snapshot.tservers.items():
        for replica in dump["tablets"]:
            raft = replica.get("raft") or {}
            if raft.get("leader_uuid"):
                yield replica["tablet_id"], raft["term"], raft["leader_uuid"], name
    for name, dump in snapshot.masters.items():
        for tablet in dump["tablets"]:
            consensus = tablet.get("consensus") or {}
            if consensus.get("leader_uuid"):
                yield tablet["id"], consensus["term"], consensus["leader_uuid"], name


def check_checkpoints(
    history: History, snapshot: Snapshot | None, findings: CatalogFindings
) -> None:
    """Report the divergences that the harness found by comparing replicas' checkpoints.

    Two permits cover tablets whose replicas may be created again, beginning at term 1 with an empty
    log: `half-made` if the table was removed but the tablet still runs, and `deleted-first` after a
    delete of the table that did not succeed.

    The number of comparisons is recorded at the end of a run. A divergence is a violation even if
    this number is missing.
    """
    for op in history.facts("checkpoints"):
        findings.look("checkpoints", op.value.get("compared", 0))
        findings.look("elections", op.value.get("elections", 0))
    for op in history.facts("divergence"):
        value = op.value
        (node, other), (then, later) = value["nodes"], value["times_ns"]
        permit = findings.may.lost_by(later)
        if permit is None and snapshot is not None:
            permit = _permit_of_tablet(snapshot, value["group"], later, findings)
        group = "the system catalog" if value["group"] == "master" else f"tablet {value['group']}"
        if value["what"] == "leader":
            findings.look("elections")
            findings.violate(
                "elections",
                f"{node} at {seconds(then)} s and {other} at {seconds(later)} s both led {group} "
                f"in term {value['index']}.",
                op.index,
                permit=None if value["group"] == "master" else permit,
            )
            continue
        had = _DIVERGED.get(value["what"], f"announced different values ({value['what']})")
        again = "again " if node == other else ""
        findings.violate(
            "checkpoints",
            f"{node} at {seconds(then)} s and {other} {again}at {seconds(later)} s {had} at index "
            f"{value['index']} of {group}: {' and '.join(map(str, value['values']))}.",
            op.index,
            permit=permit,
        )


def _permit_of_tablet(
    snapshot: Snapshot, tablet_id: str, time_ns: float, findings: CatalogFindings
) -> str | None:
    """Return the permit under which the tablet's replicas may have been created again."""
    tablet = snapshot.tablets.get(tablet_id)
    if tablet is None or tablet["state"] in DEAD_TABLETS:
        return None
    table = snapshot.tables.get(tablet["table_id"])
    if table is None or table["state"] == "REMOVED":
        return findings.may.half_made()
    return findings.may.deleted_first(table["name"], time_ns)


_DIVERGED: Final = {"log": "had applied different entries", "state": "held different states"}


class _Sight(NamedTuple):
    """The column ids of a table at one schema version, from an answer or from the final rows.

    `invoke` and `answered` are the indices of the invocation and of the answer: -1 and infinity
    for the final rows.
    """

    version: int
    invoke: int
    ids: tuple[int, ...]
    names: tuple[str, ...]
    where: str
    answered: float


def check_column_ids(
    history: History, snapshot: Snapshot | None, findings: CatalogFindings
) -> None:
    """Check that column ids are unique, never reused, and less than the table's `next_column_id`.

    If the profile permits an answer to show a table before its create took effect, the table may
    have no columns yet.
    """
    sights: dict[str, list[_Sight]] = {}
    for pair in history.pairs:
        if pair.type is not OpType.OK or pair.invoke.f != "get":
            continue
        value = fields_of(pair.completion)
        ids, version = value.get("column_ids"), value.get("applied_schema_version")
        if isinstance(ids, list | tuple) and isinstance(version, int) and value.get("table_id"):
            assert pair.completion is not None, "an ok operation has a completion"
            index, answered = pair.invoke.index, pair.completion.index
            dirty = findings.may.dirty(pair, pair.invoke.value["name"])
            if dirty is not None and not ids and version == 0:
                findings.permit(dirty, index, about=index)
                continue
            names = tuple(map(str, value.get("columns") or ()))
            sight = _Sight(version, index, tuple(ids), names, f"op {index}", answered)
            sights.setdefault(value["table_id"], []).append(sight)
    for table in () if snapshot is None else snapshot.live_tables:
        if table.get("columns") is None:
            continue
        columns = _columns([column for column in table["columns"] if not column.get("is_key")])
        final_ids, names = (
            (tuple(part) for part in zip(*columns, strict=True)) if columns else ((), ())
        )
        sights.setdefault(table["id"], []).append(
            _Sight(table["version"], -1, final_ids, names, "the final rows", math.inf)
        )
        highest = max((column["id"] for column in table["columns"]), default=-1)
        findings.look("column-ids")
        if highest >= table["next_column_id"]:
            findings.violate(
                "column-ids",
                f"{table_words(table['id'], table['name'])} has a column with the id {highest}, "
                f"but its next column would get the id {table['next_column_id']}.",
                permit=findings.may.lost_before(math.inf),
            )
    renames = _Renames(history)
    for ident, seen in sorted(sights.items()):
        seen.sort()
        _never_again(ident, seen, findings)
        _one_column_each(ident, seen, renames, findings)


def _never_again(ident: str, seen: list[_Sight], findings: CatalogFindings) -> None:
    gone: dict[int, _Sight] = {}
    present: tuple[int, ...] = ()
    for sight in seen:
        findings.look("column-ids")
        indices = [sight.invoke] if sight.invoke >= 0 else []
        if len(set(sight.ids)) != len(sight.ids):
            findings.violate(
                "column-ids",
                f"At version {sight.version} of {table_words(ident, None)}, two columns have one "
                f"id, by {sight.where}: {', '.join(map(str, sight.ids))}.",
                *indices,
                permit=findings.may.lost_before(sight.answered),
            )
        for number in present:
            if number not in sight.ids:
                gone.setdefault(number, sight)
        for number in sight.ids:
            if number in gone:
                without = gone[number]
                findings.violate(
                    "column-ids",
                    f"The column id {number} of {table_words(ident, None)} was used again: it "
                    f"was absent at version {without.version} ({without.where}) and exists "
                    "at version "
                    f"{sight.version} ({sight.where}).",
                    *([without.invoke] if without.invoke >= 0 else []),
                    *indices,
                    permit=findings.may.lost_before(max(without.answered, sight.answered)),
                )
        present = sight.ids


class _Renames:
    """Groups of column names that requested renames connect. A single column may have had all names
    of a group.
    """

    def __init__(self, history: History) -> None:
        self._parent: dict[str, str] = {}
        for pair in history.pairs:
            steps = fields_of(pair.invoke).get("steps") if pair.invoke.f == "alter" else ()
            for step in steps or ():
                if step[0] == "rename":
                    self._parent[self._root(step[1])] = self._root(step[2])

    def link(self, one: str, two: str) -> bool:
        return self._root(one) == self._root(two)

    def _root(self, name: str) -> str:
        while (parent := self._parent.get(name, name)) != name:
            self._parent[name] = self._parent.get(parent, parent)
            name = parent
        return name


def _one_column_each(
    ident: str, seen: list[_Sight], renames: _Renames, findings: CatalogFindings
) -> None:
    first: dict[int, tuple[str, _Sight]] = {}
    for sight in seen:
        for number, name in zip(sight.ids, sight.names, strict=False):
            before, where = first.setdefault(number, (name, sight))
            if before != name and not renames.link(before, name):
                findings.violate(
                    "column-ids",
                    f"The column id {number} of {table_words(ident, None)} belongs to two "
                    f"columns: {before!r} at version {where.version} ({where.where}) and {name!r} "
                    f"at version {sight.version} ({sight.where}); no client asked to rename one to "
                    "the other.",
                    *(each.invoke for each in (where, sight) if each.invoke >= 0),
                    permit=findings.may.lost_before(max(where.answered, sight.answered)),
                )
                first[number] = (name, sight)
