"""The data of a master's pages: pure functions of its dump (`targets.kudu.master.dump`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from targets.kudu.messages import RaftConfig
from targets.kudu.pages import (
    LIST_MAX,
    MASTER_PAGES_PORT,
    TSERVER_PAGES_PORT,
    Dump,
    PageOf,
    cut,
    iso,
)


class MasterAnswer(NamedTuple):
    """A master's answer about itself. If the master did not answer, `error` says why."""

    uuid: str = ""
    role: str = ""
    start_ns: int = 0
    error: str | None = None
    told: tuple[str, ...] = ()  # the masters in that master's settings


def masters(
    config: RaftConfig | None,
    answers: Mapping[str, MasterAnswer],
    cluster_id: str | None,
    page_of: PageOf,
) -> dict[str, Any]:
    """Build the data of `/masters`: the committed configuration's members, with their `answers`.

    The members come from the configuration and not from flags (KUDU-2309), so the list is the same
    on every master.
    """
    peers = () if config is None else sorted(config.peers, key=lambda peer: peer.address)
    stored = {peer.address for peer in peers}
    live, errors, told_otherwise = [], [], []
    for peer in peers:
        answer = answers.get(peer.uuid, MasterAnswer(error="not asked"))
        error = answer.error
        if error is None and answer.uuid != peer.uuid:
            error = f"uuid mismatch: {answer.uuid or 'no master'} answers at {peer.address}"
        if error is not None:
            errors.append({"uuid": peer.uuid, "address": peer.address, "error": error})
            continue
        if stored != {*answer.told}:
            told_otherwise.append({"address": peer.address, "told": sorted(answer.told)})
        live.append(
            {
                "uuid": peer.uuid,
                "address": peer.address,
                "page": page_of(peer.address, MASTER_PAGES_PORT),
                "cluster_id": cluster_id,
                "role": answer.role,
                "member_type": peer.member_type,
                "start_time": iso(answer.start_ns),
                "start_ns": answer.start_ns,
            }
        )
    voters = sum(peer.member_type == "VOTER" for peer in peers)
    return {
        "masters": live,
        "errors": errors,
        "config_index": None if config is None else config.opid_index,
        "voters": voters,
        "warning": _even(voters) if voters and voters % 2 == 0 else None,
        "told_otherwise": told_otherwise,
    }


def _even(voters: int) -> str:
    return (
        f"The number of masters is even: {voters} survive the loss of {voters // 2 - 1}, as "
        f"{voters - 1} would. Add or remove one."
    )


def tables(dump: Dump) -> dict[str, Any]:
    """Data of `/tables`: every table that is not deleted, sorted by name."""
    tablets = _by_table(dump)
    live = sorted(_live(dump["tables"]), key=lambda table: str(table["name"]))
    rows = [
        {
            **{key: t[key] for key in ("id", "name", "state", "num_replicas", "owner", "comment")},
            "version": t["version"],
            "create_time": iso(t["create_ns"]),
            "create_ns": t["create_ns"],
            "tablets": len(tablets.get(t["id"], ())),
            "tablets_running": sum(x["state"] == "RUNNING" for x in tablets.get(t["id"], ())),
        }
        for t in live
    ]
    deleted = len(dump["tables"]) - len(live)
    return {**cut("tables", rows), "deleted": deleted, "leads": dump["ready"]}


def table(dump: Dump, table_id: str | None, page_of: PageOf) -> dict[str, Any] | None:
    """Data of `/table`: a table, deleted or not, with columns and tablets; `None` if unknown."""
    match = next((t for t in dump["tables"] if t["id"] == table_id), None)
    if match is None:
        return None
    by_uuid = {server["uuid"]: server for server in dump["tservers"]}
    tablets = [
        {**tablet, "replicas": _replicas(tablet, by_uuid, page_of)}
        for tablet in sorted(_by_table(dump).get(match["id"], ()), key=_by_state)
    ]
    return {**match, **cut("tablets", tablets)}


