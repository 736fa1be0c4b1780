"""Checks the invariants of the final snapshot, which has the dumps of all masters and tablet
servers.

The snapshot is `{"masters": {name: dump}, "tservers": {name: dump}}`. The dump of a node that did
not answer is `None`. The rows of the ready leading master count as the catalog, and the other dumps
are compared with these rows. A missing part makes the verdict `unknown`.

The invariants, with their numbers in the bug catalogue, are: one leader per term (I1), log matching
(I2), names and ids (I5), coverage (I6), and everything settled after healing (I7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from checkers.catalog.sentences import table_words
from checkers.verdict.findings import Findings
from harness.ops import Op
from harness.permits import ORPHAN_REPLICAS

TABLE_STATES: Final = frozenset({"UNKNOWN", "PREPARING", "RUNNING", "ALTERING", "REMOVED"})
SETTLED_TABLES: Final = frozenset({"RUNNING", "REMOVED"})
LIVE_TABLES: Final = frozenset({"RUNNING", "ALTERING"})
TABLET_STATES: Final = frozenset({"PREPARING", "CREATING", "RUNNING", "REPLACED", "DELETED"})
DEAD_TABLETS: Final = frozenset({"REPLACED", "DELETED"})
READY_DATA: Final = "READY"
VOTER: Final = "VOTER"

Json = dict[str, Any]


class Snapshot:
    """The dumps of all nodes, and the rows of the ready leading master."""

    def __init__(
        self,
        masters: dict[str, Json],
        tservers: dict[str, Json],
        leader: str,
        *,
        keeps_voters: bool = False,
        servers: int = 0,
    ) -> None:
        """Create a snapshot in which the rows of the master `leader` count as the catalog.

        If `keeps_voters`, a tablet must never have fewer voters than its table asks for. `servers`
        is the number of tablet servers, including those without a dump.
        """
        self.servers = servers
        self.masters = masters
        self.tservers = tservers
        self.leader = leader
        self.keeps_voters = keeps_voters
        rows = masters[leader]
        self.tables: dict[str, Json] = {table["id"]: table for table in rows["tables"]}
        self.tablets: dict[str, Json] = {tablet["id"]: tablet for tablet in rows["tablets"]}

    def words(self, table_id: str) -> str:
        return table_words(table_id, (self.tables.get(table_id) or {}).get("name"))

    @property
    def rows_left_out(self) -> bool:
        """Whether the leader's dump is truncated, so that a missing row may exist."""
        return any((self.masters[self.leader].get("truncated") or {}).values())

    @property
    def hides_removed(self) -> bool:
        """Whether the target shows no rows of removed tables and of their tablets."""
        return bool(self.masters[self.leader].get("hides_removed"))

    def lacks_servers(self, table_id: str) -> bool:
        """Whether the table asks for more replicas than there are tablet servers.

        The tablets of such a table are never placed, and its alters never complete.
        """
        rows = [row for row in self.tablets.values() if row["table_id"] == table_id]
        if any(row.get("consensus") for row in rows):
            return False
        resting = {
            server["uuid"]
            for server in self.masters[self.leader].get("tservers") or ()
            if server.get("in_maintenance")
        }
        uuids = {dump["uuid"] for dump in self.tservers.values()}
        usable = self.servers - len(uuids & resting)
        table = self.tables.get(table_id) or {}
        return bool(self.servers and table.get("num_replicas", 0) > usable)

    @property
    def live_tables(self) -> list[Json]:
        """All tables that are not removed, sorted by name and id."""
        live = [table for table in self.tables.values() if table["state"] in LIVE_TABLES]
        return sorted(live, key=lambda table: (table["name"], table["id"]))

    def live_tablets(self, table_id: str) -> list[Json]:
        """Return a table's tablets that are neither deleted nor replaced, sorted by start key."""
        live = [
            tablet
            for tablet in self.tablets.values()
            if tablet["table_id"] == table_id and tablet["state"] not in DEAD_TABLETS
        ]
        return sorted(live, key=lambda tablet: (tablet["start"], tablet["id"]))


