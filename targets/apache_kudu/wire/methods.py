"""The methods of Kudu's servers that the client calls, with the fields that it needs.

Field numbers are taken from Kudu 1.16 to 1.18: `consensus/consensus.proto`, `master/master.proto`,
`tserver/tserver.proto` and `server/server_base.proto`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from targets.apache_kudu.wire.messages import (
    COLUMN,
    CONSENSUS_STATE,
    EMPTY,
    ERROR,
    ERROR_ONLY,
    HOST_PORT,
    INSTANCE,
    PARTITION,
    PARTITION_SCHEMA,
    PEER,
    REGISTRATION,
    ROW_OPERATIONS,
    SCHEMA,
    STATUS,
)
from targets.apache_kudu.wire.protobuf import (
    Message,
    bool_,
    bytes_,
    fixed64,
    int_,
    many,
    nested,
    text,
    uint,
)


class Method(NamedTuple):
    """A remote method: its names, and the messages of its requests and answers."""

    service: str
    name: str
    request: Message
    answer: Message


_MASTER: Final = "kudu.master.MasterService"
_CONSENSUS: Final = "kudu.consensus.ConsensusService"
_TSERVER: Final = "kudu.tserver.TabletServerService"
_GENERIC: Final = "kudu.server.GenericService"

# --- masters ----------------------------------------------------------------------------------

TABLE: Final = Message("TableIdentifier", table_id=text(1), table_name=text(2))
_TABLE_ONLY: Final = Message("TableRequest", table=nested(1, TABLE))
_STEP: Final = Message(
    "AlterStep",
    type=uint(1),
    add_column=nested(2, Message("AddColumn", schema=nested(1, COLUMN))),
    drop_column=nested(3, Message("DropColumn", name=text(1))),
    rename_column=nested(4, Message("RenameColumn", old_name=text(1), new_name=text(2))),
)
_TS_INFO: Final = Message("TSInfo", uuid=text(1), rpc_addresses=many(nested(2, HOST_PORT)))
_REPLICA: Final = Message("Replica", ts_info=nested(1, _TS_INFO), role=uint(2))
_LOCATIONS: Final = Message(
    "TabletLocations",
    tablet_id=text(1),
    partition=nested(6, PARTITION),
    replicas=many(nested(4, _REPLICA)),
)
_SERVER_ENTRY: Final = Message(
    "ServerEntry",
    error=nested(1, STATUS),
    instance=nested(2, INSTANCE),
    registration=nested(3, REGISTRATION),
    role=uint(4),
    member_type=uint(6),
)

CONNECT_TO_MASTER: Final = Method(
    _MASTER,
    "ConnectToMaster",
    EMPTY,
    Message(
        "ConnectToMasterResponse",
        error=nested(1, ERROR),
        role=uint(2),
        master_addresses=many(nested(5, HOST_PORT)),
        cluster_id=text(8),
    ),
)
GET_MASTER_REGISTRATION: Final = Method(
    _MASTER,
    "GetMasterRegistration",
    EMPTY,
    Message(
        "GetMasterRegistrationResponse",
        instance=nested(1, INSTANCE),
        registration=nested(2, REGISTRATION),
        role=uint(3),
        error=nested(4, ERROR),
        member_type=uint(6),
    ),
)
LIST_MASTERS: Final = Method(
    _MASTER,
    "ListMasters",
    EMPTY,
    Message("ListMastersResponse", masters=many(nested(1, _SERVER_ENTRY)), error=nested(3, ERROR)),
)
ADD_MASTER: Final = Method(
    _MASTER, "AddMaster", Message("AddMasterRequest", rpc_addr=nested(1, HOST_PORT)), ERROR_ONLY
)
REMOVE_MASTER: Final = Method(
    _MASTER,
    "RemoveMaster",
    Message("RemoveMasterRequest", rpc_addr=nested(1, HOST_PORT), master_uuid=text(2)),
    ERROR_ONLY,
)
_TSERVER_ENTRY: Final = Message(
    "Entry",
    instance=nested(1, INSTANCE),
    registration=nested(2, REGISTRATION),
    millis_since_heartbeat=int_(3),
    state=uint(5),
)
LIST_TABLET_SERVERS: Final = Method(
    _MASTER,
    "ListTabletServers",
    Message("ListTabletServersRequest", include_states=bool_(1)),
    Message(
        "ListTabletServersResponse",
        error=nested(1, ERROR),
        servers=many(nested(2, _TSERVER_ENTRY)),
    ),
)
CREATE_TABLE: Final = Method(
    _MASTER,
    "CreateTable",
    Message(
        "CreateTableRequest",
        name=text(1),
        schema=nested(2, SCHEMA),
        num_replicas=int_(4),
        range_bounds=nested(6, ROW_OPERATIONS),
        partition_schema=nested(7, PARTITION_SCHEMA),
        owner=text(8),
        comment=text(13),
    ),
    Message("CreateTableResponse", error=nested(1, ERROR), table_id=text(2)),
)
DELETE_TABLE: Final = Method(_MASTER, "DeleteTable", _TABLE_ONLY, ERROR_ONLY)
ALTER_TABLE: Final = Method(
    _MASTER,
    "AlterTable",
    Message(
        "AlterTableRequest",
        table=nested(1, TABLE),
        steps=many(nested(2, _STEP)),
        new_table_name=text(3),
        new_extra_configs=many(bytes_(6)),
        new_table_owner=text(7),
        new_table_comment=text(10),
        num_replicas=int_(11),
    ),
    Message("AlterTableResponse", error=nested(1, ERROR), schema_version=uint(2), table_id=text(3)),
)
IS_CREATE_TABLE_DONE: Final = Method(
    _MASTER,
    "IsCreateTableDone",
    _TABLE_ONLY,
    Message("IsCreateTableDoneResponse", error=nested(1, ERROR), done=bool_(3)),
)
IS_ALTER_TABLE_DONE: Final = Method(
    _MASTER,
    "IsAlterTableDone",
    _TABLE_ONLY,
    Message(
        "IsAlterTableDoneResponse", error=nested(1, ERROR), schema_version=uint(2), done=bool_(3)
    ),
)
GET_TABLE_SCHEMA: Final = Method(
    _MASTER,
    "GetTableSchema",
    _TABLE_ONLY,
    Message(
        "GetTableSchemaResponse",
        error=nested(1, ERROR),
        schema=nested(2, SCHEMA),
        num_replicas=int_(3),
        table_id=text(4),
        partition_schema=nested(5, PARTITION_SCHEMA),
        table_name=text(7),
        owner=text(10),
        comment=text(11),
    ),
)
GET_TABLE_LOCATIONS: Final = Method(
    _MASTER,
    "GetTableLocations",
    Message(
        "GetTableLocationsRequest",
        table=nested(1, TABLE),
        key_start=bytes_(3),
        key_end=bytes_(4),
        max_returned_locations=uint(5),
        replica_type_filter=uint(6),
    ),
    Message(
        "GetTableLocationsResponse",
        error=nested(1, ERROR),
        tablets=many(nested(2, _LOCATIONS)),
        ttl_ms=uint(3),
    ),
)
LIST_TABLES: Final = Method(
    _MASTER,
    "ListTables",
    Message("ListTablesRequest", name_filter=text(1)),
    Message(
        "ListTablesResponse",
        error=nested(1, ERROR),
        tables=many(nested(2, Message("TableInfo", id=text(1), name=text(2)))),
    ),
)

# --- Raft -------------------------------------------------------------------------------------

GET_CONSENSUS_STATE: Final = Method(
    _CONSENSUS,
    "GetConsensusState",
    Message(
        "GetConsensusStateRequest",
        dest_uuid=text(1),
        tablet_ids=many(text(2)),
        report_health=uint(3),
    ),
    Message(
        "GetConsensusStateResponse",
        tablets=many(
            nested(
                1,
                Message("TabletConsensusInfo", tablet_id=text(1), state=nested(2, CONSENSUS_STATE)),
            )
        ),
        error=nested(2, ERROR),
    ),
)
LEADER_STEP_DOWN: Final = Method(
    _CONSENSUS,
    "LeaderStepDown",
    Message(
        "LeaderStepDownRequest",
        tablet_id=text(1),
        dest_uuid=text(2),
        mode=uint(3),
        new_leader_uuid=text(4),
    ),
    ERROR_ONLY,
)
BULK_CHANGE_CONFIG: Final = Method(
    _CONSENSUS,
    "BulkChangeConfig",
    Message(
        "BulkChangeConfigRequest",
        dest_uuid=text(1),
        tablet_id=text(2),
        changes=many(nested(3, Message("ConfigChangeItem", type=uint(1), peer=nested(2, PEER)))),
        cas_config_opid_index=int_(4),
    ),
    ERROR_ONLY,
)

# --- tablet servers ---------------------------------------------------------------------------

WRITE: Final = Method(
    _TSERVER,
    "Write",
    Message(
        "WriteRequest",
        tablet_id=text(1),
        schema=nested(2, SCHEMA),
        row_operations=nested(3, ROW_OPERATIONS),
        propagated_timestamp=fixed64(5),
    ),
    Message(
        "WriteResponse",
        error=nested(1, ERROR),
        per_row_errors=many(
            nested(2, Message("PerRowError", row_index=int_(1), error=nested(2, STATUS)))
        ),
        timestamp=fixed64(3),
    ),
)
_PREDICATE: Final = Message(
    "ColumnPredicate", column=text(1), equality=nested(3, Message("Equality", value=bytes_(1)))
)
SCAN: Final = Method(
    _TSERVER,
    "Scan",
    Message(
        "ScanRequest",
        scanner_id=bytes_(1),
        new_scan_request=nested(
            2,
            Message(
                "NewScanRequest",
                tablet_id=text(1),
                limit=uint(2),
                projected_columns=many(nested(4, COLUMN)),
                read_mode=uint(5),
                snap_timestamp=fixed64(6),
                propagated_timestamp=fixed64(7),
                start_primary_key=bytes_(8),
                stop_primary_key=bytes_(9),
                last_primary_key=bytes_(12),
                column_predicates=many(nested(13, _PREDICATE)),
                row_format_flags=uint(14),
                snap_start_timestamp=fixed64(16),
            ),
        ),
        call_seq_id=uint(3),
        batch_size_bytes=uint(4),
        close_scanner=bool_(5),
    ),
    Message(
        "ScanResponse",
        error=nested(1, ERROR),
        scanner_id=bytes_(2),
        has_more_results=bool_(3),
        data=nested(
            4,
            Message(
                "RowwiseRowBlock",
                num_rows=int_(1),
                rows_sidecar=int_(2),
                indirect_data_sidecar=int_(3),
            ),
        ),
        snap_timestamp=fixed64(6),
        propagated_timestamp=fixed64(9),
    ),
)

LIST_TABLETS: Final = Method(
    _TSERVER,
    "ListTablets",
    Message("ListTabletsRequest", need_schema_info=bool_(1)),
    Message(
        "ListTabletsResponse",
        error=nested(1, ERROR),
        tablets=many(
            nested(
                2,
                Message(
                    "StatusAndSchema",
                    status=nested(
                        1,
                        Message(
                            "TabletStatus",
                            tablet_id=text(1),
                            table_name=text(2),
                            state=uint(3),
                            data_state=uint(8),
                            partition=nested(9, PARTITION),
                            table_id=text(11),
                        ),
                    ),
                    schema=nested(2, SCHEMA),
                    schema_version=uint(4),
                    role=uint(5),
                ),
            )
        ),
    ),
)

# --- any server -------------------------------------------------------------------------------

PING_MASTER: Final = Method(_MASTER, "Ping", EMPTY, EMPTY)
PING_TSERVER: Final = Method(_TSERVER, "Ping", EMPTY, EMPTY)
GET_STATUS: Final = Method(
    _GENERIC,
    "GetStatus",
    EMPTY,
    Message(
        "GetStatusResponse",
        status=nested(
            1,
            Message(
                "ServerStatus",
                instance=nested(1, INSTANCE),
                version_info=nested(4, Message("VersionInfo", version_string=text(8))),
            ),
        ),
    ),
)
