"""The actions of `harness kudu`, with the names of Kudu's own actions.

An action calls the cluster through an `Admin`, and returns what to print. Lists are printed as
tables, or as JSON with Kudu's keys (`tools/tool_action_master.cc`, `tool_action_table.cc`,
`tool_action_tserver.cc`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.plugins import Said
from targets.kudu import messages as m
from targets.kudu.consensus import messages as raft
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.rpc import Call, RpcError
from targets.kudu.tools import tables
from targets.kudu.tools.admin import LOCATIONS_MAX, Admin, ToolError, state_of
from targets.kudu.tools.data_table import listing
from targets.kudu.tools.hms import precheck
from targets.kudu.tools.ksck_gather import gather
from targets.kudu.tools.ksck_judge import judge
from targets.kudu.tools.ksck_text import plain_report

_SCAN_PAGE: Final = 1000


Action = Callable[[Admin, argparse.Namespace], Awaitable[Said]]
_Changed = raft.LeaderStepDownResponse | raft.ChangeConfigResponse | raft.UnsafeChangeConfigResponse


async def _ksck(admin: Admin, given: argparse.Namespace) -> Said:
    seen = await gather(admin, checksum=given.checksum)
    results = judge(seen)
    if given.format.startswith("json"):
        indent = 4 if given.format == "json_pretty" else None
        text = json.dumps(msgspec.to_builtins(results), indent=indent)
    else:
        full = given.format == "plain_full"
        text = plain_report(results, tserver_states=seen.tserver_states, full=full).rstrip("\n")
    if results.ok:
        return Said(text)
    return Said(text, 1, "Runtime error: ksck discovered errors")


async def _master_list(admin: Admin, given: argparse.Namespace) -> Said:
    async def one(address: str) -> dict[str, Any]:
        try:
            answer = await admin.ask(address, m.GetMasterRegistrationRequest())
        except RpcError as error:
            role = f"unreachable: {error}"
            return {"uuid": "", "rpc-addresses": address, "role": role, "member_type": ""}
        return {
            "uuid": answer.meta.master_uuid,
            "rpc-addresses": address,
            "role": answer.role,
            "member_type": answer.member_type,
        }

    connected = await admin.ask_leader(m.ConnectToMasterRequest())
    return listing(given, await admin.all_of(connected.master_addresses or admin.masters, one))


async def _master_add(admin: Admin, given: argparse.Namespace) -> Said:
    """Add a master. It becomes a voter once it has caught up; `master list` shows when."""
    await admin.ask_leader(m.AddMasterRequest(given.address))
    return Said("")


async def _master_remove(admin: Admin, given: argparse.Namespace) -> Said:
    request = m.RemoveMasterRequest(given.address, given.uuid)
    await admin.ask_leader(request)
    return Said("")


async def _tserver_list(admin: Admin, given: argparse.Namespace) -> Said:
    answer = await admin.ask_leader(m.ListTabletServersRequest())
    rows = [
        {
            "uuid": server.uuid,
            "rpc-addresses": server.address,
            "heartbeat": f"{server.millis_since_heartbeat}ms",
            "state": state_of(server),
        }
        for server in answer.servers
    ]
    return listing(given, rows)


async def _table_list(admin: Admin, given: argparse.Namespace) -> Said:
    answer = await admin.ask_leader(m.ListTablesRequest())
    tables = []
    for table in answer.tables:
        entry: dict[str, Any] = {"name": table.name}
        if given.tablets:
            located = await _locate(admin, m.TableIdentifier(table_id=table.id))
            entry["tablets"] = [
                {
                    "tablet_id": tablet.tablet_id,
                    "replicas": [_replica_of(replica) for replica in tablet.replicas],
                }
                for tablet in located
            ]
        tables.append(entry)
    if given.format == "json":
        return Said(json.dumps({"tables": tables}))
    lines = []
    for entry in tables:
        lines.append(entry["name"])
        for tablet in entry.get("tablets", ()):
            lines.append(f"  T {tablet['tablet_id']}")
            for replica in tablet["replicas"]:
                mark = "L" if replica["role"] == "LEADER" else replica["member_type"][0]
                lines.append(f"    {mark} {replica['ts_uuid']} {replica['ts_address']}")
    return Said("\n".join(lines))


def _replica_of(replica: m.ReplicaLocation) -> dict[str, str]:
    return {
        "role": replica.role,
        "member_type": replica.member_type,
        "ts_uuid": replica.ts_uuid,
        "ts_address": replica.address,
    }


async def _locate(admin: Admin, table: m.TableIdentifier) -> Sequence[m.TabletLocations]:
    request = m.GetTableLocationsRequest(
        table, max_returned_locations=LOCATIONS_MAX, any_replica=True
    )
    return (await admin.ask_leader(request)).tablets


async def _table_describe(admin: Admin, given: argparse.Namespace) -> Said:
    table = await admin.ask_leader(
        m.GetTableSchemaRequest(m.TableIdentifier(table_name=given.table)),
    )
    columns = [
        f"    {column.name} {column.type} {'NULLABLE' if column.is_nullable else 'NOT NULL'}"
        for column in table.schema.columns
    ]
    keys = ", ".join(column.name for column in table.schema.columns if column.is_key)
    partitions = table.partition_schema
    hashed = ", ".join(partitions.hash_columns) or keys
    lines = [f"TABLE {table.name} (", ",\n".join([*columns, f"    PRIMARY KEY ({keys})"]), ")"]
    split = []
    if partitions.num_hash_buckets > 1:
        split.append(f"HASH ({hashed}) PARTITIONS {partitions.num_hash_buckets}")
    if partitions.range_columns:
        split.append(f"RANGE ({', '.join(partitions.range_columns)})")
    lines += [",\n".join(split)] if split else []
    lines += [f"OWNER {table.owner}", f"REPLICAS {table.num_replicas}", f"COMMENT {table.comment}"]
    return Said("\n".join(lines))


async def _table_scan(admin: Admin, given: argparse.Namespace) -> Said:
    identifier = m.TableIdentifier(table_name=given.table)
    table = await admin.ask_leader(m.GetTableSchemaRequest(identifier))
    columns = {column.id: column for column in table.schema.columns}
    lines: list[str] = []
    for tablet in await _locate(admin, identifier):
        async for ids, row in _rows_of(admin, tablet):
            if len(lines) == given.limit:
                return Said("\n".join([*lines, f"Stopped at {given.limit} rows (--limit)"]))
            cells = [
                f"{columns[i].type.lower()} {columns[i].name}={_cell(value)}"
                for i, value in zip(ids, row, strict=True)
                if i in columns
            ]
            lines.append(f"({', '.join(cells)})")
    return Said("\n".join([*lines, f"Total count {len(lines)}"]))


async def _rows_of(
    admin: Admin, tablet: m.TabletLocations
) -> AsyncIterator[tuple[Sequence[int], Sequence[m.Value]]]:
    """Yield all rows of a tablet from its leader, each as the column ids and the values."""
    leader = _leader_of(tablet)
    token = b""
    while True:
        request = m.ScanRequest(tablet.tablet_id, page_token=token, batch_rows=_SCAN_PAGE)
        page = await admin.must_answer(leader.address, request)
        if page.error is not None:
            raise ToolError(f"{page.error.code.name}: {page.error.message}")
        for row in page.rows:
            yield page.column_ids, row
        token = page.page_token
        if not token:
            return


def _cell(value: m.Value) -> str:
    return "NULL" if value is None else json.dumps(value) if isinstance(value, str) else str(value)


def _leader_of(tablet: m.TabletLocations) -> m.ReplicaLocation:
    for replica in tablet.replicas:
        if replica.role == "LEADER":
            return replica
    raise ToolError(f"Not found: no leader of the tablet {tablet.tablet_id} is known")


async def _tablet_leader(admin: Admin, tablet_id: str) -> m.ReplicaLocation:
    listed = await admin.ask_leader(m.ListTablesRequest())
    for table in listed.tables:
        for tablet in await _locate(admin, m.TableIdentifier(table_id=table.id)):
            if tablet.tablet_id == tablet_id:
                return _leader_of(tablet)
    raise ToolError(f"Not found: no table has the tablet {tablet_id}")


async def _ask_replica(admin: Admin, address: str, request: Call[_Changed]) -> None:
    answer = await admin.must_answer(address, request)
    if answer.error is not None:
        raise ToolError(f"{answer.error.code.name}: {answer.error.message}")


async def _leader_step_down(admin: Admin, given: argparse.Namespace) -> Said:
    leader = await _tablet_leader(admin, given.tablet)
    mode = raft.StepDownMode.ABRUPT if given.abrupt else raft.StepDownMode.GRACEFUL
    request = raft.LeaderStepDownRequest(leader.ts_uuid, given.tablet, mode, given.new_leader_uuid)
    await _ask_replica(admin, leader.address, request)
    return Said("")


async def _change_config(admin: Admin, given: argparse.Namespace) -> Said:
    leader = await _tablet_leader(admin, given.tablet)
    kind = {
        "add_replica": raft.ChangeType.ADD_PEER,
        "remove_replica": raft.ChangeType.REMOVE_PEER,
        "change_replica_type": raft.ChangeType.MODIFY_PEER,
    }[given.change]
    address = ""
    if kind is raft.ChangeType.ADD_PEER:
        listed = await admin.ask_leader(m.ListTabletServersRequest())
        address = next((s.address for s in listed.servers if s.uuid == given.ts_uuid), "")
        if not address:
            raise ToolError(f"Not found: the masters know no tablet server {given.ts_uuid}")
    peer = m.PeerConfig(given.ts_uuid, address, getattr(given, "replica_type", "VOTER"))
    request = raft.ChangeConfigRequest(leader.ts_uuid, given.tablet, raft.PeerChange(kind, peer))
    await _ask_replica(admin, leader.address, request)
    return Said("")


async def _unsafe_change_config(admin: Admin, given: argparse.Namespace) -> Said:
    """Force a configuration on one replica, because a tablet without a majority has no leader."""
    if given.tablet == SYSTEM_TABLET_ID:
        answer = await admin.ask_master(given.server, m.GetMasterRegistrationRequest())
        uuid = answer.meta.master_uuid
    else:
        listed = await admin.ask_leader(m.ListTabletServersRequest())
        uuid = next((s.uuid for s in listed.servers if s.address == given.server), "")
        if not uuid:
            raise ToolError(f"Not found: the masters know no tablet server at {given.server}")
    group = "master" if given.tablet == SYSTEM_TABLET_ID else given.tablet
    admin.announce("config-forced", group=group)  # announce this before the change can take effect
    request = raft.UnsafeChangeConfigRequest(uuid, given.tablet, tuple(given.peer_uuids))
    await _ask_replica(admin, given.server, request)
    return Said("")


ACTIONS: Final[Mapping[str, Action]] = {
    "ksck": _ksck,
    "master list": _master_list,
    "master add": _master_add,
    "master remove": _master_remove,
    "tserver list": _tserver_list,
    "table list": _table_list,
    "table describe": _table_describe,
    "table scan": _table_scan,
    "table create": tables.create,
    "table alter": tables.alter,
    "table delete": tables.delete,
    "hms precheck": precheck,
    "tablet leader_step_down": _leader_step_down,
    "tablet change_config": _change_config,
    "remote_replica unsafe_change_config": _unsafe_change_config,
}
