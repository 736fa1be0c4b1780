"""Every message of the bundled target's services, after Kudu's `master.proto` and `tserver*.proto`.

Messages are msgpack arrays (`array_like`): both ends share this file. Services and methods keep
Kudu's names (`MasterService.CreateTable`). Ours add to every master answer the `term`, the
`revision` (index of the system-tablet operation the answer reflects) and the `master_uuid`, and to
every DDL request a `request_id`, which makes DDL exactly-once in profile `strict` (Kudu itself has
none: KUDU-1537).
"""

from __future__ import annotations

import msgspec

from targets.kudu.messages.admin import (
    AlterSchemaRequest,
    CreateTabletRequest,
    DeleteTabletRequest,
    TabletServerResponse,
)
from targets.kudu.messages.base import (
    AppStatus,
    MasterError,
    MasterErrorCode,
    Meta,
    RequestId,
    TabletError,
    TabletErrorCode,
)
from targets.kudu.messages.cluster import (
    ConnectToMasterRequest,
    ConnectToMasterResponse,
    DumpEntitiesRequest,
    DumpResponse,
    DumpTabletsRequest,
    GetMasterRegistrationRequest,
    GetMasterRegistrationResponse,
    ListTabletServersRequest,
    ListTabletServersResponse,
    ReportedTablet,
    TabletReport,
    TabletServerEntry,
    TSHeartbeatRequest,
    TSHeartbeatResponse,
    TSRegistration,
)
from targets.kudu.messages.ddl import (
    AlterStep,
    AlterTableRequest,
    AlterTableResponse,
    CreateTableRequest,
    CreateTableResponse,
    DeleteTableRequest,
    DeleteTableResponse,
    StepType,
    TableIdentifier,
)
from targets.kudu.messages.reads import (
    GetTableLocationsRequest,
    GetTableLocationsResponse,
    GetTableSchemaRequest,
    GetTableSchemaResponse,
    IsAlterTableDoneRequest,
    IsAlterTableDoneResponse,
    IsCreateTableDoneRequest,
    IsCreateTableDoneResponse,
    ListedTable,
    ListTablesRequest,
    ListTablesResponse,
    ReplicaLocation,
    TabletLocations,
)
from targets.kudu.messages.schema import (
    Column,
    Partition,
    PartitionSchema,
    PeerConfig,
    RaftConfig,
    Schema,
)

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
