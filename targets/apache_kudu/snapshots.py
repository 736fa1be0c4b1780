"""The state of real servers as JSON, in the form of the bundled servers' dumps.

A master's page `/dump-entities` shows the running tables and their tablets, whether the master
leads or not. It hides removed tables (`hides_removed`), and lacks versions, comments and key
ranges. The harness asks the leader for the latter. No page and no RPC shows the indexes of log
entries.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from harness.env import Address, ClientEnv
from harness.plugins import NodeRole
from harness.webclient import Web
from targets.kudu import messages as m
from targets.kudu.consensus.messages import GetConsensusStateRequest, GetConsensusStateResponse
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.messages import RaftConfig
from targets.kudu.rpc import Call, R_co

Json = dict[str, Any]
_PAGE_S: Final = 5.0
_TABLETS_MAX: Final = 1000


class Ask(Protocol):
    """A function that calls one server. It returns `None` if there is no answer."""

    async def __call__(self, request: Call[R_co]) -> R_co | None: ...


async def dump_master(env: ClientEnv, page: Address, role: NodeRole, ask: Ask) -> Json | None:
    """Return the state of a master whose pages are at `page`; `None` if a part is missing."""
    raft = await consensus_of(ask, SYSTEM_TABLET_ID)
    page_rows = await _page(env, page)
    if raft is None or page_rows is None:
        return None
    leads = raft.role == "LEADER"  # role and term from one answer, unlike `role`
    all_rows = _rows(page_rows, leads=True)
    digest = zlib.crc32(json.dumps(all_rows, sort_keys=True).encode())
    rows = await _led_rows(all_rows, ask) if leads else _rows(page_rows, leads=False)
    if rows is None:
        return None
    return {
        "uuid": raft.responder_uuid,
        "role": raft.role,
        "term": raft.current_term,
        "ready": leads and role == NodeRole("leader", raft.current_term),
        "hides_removed": True,
        "revision": digest,  # equal rows have equal digests, and real masters report no revision
        "raft": {
            "leader_uuid": raft.leader_uuid,
            "config": _config(raft.committed_config),
            "applied_index": None,
            "digest": digest,
        },
        "tservers": [
            {"uuid": server["uuid"], "in_maintenance": False}
            for server in page_rows["tablet_servers"]
        ],
        "tasks": 0,  # no page shows the number of pending calls to tablet servers
        **rows,
    }


async def _page(env: ClientEnv, page: Address) -> Json | None:
    web = Web(env, page, hello=None)
    try:
        async with asyncio.timeout(_PAGE_S):
            rows: Json = await web.ask("GET", "/dump-entities")
    except (OSError, TimeoutError, EOFError, ValueError):
        return None
    finally:
        await web.close()
    return rows


def _rows(page: Json, *, leads: bool) -> Json:
    """Return the tables and tablets of a page.

    Only the leader's rows name the leaders of tablets. A lagging master may name former leaders,
    and its page has no terms to recognize them.
    """
    tables = [
        {"id": row["table_id"], "name": row["table_name"], "state": row["state"]}
        for row in page["tables"]
    ]
    tablets = [
        _tablet(
            row["tablet_id"],
            row["table_id"],
            row["state"],
            row.get("leader") if leads else None,
            {replica["server_uuid"]: replica["type"] for replica in row["replicas"]},
        )
        for row in page["tablets"]
    ]
    return {"tables": sorted(tables, key=_id), "tablets": sorted(tablets, key=_id)}


def _id(row: Json) -> str:
    return str(row["id"])


def _tablet(
    ident: str, table_id: str, state: str, leader: str | None, replicas: Mapping[str, str]
) -> Json:
    marks = {"promote": False, "replace": False}  # masters do not report these marks
    peers = [
        {"uuid": uuid, "member_type": kind, **marks} for uuid, kind in sorted(replicas.items())
    ]
    consensus = {"term": None, "leader_uuid": leader, "opid_index": None, "peers": peers}
    return {"id": ident, "table_id": table_id, "state": state, "consensus": consensus}


async def _led_rows(rows: Json, ask: Ask) -> Json | None:
    """Return the leading master's `rows`, with the fields that only its answers to RPCs have.

    Its page omits tables that are being altered; these come from its list of tables.
    """
    listed = await ask(m.ListTablesRequest())
    if listed is None or listed.error is not None:
        return None
    tables: dict[str, Json] = {table["id"]: table for table in rows["tables"]}
    tablets: dict[str, Json] = {tablet["id"]: tablet for tablet in rows["tablets"]}
    for table in listed.tables:
        tables.setdefault(table.id, {"id": table.id, "name": table.name, "state": "ALTERING"})
    described = await asyncio.gather(*(_describe(ask, ident) for ident in tables))
    for table_id, answer in zip(tables, described, strict=True):
        if answer is None:
            return None
        fields, located = answer
        tables[table_id] = tables[table_id] | fields
        for place in located:
            tablet = tablets.setdefault(place.tablet_id, _located(table_id, place))
            tablet["start"] = place.partition.start.hex()
            tablet["end"] = place.partition.end.hex()
    if not all("start" in tablet for tablet in tablets.values()):
        return None
    return {
        "tables": sorted(tables.values(), key=_id),
        "tablets": sorted(tablets.values(), key=_id),
        "name_map": {table.name: table.id for table in listed.tables},
    }


def _located(table_id: str, place: m.TabletLocations) -> Json:
    leader = next((each.ts_uuid for each in place.replicas if each.role == "LEADER"), None)
    replicas = {each.ts_uuid: each.member_type for each in place.replicas}
    return _tablet(place.tablet_id, table_id, "RUNNING", leader, replicas)


async def _describe(ask: Ask, table_id: str) -> tuple[Json, Sequence[m.TabletLocations]] | None:
    which = m.TableIdentifier(table_id=table_id)
    where = m.GetTableLocationsRequest(
        table=which, max_returned_locations=_TABLETS_MAX, any_replica=True
    )
    schema, located = await ask(m.GetTableSchemaRequest(table=which)), await ask(where)
    if schema is None or located is None or schema.error or located.error:
        return None
    table = {
        "version": schema.schema_version,
        "applied_version": schema.applied_schema_version,
        "num_replicas": schema.num_replicas,
        "comment": schema.comment,
    }
    return table, located.tablets


async def dump_tserver(ask: Ask, owners: Mapping[str, str]) -> Json | None:
    """Return the state of a tablet server; `owners` maps tablets to their tables."""
    listed = await ask(m.ListTabletsRequest())
    if listed is None:
        return None
    states = await asyncio.gather(*(consensus_of(ask, each.tablet_id) for each in listed.tablets))
    return {
        "uuid": listed.ts_uuid,
        "tablets": [
            {
                "tablet_id": tablet.tablet_id,
                "table_id": owners.get(tablet.tablet_id, tablet.table_id),
                "table_name": tablet.table_name,
                "state": tablet.state,
                "data_state": tablet.data_state,
                "schema_version": tablet.schema_version,
                **_raft(state),
            }
            for tablet, state in zip(listed.tablets, states, strict=True)
        ],
    }


async def consensus_of(ask: Ask, tablet_id: str) -> GetConsensusStateResponse | None:
    """Return a replica's view of its group; `None` if it has none, as for a tombstone."""
    answer = await ask(GetConsensusStateRequest(dest_uuid="", tablet_id=tablet_id))
    return None if answer is None or answer.error is not None else answer


def _config(config: RaftConfig | None) -> Json | None:
    if config is None:
        return None
    peers = [{"uuid": peer.uuid, "member_type": peer.member_type} for peer in config.peers]
    return {"opid_index": config.opid_index, "peers": peers}


def _raft(state: GetConsensusStateResponse | None) -> Json:
    if state is None:
        nothing = {"role": "UNKNOWN_ROLE", "term": 0, "leader_uuid": None}
        return {"committed_config": None, "raft": nothing}
    return {
        "committed_config": _config(state.committed_config),
        "raft": {
            "role": state.role,
            "term": state.current_term,
            "leader_uuid": state.leader_uuid,
        },
    }