def read_snapshot(
    value: Any, findings: Findings, gone: Mapping[str, tuple[str, Op]]
) -> Snapshot | None:
    """Return the snapshot, or `None` if it is too incomplete to judge.

    Without a ready leader, the catalog cannot be judged. Each missing part is reported. A node in
    `gone` may be missing: `gone` maps the node to the permit that lets it end, and to the op that
    reports the end.
    """
    if not isinstance(value, Mapping) or not value.get("masters"):
        findings.gap("the snapshot has no masters")
        return None
    masters = _answered("master", value["masters"], findings, gone)
    tservers = _answered("tablet server", value.get("tservers") or {}, findings, gone)
    if not value.get("tservers"):
        findings.gap("the snapshot has no tablet servers")
    for name, dump in sorted(masters.items()):
        for kind, count in sorted((dump.get("truncated") or {}).items()):
            if count:
                findings.gap(f"master {name} left {count} {kind} out of its dump")
    leaders = [
        (dump.get("term", 0), name)
        for name, dump in masters.items()
        if dump.get("role") == "LEADER" and dump.get("ready")
    ]
    if not leaders:
        findings.gap(
            "no master was a ready leader when the snapshot was taken: "
            + (", ".join(f"{n} {d.get('role')}" for n, d in sorted(masters.items())) or "none")
        )
        return None
    term, leader = max(leaders)
    followed = sum(dump.get("term", 0) <= term for dump in masters.values())
    if followed <= len(value["masters"]) // 2:
        # Another master may lead in a later term, and then only its rows have all acknowledged
        # changes.
        findings.gap(
            f"master {leader} leads in term {term}, but no majority is known to follow it, so "
            "its rows may be old"
        )
        return None
    keeps_voters = value.get("keeps_voters") is True
    servers = len(value.get("tservers") or {})
    return Snapshot(masters, tservers, leader, keeps_voters=keeps_voters, servers=servers)


def _answered(
    kind: str, dumps: Mapping[str, Any], findings: Findings, gone: Mapping[str, tuple[str, Op]]
) -> dict[str, Json]:
    for name in sorted(name for name, dump in dumps.items() if dump is None and name in gone):
        permit, op = gone[name]
        findings.permit(permit, op.index, about=op.index)
    silent = sorted(name for name, dump in dumps.items() if dump is None and name not in gone)
    if silent:
        findings.gap(f"no snapshot of {kind} {', '.join(silent)}: it did not answer")
    return {name: dump for name, dump in sorted(dumps.items()) if dump is not None}


def check_snapshot(snapshot: Snapshot, findings: Findings, *, settled: bool) -> None:
    """Check the invariants on a snapshot.

    If `settled` is false, invariants that hold only at rest are left out. The liveness checker
    judges that the target did not settle.
    """
    _one_leader(snapshot, findings)
    _logs_agree(snapshot, findings)
    _names_unique(snapshot, findings)
    _states_legal(snapshot, findings, settled=settled)
    _replica_logs_agree(snapshot, findings)
    if settled:
        # Nodes are dumped one after another, so their dumps are consistent with each other only at
        # rest.
        _no_orphans(snapshot, findings)
        _replicas_match(snapshot, findings)


def _one_leader(snapshot: Snapshot, findings: Findings) -> None:
    groups: dict[str, list[tuple[int, str]]] = {"the masters": []}
    for name, dump in snapshot.masters.items():
        findings.look("one-leader")
        if dump.get("role") == "LEADER":
            groups["the masters"].append((dump["term"], name))
    for name, dump in snapshot.tservers.items():
        for replica in dump["tablets"]:
            raft = replica.get("raft")
            if raft and raft.get("role") == "LEADER":
                members = groups.setdefault(f"tablet {replica['tablet_id']}", [])
                members.append((raft["term"], name))
    for group, leaders in sorted(groups.items()):
        by_term: dict[int, list[str]] = {}
        for term, name in leaders:
            by_term.setdefault(term, []).append(name)
        for term, names in sorted(by_term.items()):
            if len(names) > 1:
                findings.violate(
                    "one-leader", f"{' and '.join(sorted(names))} both lead {group} in term {term}."
                )


def _compare_logs(group: str, rafts: Mapping[str, Json], findings: Findings, name: str) -> None:
    digests: dict[int, tuple[str, str]] = {}
    entries: dict[int, tuple[tuple[int, int], str]] = {}
    reported = False
    for node, raft in sorted(rafts.items()):
        committed = min(raft.get("commit_index", 0), raft.get("last_index", 0))
        for index, digest in raft.get("digests") or []:
            findings.look(name)
            other, holder = digests.setdefault(index, (digest, node))
            if other != digest and not reported:
                reported = True
                findings.violate(
                    name,
                    f"{holder} and {node} have applied different logs of {group}: their digests "
                    f"differ at index {index} ({other} and {digest}).",
                )
        for index, term, checksum in raft.get("log") or []:
            if index > committed:
                continue
            here = (term, checksum)
            there, holder = entries.setdefault(index, (here, node))
            if there != here and not reported:
                reported = True
                findings.violate(
                    name,
                    f"{holder} and {node} committed different entries of {group} at index {index}: "
                    f"term {there[0]} (checksum {there[1]}) and term {term} (checksum {checksum}).",
                )


