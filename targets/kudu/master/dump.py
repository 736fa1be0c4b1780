"""The state of a master as plain JSON, for checkers and for people.

Most data come from the applied rows, so masters that applied the same operations dump the same data
in every role. The exceptions are `name_map`, a map in memory, and `unlike_rows`, which has the
differences between the maps in memory and a scan of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.records import ConsensusState, TableRecord, TabletRecord
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.leadership import Leadership
from targets.kudu.master.tablets.ts_manager import TServerMap
from targets.kudu.messages import Schema

DUMP_ROWS_MAX: Final = 20_000
"""Maximum number of tables, and of tablets, in a dump; `truncated` counts the omitted rows."""


def dump_entities(
    uuid: str,
    leadership: Leadership,
    rows: SystemTablet,
    tservers: TServerMap,
    now_ns: int,
    calls: Mapping[str, int],
    late_rows: int = 0,
) -> dict[str, Any]:
    """Return the whole state of one master as JSON, sorted and bounded.

    The result is `master_status`, plus data for checkers: the master's log, and the differences
    between its maps and a scan of its rows.
    """
    epoch = leadership.epoch
    maps = {"view": leadership.view}
    if epoch is not None:
        maps["leader"] = epoch.catalog
    scan = Catalog.load(rows, 0)
    names = leadership.view.by_name if epoch is None else epoch.catalog.by_name
    replica = leadership.replica
    return {
        **master_status(uuid, leadership, rows, tservers, now_ns, calls, late_rows),
        "raft": {} if replica is None else replica.dump(),
        "unlike_rows": {name: catalog.differences(scan) for name, catalog in maps.items()},
        "name_map": dict(sorted(names.items())[:DUMP_ROWS_MAX]),
    }


def master_status(
    uuid: str,
    leadership: Leadership,
    rows: SystemTablet,
    tservers: TServerMap,
    now_ns: int,
    calls: Mapping[str, int],
    late_rows: int = 0,
) -> dict[str, Any]:
    """Return a master's status as JSON.

    `calls` has the number of calls that the master has served, by method. `late_rows` is the number
    of rows of deleted tables and tablets that the leader should have removed.
    """
    replica, epoch = leadership.replica, leadership.epoch
    tables = sorted(rows.tables.items())
    tablets = sorted(rows.tablets.items())
    maintenance = [uuid for uuid, server in rows.tservers.items() if server.in_maintenance]
    return {
        "uuid": uuid,
        "role": "NOT_INITIALIZED" if replica is None else replica.role,
        "term": 0 if replica is None else replica.term,
        "ready": epoch is not None,
        "ready_for_ms": 0 if epoch is None else (now_ns - epoch.ready_ns) // 1_000_000,
        "raft": {} if replica is None else replica.status(),
        "revision": rows.last_index,
        "cluster_id": rows.cluster_id,
        "tables": [_table(table) for _, table in tables[:DUMP_ROWS_MAX]],
        "tablets": [
            _tablet(tablet, rows.running_since.get(tablet.id, 0))
            for _, tablet in tablets[:DUMP_ROWS_MAX]
        ],
        "hides_removed": rows.forgotten.tables > 0 or rows.forgotten.tablets > 0,
        "forgotten": msgspec.structs.asdict(rows.forgotten),
        "truncated": {
            "tables": max(0, len(tables) - DUMP_ROWS_MAX),
            "tablets": max(0, len(tablets) - DUMP_ROWS_MAX),
        },
        "tservers": [
            {
                "uuid": server.uuid,
                "address": server.address,
                "millis_since_heartbeat": (now_ns - server.heard_ns) // 1_000_000,
                "num_live_tablets": server.num_live_tablets,
                "in_maintenance": server.uuid in maintenance,
            }
            for server in tservers
        ],
        "replies": {"kept": len(rows.replies), "forgotten": rows.replies_forgotten},
        "tasks": 0 if epoch is None else len(epoch.tasks) - epoch.tasks.unplaced(),
        "counters": {**tservers.counters(), **_counters(epoch, late_rows)},
        "calls": dict(sorted(calls.items())),
    }


def _counters(epoch: Epoch | None, late_rows: int) -> dict[str, int]:
    return {} if epoch is None else {**epoch.counters(), "late rows": late_rows}


def _table(table: TableRecord) -> dict[str, Any]:
    partitioning = table.partition_schema
    bounded: dict[str, Any] = {}
    if partitioning.is_bounded:
        custom = [
            {
                "start": each.start.hex(),
                "end": each.end.hex(),
                "num_hash_buckets": each.num_hash_buckets,
            }
            for each in partitioning.custom_ranges
        ]
        bounded = {"is_bounded": True, "custom_ranges": custom}
    return {
        **bounded,
        "id": table.id,
        "name": table.name,
        "state": table.state.name,
        "state_msg": table.state_msg,
        "version": table.version,
        "applied_version": table.shown_version,
        "columns": _columns(table.schema),
        "applied_columns": _columns(table.shown_schema),
        "next_column_id": table.next_column_id,
        "num_replicas": table.num_replicas,
        "num_hash_buckets": partitioning.num_hash_buckets,
        "owner": table.owner,
        "comment": table.comment,
        "create_ns": table.create_ns,
        "alter_ns": table.alter_ns,
        "delete_ns": table.delete_ns,
    }


def _columns(schema: Schema) -> list[dict[str, Any]]:
    return [
        {"id": column.id, "name": column.name, "type": column.type, "is_key": column.is_key}
        for column in schema.columns
    ]


def _tablet(tablet: TabletRecord, running_index: int) -> dict[str, Any]:
    return {
        "id": tablet.id,
        "table_id": tablet.table_id,
        "state": tablet.state.name,
        "state_msg": tablet.state_msg,
        "start": tablet.partition.start.hex(),
        "end": tablet.partition.end.hex(),
        "consensus": None if tablet.consensus is None else _consensus(tablet.consensus),
        "created_ns": tablet.created_ns,
        "deleted_ns": tablet.deleted_ns,
        "running_index": running_index,
    }


def _consensus(state: ConsensusState) -> dict[str, Any]:
    return {
        "term": state.term,
        "leader_uuid": state.leader_uuid,
        "opid_index": state.config.opid_index,
        "peers": [
            {
                "uuid": peer.uuid,
                "address": peer.address,
                "member_type": peer.member_type,
                "promote": peer.promote,
                "replace": peer.replace,
            }
            for peer in state.config.peers
        ],
    }
