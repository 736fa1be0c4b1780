"""`MasterService`: requests that change the catalog."""

from __future__ import annotations

import enum

from targets.kudu.messages.base import MasterCall, MasterResponse, Message, RequestId
from targets.kudu.messages.schema import Column, PartitionSchema, RangeHash, Schema


class TableIdentifier(Message, frozen=True):
    """A table's id, its name, or both. If both are given, they must belong to the same table."""

    table_id: str | None = None
    table_name: str | None = None


class CreateTableResponse(MasterResponse, frozen=True):
    """The answer to a create, sent once the table is committed and before its tablets run."""

    table_id: str = ""
    schema_version: int = 0


class CreateTableRequest(MasterCall[CreateTableResponse], frozen=True):
    """Create a table. If `num_replicas` is -1, the master's default applies.

    `comment` contains a nonce, so that a later read recognizes this creation. `ranges` are the
    first ranges of a table with bounded ranges.
    """

    name: str
    schema: Schema
    partition_schema: PartitionSchema
    request_id: RequestId
    num_replicas: int = -1
    owner: str = ""
    comment: str = ""
    ranges: tuple[RangeHash, ...] = ()


class DeleteTableResponse(MasterResponse, frozen=True):
    """The answer to a deletion; `schema_version` is the table's last version."""

    table_id: str = ""
    schema_version: int = 0


class DeleteTableRequest(MasterCall[DeleteTableResponse], frozen=True):
    """Delete a table."""

    table: TableIdentifier
    request_id: RequestId


class StepType(enum.IntEnum):
    """The kind of a step of an alter (Kudu's `AlterTableRequestPB.StepType`)."""

    ADD_COLUMN = 1
    DROP_COLUMN = 2
    RENAME_COLUMN = 3
    ADD_RANGE_PARTITION = 5
    DROP_RANGE_PARTITION = 6


class AlterStep(Message, frozen=True):
    """One step of an alter. Only ADD_COLUMN uses `column`; only RENAME_COLUMN uses `new_name`.

    Steps about ranges use `start` and `end`, which are encoded range keys. ADD_RANGE_PARTITION also
    uses `num_hash_buckets`; without it, the range has the table's hash schema.
    """

    type: StepType
    column: Column | None = None
    name: str = ""
    new_name: str = ""
    start: bytes = b""
    end: bytes = b""
    num_hash_buckets: int | None = None


class AlterTableResponse(MasterResponse, frozen=True):
    """The answer to an alter, sent once it is committed. Tablets apply it later."""

    table_id: str = ""
    schema_version: int = 0


class AlterTableRequest(MasterCall[AlterTableResponse], frozen=True):
    """Alter a table: the steps are applied in order and atomically.

    A new `num_replicas` is committed with the other changes; replicas are then added or evicted one
    by one.
    """

    table: TableIdentifier
    request_id: RequestId
    steps: tuple[AlterStep, ...] = ()
    new_table_name: str | None = None
    num_replicas: int | None = None


class ReplaceTabletResponse(MasterResponse, frozen=True):
    """The answer, sent once the replacement is committed and before the new tablet runs."""

    replacement_tablet_id: str = ""


class ReplaceTabletRequest(MasterCall[ReplaceTabletResponse], frozen=True):
    """Replace a lost tablet by an empty tablet; **the rows are lost**."""

    tablet_id: str