def _logs_agree(snapshot: Snapshot, findings: Findings) -> None:
    rafts = {name: dump["raft"] for name, dump in snapshot.masters.items() if dump.get("raft")}
    for name in sorted(set(snapshot.masters) - set(rafts)):
        findings.gap(f"master {name} shows no log")
    _compare_logs("the system catalog", rafts, findings, "logs-agree")


def _replica_logs_agree(snapshot: Snapshot, findings: Findings) -> None:
    groups: dict[str, dict[str, Json]] = {}
    for name, dump in snapshot.tservers.items():
        for replica in dump["tablets"]:
            if replica.get("raft"):
                groups.setdefault(replica["tablet_id"], {})[name] = replica["raft"]
    for tablet_id, rafts in sorted(groups.items()):
        _compare_logs(f"tablet {tablet_id}", rafts, findings, "replica-logs-agree")


def _names_unique(snapshot: Snapshot, findings: Findings) -> None:
    for master, dump in snapshot.masters.items():
        by_name: dict[str, list[str]] = {}
        for table in dump["tables"]:
            if table["state"] in LIVE_TABLES:
                by_name.setdefault(table["name"], []).append(table["id"])
        for name, ids in sorted(by_name.items()):
            findings.look("unique-names")
            if len(ids) > 1:
                findings.violate(
                    "unique-names",
                    f"On master {master} {len(ids)} live tables are named {name!r}: "
                    f"{', '.join(sorted(ids))}.",
                )
        all_ids = [row["id"] for kind in ("tables", "tablets") for row in dump[kind]]
        findings.look("unique-ids", len(all_ids))
        for ident in sorted({ident for ident in all_ids if all_ids.count(ident) > 1}):
            findings.violate("unique-ids", f"On master {master} the id {ident} occurs twice.")
    rows = snapshot.masters[snapshot.leader]
    expected = {table["name"]: table["id"] for table in snapshot.live_tables}
    name_map = rows.get("name_map")
    if name_map is None:
        findings.gap(f"master {snapshot.leader} shows no name map")
        return
    for name in sorted(set(expected) | set(name_map)):
        findings.look("name-map")
        if expected.get(name) != name_map.get(name):
            findings.violate(
                "name-map",
                f"On the leading master {snapshot.leader} the name {name!r} resolves to "
                f"{name_map.get(name) or 'nothing'}, but its rows say "
                f"{expected.get(name) or 'nothing'}.",
            )


def _states_legal(snapshot: Snapshot, findings: Findings, *, settled: bool) -> None:
    for table in sorted(snapshot.tables.values(), key=lambda row: str(row["id"])):
        findings.look("table-states")
        if settled:
            findings.look("settled")
        state, check = table["state"], "table-states"
        if state not in TABLE_STATES:
            what = f"is in the unknown state {state}"
        elif state not in LIVE_TABLES | {"REMOVED"}:
            what = f"is stored in the state {state}, which must only exist in memory"
        elif settled and state not in SETTLED_TABLES and not snapshot.lacks_servers(table["id"]):
            what, check = f"is still {state} after everything settled", "settled"
        else:
            continue
        findings.violate(check, f"{table_words(table['id'], table['name'])} {what}.")
    for tablet in sorted(snapshot.tablets.values(), key=lambda row: str(row["id"])):
        findings.look("tablet-states")
        if settled:
            findings.look("settled")
        check = "tablet-states"
        state, table_id = tablet["state"], tablet["table_id"]
        owner = snapshot.tables.get(table_id)
        if state not in TABLET_STATES:
            what = f"is in the unknown state {state}"
        elif owner is None:
            what = "belongs to a table that does not exist"
        elif owner["state"] == "REMOVED" and state not in DEAD_TABLETS:
            what = f"is {state} although its table was removed"
        elif (
            settled
            and state not in DEAD_TABLETS
            and state != "RUNNING"
            and not (state == "PREPARING" and snapshot.lacks_servers(table_id))
        ):
            what, check = f"is still {state} after everything settled", "settled"
        else:
            continue
        words = f"Tablet {tablet['id']} of {snapshot.words(table_id)}"
        findings.violate(check, f"{words} {what}.")