def _by_state(tablet: Mapping[str, Any]) -> tuple[bool, str, str]:
    return (tablet["state"] in {"DELETED", "REPLACED"}, tablet["start"], tablet["id"])


def _replicas(
    tablet: Mapping[str, Any], servers: Mapping[str, Mapping[str, Any]], page_of: PageOf
) -> list[dict[str, Any]]:
    consensus = tablet["consensus"]
    if consensus is None:
        return []
    return [
        {
            **peer,
            "page": page_of(peer["address"], TSERVER_PAGES_PORT),
            "leader": peer["uuid"] == consensus["leader_uuid"],
            "registered": peer["uuid"] in servers,
        }
        for peer in consensus["peers"]
    ]


def tservers(dump: Dump, unresponsive_ms: int, page_of: PageOf) -> dict[str, Any]:
    """Data of `/tablet-servers`: the servers that have registered since this master started."""
    rows = [
        {
            **server,
            "page": page_of(server["address"], TSERVER_PAGES_PORT),
            "state": _life(server, unresponsive_ms),
        }
        for server in sorted(dump["tservers"], key=lambda s: (s["address"], s["uuid"]))
    ]
    alive = sum(_life(server, unresponsive_ms) == "ALIVE" for server in dump["tservers"])
    return {**cut("tablet_servers", rows), "alive": alive, "unresponsive_after_ms": unresponsive_ms}


def _life(server: Mapping[str, Any], unresponsive_ms: int) -> str:
    return "ALIVE" if server["millis_since_heartbeat"] <= unresponsive_ms else "SILENT"


def entities(dump: Dump) -> dict[str, Any]:
    """Data of `/dump-entities`: every row of the system tablet that this master has applied."""
    data: dict[str, Any] = {
        key: dump[key] for key in ("uuid", "role", "term", "revision", "cluster_id")
    }
    left_out = {}
    for name in ("tables", "tablets", "tservers"):
        data[name] = dump[name][:LIST_MAX]
        left_out[name] = len(dump[name]) - len(data[name]) + dump["truncated"].get(name, 0)
    return {**data, "truncated": left_out}


def health(dump: Dump) -> dict[str, Any]:
    """Data of `/healthz`: a master is "ok" once it takes part in its Raft group, in any role."""
    starting = dump["role"] == "NOT_INITIALIZED"
    return {
        "status": "starting" if starting else "ok",
        "role": dump["role"],
        "term": dump["term"],
        "ready_to_lead": dump["ready"],
    }


def overview(dump: Dump, unresponsive_ms: int, page_of: PageOf) -> dict[str, Any]:
    """Data of `/`: the key facts about this master and the cluster."""
    raft = dump["raft"]
    peers: Sequence[Mapping[str, Any]] = raft["config"]["peers"] if raft else ()
    leader = next((peer for peer in peers if peer["uuid"] == raft["leader_uuid"]), None)
    live = {table["id"] for table in _live(dump["tables"])}
    tablets = [tablet for tablet in dump["tablets"] if tablet["table_id"] in live]
    servers = tservers(dump, unresponsive_ms, page_of)
    return {
        "uuid": dump["uuid"],
        "role": dump["role"],
        "term": dump["term"],
        "cluster_id": dump["cluster_id"],
        "applied_index": raft.get("applied_index", 0),
        "leader": leader and {**leader, "page": page_of(leader["address"], MASTER_PAGES_PORT)},
        "masters": len(peers),
        "tables": len(live),
        "tablets": dict(sorted(Counter(tablet["state"] for tablet in tablets).items())),
        "tablet_servers": servers["total"],
        "tablet_servers_alive": servers["alive"],
    }


def _live(tables: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [table for table in tables if table["state"] != "REMOVED"]


def _by_table(dump: Dump) -> dict[str, list[Mapping[str, Any]]]:
    by_table: dict[str, list[Mapping[str, Any]]] = {}
    for tablet in dump["tablets"]:
        by_table.setdefault(tablet["table_id"], []).append(tablet)
    return by_table
