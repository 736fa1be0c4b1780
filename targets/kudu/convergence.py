"""Decides whether a cluster is at rest, by comparing the dumps of all nodes.

A cluster must come to rest some time after all faults are healed (invariant I7). At rest:

* Every node answers.
* One master leads and is ready. All masters are in its term and have applied the same operations.
* No table is ALTERING, and the leader has no pending call.
* No tablet waits to be created, unless its table asks for more replicas than there are servers.
* Every tablet has as many voters as its table asks for, and no replica waits for promotion,
  unless there are too few tablet servers. Servers in maintenance do not count.
* The catalog names the leader of every tablet.
* Every replica in the catalog exists, runs, and has a leader. Its schema version and committed
  configuration are those in the catalog.
* No tablet server has any other replica, for example of a deleted tablet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from harness.plugins import NodeRole

PENDING_MAX: Final = 20
CLEANUP_MS: Final = 15_000
"""The time within which a ready leader must have removed the rows that are due for removal."""
Dump: TypeAlias = Mapping[str, Any]


class MasterView(msgspec.Struct, frozen=True):
    """One master's dump and role; both are `None` if the master did not answer."""

    dump: Dump | None
    role: NodeRole | None


def find_pending(
    masters: Mapping[str, MasterView], tservers: Mapping[str, Dump | None]
) -> tuple[str, ...]:
    """Return why the cluster is not at rest, in at most `PENDING_MAX` lines; empty if it is."""
    pending = list(_find(masters, tservers))
    if len(pending) > PENDING_MAX:
        more = len(pending) - PENDING_MAX
        pending = [*pending[:PENDING_MAX], f"... and {more} more"]
    return tuple(pending)


def _find(masters: Mapping[str, MasterView], tservers: Mapping[str, Dump | None]) -> Iterator[str]:
    silent = [name for name, view in masters.items() if view.dump is None or view.role is None]
    silent += [name for name, dump in tservers.items() if dump is None]
    if silent:
        yield from (f"{name} does not answer" for name in silent)
        return
    leaders = [
        name
        for name, view in masters.items()
        if view.role is not None and view.role.role == "leader" and view.role.ready
    ]
    if len(leaders) != 1:
        yield f"{len(leaders)} masters lead and are ready: {', '.join(leaders) or 'none'}"
        return
    dumps = {name: view.dump for name, view in masters.items() if view.dump is not None}
    leader = dumps[leaders[0]]
    yield from _unequal_masters(leaders[0], dumps)
    servers = {name: dump for name, dump in tservers.items() if dump is not None}
    yield from _open_work(leader, [dump["uuid"] for dump in servers.values()])
    yield from _unequal_replicas(leader, servers)


def _unequal_masters(leader: str, dumps: Mapping[str, Dump]) -> Iterator[str]:
    expected = dumps[leader]
    for name, dump in dumps.items():
        if dump["term"] != expected["term"]:
            yield f"{name} is in term {dump['term']}, the leader {leader} in {expected['term']}"
            continue
        for what in ("applied_index", "digest"):
            mine, leads = dump["raft"][what], expected["raft"][what]
            if mine != leads:
                yield f"{name} has {what} {mine}, the leader {leader} {leads}"


def _open_work(leader: Dump, tservers: Sequence[str]) -> Iterator[str]:
    resting = [server["uuid"] for server in leader["tservers"] if server["in_maintenance"]]
    usable = len(set(tservers) - set(resting))
    wanted = {table["id"]: table["num_replicas"] for table in leader["tables"]}
    waiting = {
        tablet["table_id"]
        for tablet in leader["tablets"]
        if tablet["state"] == "PREPARING" and wanted.get(tablet["table_id"], 0) > usable
    }
    for table in leader["tables"]:
        if table["state"] not in {"RUNNING", "REMOVED"} and table["id"] not in waiting:
            yield f"table {table['name']} ({table['id']}) is {table['state']}"
    for tablet in leader["tablets"]:
        if tablet["state"] in {"DELETED", "REPLACED"}:
            continue
        if tablet["state"] == "PREPARING" and tablet["table_id"] in waiting:
            continue
        if tablet["table_id"] not in wanted:  # `legacy` may leave tablets without a table
            yield f"tablet {tablet['id']} belongs to table {tablet['table_id']}, which is missing"
            continue
        if tablet["state"] != "RUNNING":
            yield f"tablet {tablet['id']} is {tablet['state']}"
            continue
        yield from _misses(tablet, wanted[tablet["table_id"]], usable)
    late = leader.get("counters", {}).get("late rows", 0)
    if late and leader["ready_for_ms"] < CLEANUP_MS:
        # A new leader needs time to remove these rows. The checker `bounds` judges older leaders.
        yield f"{late} rows of deleted tables and tablets wait for their removal"
    if leader["tasks"]:
        yield f"{leader['tasks']} calls to tablet servers are pending"


