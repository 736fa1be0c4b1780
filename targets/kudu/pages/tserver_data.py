"""The data of a tablet server's pages: pure functions of its dump."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from targets.kudu.pages import MASTER_PAGES_PORT, TSERVER_PAGES_PORT, Dump, PageOf, cut


def tablets(dump: Dump) -> dict[str, Any]:
    """Data of `/tablets`: this server's replicas and tombstones, sorted by table and partition."""
    here = sorted(
        dump["tablets"],
        key=lambda t: (t["table_name"], t["partition"]["start"], t["tablet_id"]),
    )
    return cut("tablets", [_row(replica) for replica in here])


def _row(replica: Mapping[str, Any]) -> dict[str, Any]:
    raft = replica["raft"] or {}
    return {
        **{
            key: replica[key]
            for key in ("tablet_id", "table_id", "table_name", "state", "data_state", "partition")
        },
        "role": raft.get("role"),
        "term": raft.get("term"),
        "applied_index": raft.get("applied_index"),
        "live_rows": (replica["rows"] or {}).get("live_rows"),
    }


def tablet(dump: Dump, tablet_id: str | None, page_of: PageOf) -> dict[str, Any] | None:
    """Data of `/tablet`: one replica; `None` if the id is unknown."""
    match = next((t for t in dump["tablets"] if t["tablet_id"] == tablet_id), None)
    if match is None:
        return None
    raft, config = match["raft"] or {}, match["committed_config"]
    leader = raft.get("leader_uuid")
    peers = [] if config is None else config["peers"]
    # A replica's dump has columns as pairs (id, name); convert them to the masters' format.
    columns = [
        column if isinstance(column, Mapping) else {"id": column[0], "name": column[1]}
        for column in match["columns"]
    ]
    health = raft.get("peer_health", {})  # only the leader reports its peers' health
    return {
        **match,
        "columns": columns,
        "peers": [
            {
                **peer,
                "page": page_of(peer["address"], TSERVER_PAGES_PORT),
                "leader": peer["uuid"] == leader,
                "here": peer["uuid"] == dump["uuid"],
                "health": health.get(peer["uuid"]),
            }
            for peer in peers
        ],
    }


def health(dump: Dump) -> dict[str, Any]:
    """Data of `/healthz`: a server is "ok" once it has opened all replicas on its disk."""
    return {"status": "ok" if dump["serving"] else "starting", "tablets": len(dump["tablets"])}


def overview(
    dump: Dump, masters: tuple[str, ...], address: str, start_ns: int, page_of: PageOf
) -> dict[str, Any]:
    """Data of `/`: the key facts about this server; `masters` are the masters that it knows."""
    here = dump["tablets"]
    return {
        "uuid": dump["uuid"],
        "address": address,
        "start_ns": start_ns,
        "masters": [{"address": m, "page": page_of(m, MASTER_PAGES_PORT)} for m in masters],
        "tablets": dict(sorted(Counter(t["state"] for t in here).items())),
        "tables": len({t["table_id"] for t in here}),
        "led": sum((t["raft"] or {}).get("role") == "LEADER" for t in here),
    }
