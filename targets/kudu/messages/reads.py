"""`MasterService`: requests that read the catalog."""

from __future__ import annotations

from targets.kudu.messages.base import MasterCall, MasterResponse, Message
from targets.kudu.messages.ddl import TableIdentifier
from targets.kudu.messages.schema import Partition, PartitionSchema, Schema


class IsCreateTableDoneResponse(MasterResponse, frozen=True):
    """The answer, in which `done` says whether every live tablet of the table runs."""

    table_id: str = ""
    done: bool = False


class IsCreateTableDoneRequest(MasterCall[IsCreateTableDoneResponse], frozen=True):
    """Ask whether every live tablet of a table runs."""

    table: TableIdentifier


class IsAlterTableDoneResponse(MasterResponse, frozen=True):
    """The answer, in which `done` says whether every tablet has the newest schema."""

    table_id: str = ""
    schema_version: int = 0
    done: bool = False


class IsAlterTableDoneRequest(MasterCall[IsAlterTableDoneResponse], frozen=True):
    """Ask whether every tablet of a table has the newest schema."""

    table: TableIdentifier


class GetTableSchemaResponse(MasterResponse, frozen=True):
    """The schema of a table.

    As in Kudu, `schema` is the newest schema that all tablets have applied; its version is
    `applied_schema_version`. `schema_version` is the version of the committed schema, which may be
    higher while the table is being altered.
    """

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


class GetTableSchemaRequest(MasterCall[GetTableSchemaResponse], frozen=True):
    """Ask for a table's schema.

    If `max_staleness_ms` is set, any master may answer, from a state that is at most this old.
    """

    table: TableIdentifier
    max_staleness_ms: int | None = None


class ListedTable(Message, frozen=True):
    """One entry of a table list."""

    id: str
    name: str
    state: str
    schema_version: int


class ListTablesResponse(MasterResponse, frozen=True):
    """A list of tables, sorted by name. In the profile `strict`, it is a consistent snapshot."""

    tables: tuple[ListedTable, ...] = ()


class ListTablesRequest(MasterCall[ListTablesResponse], frozen=True):
    """Ask for a list of tables.

    `name_filter` is a substring of the tables' names; if it is empty, all tables are listed. If
    `max_staleness_ms` is set, any master may answer, from a state that is at most this old.
    """

    name_filter: str = ""
    max_staleness_ms: int | None = None


class ReplicaLocation(Message, frozen=True):
    """A replica of a tablet."""

    ts_uuid: str
    address: str
    role: str  # LEADER, FOLLOWER, LEARNER
    member_type: str


class TabletLocations(Message, frozen=True):
    """A tablet and the locations of its replicas."""

    tablet_id: str
    partition: Partition
    replicas: tuple[ReplicaLocation, ...]


class GetTableLocationsResponse(MasterResponse, frozen=True):
    """The tablets of a key range, in key order; TABLET_NOT_RUNNING if one of them does not run."""

    table_id: str = ""
    schema_version: int = 0
    tablets: tuple[TabletLocations, ...] = ()
    ttl_ms: int = 0


class GetTableLocationsRequest(MasterCall[GetTableLocationsResponse], frozen=True):
    """Ask for the locations of the tablets in a key range.

    The locations include the voters. With `any_replica`, they also include non-voters, from which
    clients cannot read yet (Kudu: `replica_type_filter`).
    """

    table: TableIdentifier
    key_start: bytes = b""
    key_end: bytes = b""
    max_returned_locations: int = 10
    any_replica: bool = False
