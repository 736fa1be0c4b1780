"""`MasterService`: requests that change the catalog."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from targets.kudu.messages.base import MasterError, Message, Meta, RequestId
from targets.kudu.messages.schema import Column, PartitionSchema, Schema

__all__ = [
    "AlterStep",
    "AlterTableRequest",
    "AlterTableResponse",
    "CreateTableRequest",
    "CreateTableResponse",
    "DeleteTableRequest",
    "DeleteTableResponse",
    "StepType",
    "TableIdentifier",
]


class TableIdentifier(Message, frozen=True):
    """A table by id, by name, or both (which must then agree)."""

    table_id: str | None = None
    table_name: str | None = None


class CreateTableRequest(Message, frozen=True):
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


class CreateTableResponse(Message, frozen=True):
    """Sent when the table is committed, before any tablet runs."""

    meta: Meta
    error: MasterError | None = None
    table_id: str = ""
    schema_version: int = 0


class DeleteTableRequest(Message, frozen=True):
    """Delete a table."""

    table: TableIdentifier
    request_id: RequestId


class DeleteTableResponse(Message, frozen=True):
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


class AlterStep(Message, frozen=True):
    """One step. ADD_COLUMN uses `column`, DROP_COLUMN `name`, RENAME_COLUMN `name`, `new_name`."""

    type: StepType
    column: Column | None = None
    name: str = ""
    new_name: str = ""


class AlterTableRequest(Message, frozen=True):
    """Steps are applied in order; the whole is atomic."""

    table: TableIdentifier
    request_id: RequestId
    steps: tuple[AlterStep, ...] = ()
    new_table_name: str | None = None


class AlterTableResponse(Message, frozen=True):
    """Sent when the alter is committed; tablets follow (`IsAlterTableDone`)."""

    meta: Meta
    error: MasterError | None = None
    table_id: str = ""
    schema_version: int = 0


METHODS: Final[Mapping[str, tuple[type[Message], type[Message]]]] = {
    "MasterService.CreateTable": (CreateTableRequest, CreateTableResponse),
    "MasterService.DeleteTable": (DeleteTableRequest, DeleteTableResponse),
    "MasterService.AlterTable": (AlterTableRequest, AlterTableResponse),
}