def _no_orphans(snapshot: Snapshot, findings: Findings) -> None:
    for name, dump in snapshot.tservers.items():
        for replica in dump["tablets"]:
            findings.look("orphans")
            tablet_id = replica["tablet_id"]
            row = snapshot.tablets.get(tablet_id)
            words = f"Tablet server {name} holds a replica of tablet {tablet_id}"
            if row is None and snapshot.hides_removed and replica["data_state"] == "TOMBSTONED":
                continue  # the tablet may be deleted and its row hidden: a tombstone is allowed
            if row is None:
                may = ORPHAN_REPLICAS if ORPHAN_REPLICAS in findings.permits else None
                text = f"{words}, which the catalog does not know."
                findings.violate("orphans", text, permit=may)
            elif row["table_id"] != replica["table_id"]:
                findings.violate(
                    "orphans",
                    f"{words} for {snapshot.words(replica['table_id'])}, but the catalog gives the "
                    f"tablet to {snapshot.words(row['table_id'])}.",
                )
            elif row["state"] in DEAD_TABLETS and replica.get("data_state") != "TOMBSTONED":
                # A tombstone is allowed: it holds no rows. Kudu keeps it until the next full
                # report.
                findings.violate("orphans", f"{words}, which the catalog has as {row['state']}.")


def _replicas_match(snapshot: Snapshot, findings: Findings) -> None:
    by_uuid = {dump["uuid"]: (name, dump) for name, dump in snapshot.tservers.items()}
    replicas = {
        (dump["uuid"], replica["tablet_id"]): replica
        for dump in snapshot.tservers.values()
        for replica in dump["tablets"]
        if replica["data_state"] == READY_DATA
    }
    for table in snapshot.live_tables:
        for tablet in snapshot.live_tablets(table["id"]):
            words = f"Tablet {tablet['id']} of {table_words(table['id'], table['name'])}"
            consensus = tablet.get("consensus")
            if consensus is None and snapshot.lacks_servers(table["id"]):
                continue
            if consensus is None:
                findings.violate("replicas", f"{words} has no replicas in the catalog.")
                continue
            wanted = {peer["uuid"] for peer in consensus["peers"]}
            voters = sum(peer["member_type"] == VOTER for peer in consensus["peers"])
            findings.look("replicas", len(wanted))
            if voters != table["num_replicas"]:
                findings.violate(
                    "replicas",
                    f"{words} has {voters} voters; the table asks for {table['num_replicas']}.",
                )
            for uuid in sorted(wanted):
                if uuid not in by_uuid:
                    findings.gap(f"{words} has a replica on {uuid}, which has no snapshot")
                    continue
                _check_replica(
                    words,
                    by_uuid[uuid][0],
                    replicas.get((uuid, tablet["id"])),
                    table,
                    wanted,
                    findings,
                )
            for uuid, tablet_id in sorted(replicas):
                if tablet_id == tablet["id"] and uuid not in wanted:
                    # The change that added this copy was undone, so the copy never belonged to its
                    # Raft group.
                    config = replicas[uuid, tablet_id].get("committed_config") or {"peers": []}
                    stray = all(peer["uuid"] != uuid for peer in config["peers"])
                    may = stray and ORPHAN_REPLICAS in findings.permits
                    findings.violate(
                        "replicas",
                        f"{words} has a replica on {by_uuid[uuid][0]}, which is not in its "
                        "committed configuration.",
                        permit=ORPHAN_REPLICAS if may else None,
                    )


def _check_replica(
    words: str, node: str, replica: Json | None, table: Json, wanted: set[str], findings: Findings
) -> None:
    if replica is None:
        findings.violate(
            "replicas", f"{words} has no replica on {node}, although the catalog places one there."
        )
        return
    config = replica.get("committed_config")
    if config is None:
        findings.gap(f"{words} on {node} shows no configuration")
    elif {peer["uuid"] for peer in config["peers"]} != wanted:
        findings.violate(
            "replicas",
            f"{words}: the replica on {node} has a committed configuration of "
            f"{', '.join(sorted(peer['uuid'] for peer in config['peers']))}, the catalog has "
            f"{', '.join(sorted(wanted))}.",
        )
    findings.look("schema-versions")
    if replica["schema_version"] != table["version"]:
        findings.violate(
            "schema-versions",
            f"{words} is at schema version {replica['schema_version']} on {node}; the table is at "
            f"version {table['version']}.",
        )