def _misses(tablet: Dump, wanted: int, usable: int) -> Iterator[str]:
    peers = tablet["consensus"]["peers"]
    voters = sum(peer["member_type"] == "VOTER" for peer in peers)
    if len(peers) > voters:
        yield f"tablet {tablet['id']} has {len(peers) - voters} replicas that do not vote"
    elif voters > wanted or voters < min(wanted, usable):
        yield f"tablet {tablet['id']} has {voters} voters of {wanted}"
    if any(peer["replace"] for peer in peers):
        yield f"tablet {tablet['id']} has replicas that are marked for replacement"


def _unequal_replicas(leader: Dump, tservers: Mapping[str, Dump]) -> Iterator[str]:
    versions = {table["id"]: table["version"] for table in leader["tables"]}
    names = {dump["uuid"]: name for name, dump in tservers.items()}
    leaders = _leaders(tservers)
    held = {
        (dump["uuid"], tablet["tablet_id"]): tablet
        for dump in tservers.values()
        for tablet in dump["tablets"]
    }
    for tablet in leader["tablets"]:
        consensus = tablet["consensus"]
        if tablet["state"] in {"DELETED", "REPLACED"} or consensus is None:
            continue
        led = leaders.get(tablet["id"])
        if led is not None and led != consensus.get("leader_uuid"):
            named = names.get(consensus.get("leader_uuid") or "", "no server")
            yield f"tablet {tablet['id']} is led by {names[led]}, but the catalog names {named}"
        for peer in consensus["peers"]:
            where = names.get(peer["uuid"], peer["uuid"])
            replica = held.pop((peer["uuid"], tablet["id"]), None)
            if tablet["state"] != "RUNNING" or tablet["table_id"] not in versions:
                continue  # `_open_work` reports this tablet
            if replica is None:
                yield f"{where} has no replica of tablet {tablet['id']}"
                continue
            problem = _problem(replica, consensus, versions[tablet["table_id"]])
            if problem is not None:
                yield f"the replica of tablet {tablet['id']} on {where} {problem}"
    for (uuid, tablet_id), replica in held.items():
        if replica["data_state"] != "TOMBSTONED":
            yield f"{names[uuid]} holds tablet {tablet_id}, which the catalog does not place there"


def _leaders(tservers: Mapping[str, Dump]) -> dict[str, str]:
    led: dict[str, tuple[int, str]] = {}
    for dump in tservers.values():
        for tablet in dump["tablets"]:
            raft = tablet.get("raft") or {}
            if raft.get("role") == "LEADER":
                here, nothing = (raft["term"], dump["uuid"]), (-1, "")
                led[tablet["tablet_id"]] = max(here, led.get(tablet["tablet_id"], nothing))
    return {tablet_id: uuid for tablet_id, (_, uuid) in led.items()}


def _problem(replica: Dump, consensus: Dump, version: int) -> str | None:
    if replica["data_state"] != "READY" or replica["state"] != "RUNNING":
        return f"is {replica['data_state']}, {replica['state']}"
    if replica["schema_version"] != version:
        return f"has schema version {replica['schema_version']}, the catalog {version}"
    if replica["raft"]["leader_uuid"] is None:
        return "knows no leader"
    config = replica["committed_config"]
    peers = sorted(peer["uuid"] for peer in config["peers"])
    expected = sorted(peer["uuid"] for peer in consensus["peers"])
    # The catalog may lack the index of its configuration.
    if consensus["opid_index"] not in {None, config["opid_index"]} or peers != expected:
        return (
            f"has configuration {config['opid_index']} of {peers}, "
            f"the catalog {consensus['opid_index']} of {expected}"
        )
    return None
