"""`TabletServerAdminService`: requests with which masters manage replicas on tablet servers."""

from __future__ import annotations

from targets.kudu.messages.base import TabletResponse, TabletServerAdminCall
from targets.kudu.messages.schema import Partition, PartitionSchema, RaftConfig, Schema


class TabletServerResponse(TabletResponse, frozen=True):
    """A tablet server's answer to such a request."""


class CreateTabletRequest(TabletServerAdminCall[TabletServerResponse], frozen=True):
    """Create a replica of a tablet. Without `partition_schema`, the replica accepts every key."""

    dest_uuid: str
    table_id: str
    table_name: str
    tablet_id: str
    partition: Partition
    schema: Schema
    schema_version: int
    config: RaftConfig
    partition_schema: PartitionSchema | None = None


class DeleteTabletRequest(TabletServerAdminCall[TabletServerResponse], frozen=True):
    """Delete a replica (`delete_type` DELETED) or turn it into a tombstone (TOMBSTONED).

    With `cas_config_opid_index`, the call fails with CAS_FAILED if the replica's committed
    configuration is newer (KUDU-1129).
    """

    dest_uuid: str
    tablet_id: str
    delete_type: str
    reason: str
    cas_config_opid_index: int | None = None


class AlterSchemaRequest(TabletServerAdminCall[TabletServerResponse], frozen=True):
    """Change a tablet's schema. The tablet's leader gets the request and replicates the change."""

    dest_uuid: str
    tablet_id: str
    schema: Schema
    schema_version: int
    new_table_name: str | None = None
