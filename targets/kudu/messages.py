"""Every message of the bundled target's services, after Kudu's `master.proto` and `tserver*.proto`.

Messages are msgpack arrays (`array_like`): both ends share this file. Services and methods keep
Kudu's names (`MasterService.CreateTable`). Ours add to every master answer the `term`, the
`revision` (index of the system-tablet operation the answer reflects) and the `master_uuid`, and to
every DDL request a `request_id`, which makes DDL exactly-once in profile `strict` (Kudu itself has
none: KUDU-1537).
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

__all__ = [
    "METHODS",
    "AlterSchemaRequest",
    "AlterStep",
    "AlterTableRequest",
    "AlterTableResponse",
    "AppStatus",
    "Column",
    "ConnectToMasterRequest",
    "ConnectToMasterResponse",
    "CreateTableRequest",
    "CreateTableResponse",
    "CreateTabletRequest",
    "DeleteTableRequest",
    "DeleteTableResponse",
    "DeleteTabletRequest",
    "DumpEntitiesRequest",
    "DumpResponse",
    "DumpTabletsRequest",
    "GetMasterRegistrationRequest",
    "GetMasterRegistrationResponse",
    "GetTableLocationsRequest",
    "GetTableLocationsResponse",
    "GetTableSchemaRequest",
    "GetTableSchemaResponse",
    "IsAlterTableDoneRequest",
    "IsAlterTableDoneResponse",
    "IsCreateTableDoneRequest",
    "IsCreateTableDoneResponse",
    "ListTablesRequest",
    "ListTablesResponse",
    "ListTabletServersRequest",
    "ListTabletServersResponse",
    "ListedTable",
    "MasterError",
    "MasterErrorCode",
    "Meta",
    "Partition",
    "PartitionSchema",
    "PeerConfig",
    "RaftConfig",
    "ReplicaLocation",
    "ReportedTablet",
    "RequestId",
    "Schema",
    "StepType",
    "TSHeartbeatRequest",
    "TSHeartbeatResponse",
    "TSRegistration",
    "TableIdentifier",
    "TabletError",
    "TabletErrorCode",
    "TabletLocations",
    "TabletReport",
    "TabletServerEntry",
    "TabletServerResponse",
]


class _Message(msgspec.Struct, frozen=True, array_like=True):
    """The base of all messages: an immutable msgpack array."""


# --- codes -----------------------------------------------------------------------------------


class AppStatus(enum.IntEnum):
    """`AppStatusPB`: the kind of a failure, below its code."""

    OK = 0
    NOT_FOUND = 1
    INVALID_ARGUMENT = 4
    ALREADY_PRESENT = 6
    RUNTIME_ERROR = 7
    NETWORK_ERROR = 8
    ILLEGAL_STATE = 9
    ABORTED = 11
    REMOTE_ERROR = 12
    SERVICE_UNAVAILABLE = 13
    TIMED_OUT = 14


class MasterErrorCode(enum.IntEnum):
    """`MasterErrorPB.Code`."""

    UNKNOWN_ERROR = 1
    INVALID_SCHEMA = 2
    TABLE_NOT_FOUND = 3
    TABLE_ALREADY_PRESENT = 4
    TOO_MANY_TABLETS = 5
    CATALOG_MANAGER_NOT_INITIALIZED = 6
    NOT_THE_LEADER = 7
    REPLICATION_FACTOR_TOO_HIGH = 8
    TABLET_NOT_RUNNING = 9
    EVEN_REPLICATION_FACTOR = 10
    ILLEGAL_REPLICATION_FACTOR = 11


class TabletErrorCode(enum.IntEnum):
    """`TabletServerErrorPB.Code`, those in use."""

    UNKNOWN_ERROR = 1
    MISMATCHED_SCHEMA = 5
    TABLET_NOT_FOUND = 6
    TABLET_ALREADY_EXISTS = 10
    TABLET_HAS_A_NEWER_SCHEMA = 11
    TABLET_NOT_RUNNING = 12
    NOT_THE_LEADER = 15
    WRONG_SERVER_UUID = 16
    CAS_FAILED = 17
    ALREADY_INPROGRESS = 18


class MasterError(_Message, frozen=True):
    """An application error of a master. A master that lost leadership *while* writing says so
    with `indeterminate`: the write may still commit (Kudu's case 7(d), KUDU-591).
    """

    code: MasterErrorCode
    status: AppStatus
    message: str
    indeterminate: bool = False


class TabletError(_Message, frozen=True):
    """An application error of a tablet server."""

    code: TabletErrorCode
    message: str


class Meta(_Message, frozen=True):
    """What every master answer carries. `revision` is -1 where the answer reflects no state."""

    master_uuid: str
    term: int = 0
    revision: int = -1


class RequestId(_Message, frozen=True):
    """Names one logical DDL operation; every resend carries the same one."""

    client_id: str
    seq_no: int
    nonce: str


# --- schema and partitions -------------------------------------------------------------------


class Column(_Message, frozen=True):
    """A column. Ids are never used again in a table (KUDU-461)."""

    id: int
    name: str
    type: str = "STRING"
    is_key: bool = False
    is_nullable: bool = True


class Schema(_Message, frozen=True):
    """The columns of a table, keys first."""

    columns: tuple[Column, ...]


class PartitionSchema(_Message, frozen=True):
    """How rows map to tablets: hash buckets over `hash_columns`, then ranges of the key."""

    num_hash_buckets: int = 1
    hash_columns: tuple[str, ...] = ()
    range_columns: tuple[str, ...] = ()


class Partition(_Message, frozen=True):
    """One tablet's share: encoded partition keys `[start, end)`; empty means unbounded."""

    start: bytes
    end: bytes


class PeerConfig(_Message, frozen=True):
    """A member of a Raft configuration."""

    uuid: str
    address: str  # "node:port"
    member_type: str = "VOTER"  # or NON_VOTER
    promote: bool = False
    replace: bool = False


class RaftConfig(_Message, frozen=True):
    """A Raft configuration and the index of the operation that set it (-1 for the first)."""

    opid_index: int
    peers: tuple[PeerConfig, ...]


# --- MasterService: DDL ----------------------------------------------------------------------


class TableIdentifier(_Message, frozen=True):
    """A table by id, by name, or both (which must then agree)."""

    table_id: str | None = None
    table_name: str | None = None


class CreateTableRequest(_Message, frozen=True):
    """`num_tablets` hash buckets over the key; -1 replicas means the default. `comment` holds the
    nonce by which a later read recognises this very creation.
    """

    name: str
    schema: Schema
    partition_schema: PartitionSchema
    request_id: RequestId
    num_replicas: int = -1
    owner: str = ""
    comment: str = ""


class CreateTableResponse(_Message, frozen=True):
    """Sent when the table is committed, before any tablet runs."""

    meta: Meta
    error: MasterError | None = None
    table_id: str = ""
    schema_version: int = 0


class DeleteTableRequest(_Message, frozen=True):
    """Delete a table."""

    table: TableIdentifier
    request_id: RequestId


class DeleteTableResponse(_Message, frozen=True):
    """`schema_version` is the table's last."""

    meta: Meta
    error: MasterError | None = None
    table_id: str = ""
    schema_version: int = 0


class StepType(enum.IntEnum):
    """`AlterTableRequestPB.StepType`."""

    ADD_COLUMN = 1
    DROP_COLUMN = 2
    RENAME_COLUMN = 3


class AlterStep(_Message, frozen=True):
    """One step. ADD_COLUMN uses `column`, DROP_COLUMN `name`, RENAME_COLUMN `name`, `new_name`."""

    type: StepType
    column: Column | None = None
    name: str = ""
    new_name: str = ""


class AlterTableRequest(_Message, frozen=True):
    """Steps are applied in order; the whole is atomic."""

    table: TableIdentifier
    request_id: RequestId
    steps: tuple[AlterStep, ...] = ()
    new_table_name: str | None = None


class AlterTableResponse(_Message, frozen=True):
    """Sent when the alter is committed; tablets follow (`IsAlterTableDone`)."""

    meta: Meta
    error: MasterError | None = None
    table_id: str = ""
    schema_version: int = 0


# --- MasterService: reads --------------------------------------------------------------------


class IsCreateTableDoneRequest(_Message, frozen=True):
    """Ask whether every live tablet runs."""

    table: TableIdentifier


class IsCreateTableDoneResponse(_Message, frozen=True):
    """The answer."""

    meta: Meta
    error: MasterError | None = None
    table_id: str = ""
    done: bool = False


class IsAlterTableDoneRequest(_Message, frozen=True):
    """Ask whether every tablet has the newest schema."""

    table: TableIdentifier


class IsAlterTableDoneResponse(_Message, frozen=True):
    """The answer; `schema_version` is the newest, whether done or not."""

    meta: Meta
    error: MasterError | None = None
    table_id: str = ""
    schema_version: int = 0
    done: bool = False


class GetTableSchemaRequest(_Message, frozen=True):
    """Ask for a table's schema."""

    table: TableIdentifier


class GetTableSchemaResponse(_Message, frozen=True):
    """`schema` is the fully applied one, as in Kudu, of version `applied_schema_version`;
    `schema_version` is the version of the committed record and may be ahead while altering.
    """

    meta: Meta
    error: MasterError | None = None
    table_id: str = ""
    name: str = ""
    schema: Schema = Schema(())
    schema_version: int = 0
    applied_schema_version: int = 0
    partition_schema: PartitionSchema = PartitionSchema()
    num_replicas: int = 0
    owner: str = ""
    comment: str = ""
    state: str = ""


class ListTablesRequest(_Message, frozen=True):
    """`name_filter` is a substring; empty matches all."""

    name_filter: str = ""


class ListedTable(_Message, frozen=True):
    """A line of a table list."""

    id: str
    name: str
    state: str
    schema_version: int


class ListTablesResponse(_Message, frozen=True):
    """In profile `strict` one consistent snapshot, sorted by name."""

    meta: Meta
    error: MasterError | None = None
    tables: tuple[ListedTable, ...] = ()


class GetTableLocationsRequest(_Message, frozen=True):
    """Ask where the tablets of a key range are."""

    table: TableIdentifier
    key_start: bytes = b""
    key_end: bytes = b""
    max_returned_locations: int = 10


class ReplicaLocation(_Message, frozen=True):
    """A replica of a tablet."""

    ts_uuid: str
    address: str
    role: str  # LEADER, FOLLOWER, LEARNER
    member_type: str


class TabletLocations(_Message, frozen=True):
    """A tablet and its replicas."""

    tablet_id: str
    partition: Partition
    replicas: tuple[ReplicaLocation, ...]


class GetTableLocationsResponse(_Message, frozen=True):
    """Tablets in key order; any tablet in range that does not run fails the whole answer (9)."""

    meta: Meta
    error: MasterError | None = None
    table_id: str = ""
    schema_version: int = 0
    tablets: tuple[TabletLocations, ...] = ()
    ttl_ms: int = 0


# --- MasterService: cluster ------------------------------------------------------------------


class ConnectToMasterRequest(_Message, frozen=True):
    """Ask a master for its role as the catalog manager sees it."""


class ConnectToMasterResponse(_Message, frozen=True):
    """LEADER only when the catalog is loaded and ready in the current term."""

    meta: Meta
    error: MasterError | None = None
    role: str = "FOLLOWER"
    master_addresses: tuple[str, ...] = ()
    cluster_id: str = ""


class GetMasterRegistrationRequest(_Message, frozen=True):
    """Ask a master who it is."""


class GetMasterRegistrationResponse(_Message, frozen=True):
    """`role` is the raw Raft role."""

    meta: Meta
    error: MasterError | None = None
    address: str = ""
    role: str = "FOLLOWER"
    member_type: str = "VOTER"


class ListTabletServersRequest(_Message, frozen=True):
    """Ask for this master's view of the tablet servers; leadership is not checked."""


class TabletServerEntry(_Message, frozen=True):
    """A tablet server as one master knows it."""

    uuid: str
    address: str
    millis_since_heartbeat: int
    num_live_tablets: int


class ListTabletServersResponse(_Message, frozen=True):
    """All tablet servers that ever registered with this master since it started."""

    meta: Meta
    error: MasterError | None = None
    servers: tuple[TabletServerEntry, ...] = ()


class TSRegistration(_Message, frozen=True):
    """How a tablet server is reached."""

    address: str


class ReportedTablet(_Message, frozen=True):
    """A replica in a tablet report; `leader_uuid` and `term` are as this replica sees them."""

    tablet_id: str
    state: str  # NOT_INITIALIZED, BOOTSTRAPPING, RUNNING, FAILED, STOPPED
    data_state: str  # COPYING, READY, DELETED, TOMBSTONED
    term: int
    leader_uuid: str | None
    committed_config: RaftConfig | None
    schema_version: int
    error: str | None = None


class TabletReport(_Message, frozen=True):
    """Full or incremental; a dirty mark is cleared only when a report numbered at or after it
    was acknowledged.
    """

    is_incremental: bool
    sequence_number: int
    updated_tablets: tuple[ReportedTablet, ...] = ()
    removed_tablet_ids: tuple[str, ...] = ()


class TSHeartbeatRequest(_Message, frozen=True):
    """`ts_seqno` is the start time of the tablet server in ns, so that restarts are noticed."""

    ts_uuid: str
    ts_seqno: int
    registration: TSRegistration | None = None
    report: TabletReport | None = None
    num_live_tablets: int = 0


class TSHeartbeatResponse(_Message, frozen=True):
    """`leader_master` says whether this master leads; `processed_sequence` acknowledges the
    report, and is -1 when it was not handled.
    """

    meta: Meta
    error: MasterError | None = None
    leader_master: bool = False
    needs_reregister: bool = False
    needs_full_tablet_report: bool = False
    processed_sequence: int = -1


class DumpEntitiesRequest(_Message, frozen=True):
    """Ask a master for everything it holds, from its own state, whatever its role."""


class DumpTabletsRequest(_Message, frozen=True):
    """Ask a tablet server for everything it holds."""


class DumpResponse(_Message, frozen=True):
    """Plain JSON data, for snapshots and for people."""

    data: dict[str, Any]


# --- TabletServerAdminService ----------------------------------------------------------------


class CreateTabletRequest(_Message, frozen=True):
    """Create a replica of a tablet."""

    dest_uuid: str
    table_id: str
    table_name: str
    tablet_id: str
    partition: Partition
    schema: Schema
    schema_version: int
    config: RaftConfig


class DeleteTabletRequest(_Message, frozen=True):
    """`delete_type` is DELETED or TOMBSTONED; with `cas_config_opid_index` the call fails with
    CAS_FAILED when the replica's committed configuration is newer (KUDU-1129).
    """

    dest_uuid: str
    tablet_id: str
    delete_type: str
    reason: str
    cas_config_opid_index: int | None = None


class AlterSchemaRequest(_Message, frozen=True):
    """Sent to the tablet's leader, which replicates it to its group."""

    dest_uuid: str
    tablet_id: str
    schema: Schema
    schema_version: int
    new_table_name: str | None = None


class TabletServerResponse(_Message, frozen=True):
    """The answer to all administrative calls."""

    error: TabletError | None = None


METHODS: dict[str, tuple[type[msgspec.Struct], type[msgspec.Struct]]] = {
    "MasterService.CreateTable": (CreateTableRequest, CreateTableResponse),
    "MasterService.DeleteTable": (DeleteTableRequest, DeleteTableResponse),
    "MasterService.AlterTable": (AlterTableRequest, AlterTableResponse),
    "MasterService.IsCreateTableDone": (IsCreateTableDoneRequest, IsCreateTableDoneResponse),
    "MasterService.IsAlterTableDone": (IsAlterTableDoneRequest, IsAlterTableDoneResponse),
    "MasterService.GetTableSchema": (GetTableSchemaRequest, GetTableSchemaResponse),
    "MasterService.ListTables": (ListTablesRequest, ListTablesResponse),
    "MasterService.GetTableLocations": (GetTableLocationsRequest, GetTableLocationsResponse),
    "MasterService.ConnectToMaster": (ConnectToMasterRequest, ConnectToMasterResponse),
    "MasterService.GetMasterRegistration": (
        GetMasterRegistrationRequest,
        GetMasterRegistrationResponse,
    ),
    "MasterService.ListTabletServers": (ListTabletServersRequest, ListTabletServersResponse),
    "MasterService.TSHeartbeat": (TSHeartbeatRequest, TSHeartbeatResponse),
    "MasterService.DumpEntities": (DumpEntitiesRequest, DumpResponse),
    "TabletServerAdminService.CreateTablet": (CreateTabletRequest, TabletServerResponse),
    "TabletServerAdminService.DeleteTablet": (DeleteTabletRequest, TabletServerResponse),
    "TabletServerAdminService.AlterSchema": (AlterSchemaRequest, TabletServerResponse),
    "TabletServerService.DumpTablets": (DumpTabletsRequest, DumpResponse),
}
"""Method name -> request and response type. ConsensusService's are in `raft/messages.py`."""
