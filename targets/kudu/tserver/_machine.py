"""The replicated state of one tablet: a deterministic state machine over its log.

Each log entry's payload is one operation, told apart by its tag, as Kudu's consensus log tells
`ALTER_SCHEMA` from `WRITE_OP` (`consensus/consensus.proto`). Rows are not kept yet; a write is one
more member of `TabletOp` and one more branch of `apply`.

The rules of a schema change (`tablet/ops/alter_schema_op.cc`) are applied where the operation is
*applied*, so that every replica decides alike: an older version is refused, the same version is
accepted if the schema is the same, and a newer one replaces what was there.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from targets.kudu.messages import Schema

__all__ = ["AlterOutcome", "AlterSchemaOp", "TabletMachine", "TabletOp", "judge_alter"]


class AlterOutcome(enum.Enum):
    """What a schema change did."""

    APPLIED = "applied"
    SAME = "same"  # the replica has this version and this schema already
    OLDER = "older"  # the replica's version is newer
    MISMATCHED = "mismatched"  # the same version with another schema


class AlterSchemaOp(msgspec.Struct, frozen=True, array_like=True, tag="ALTER_SCHEMA"):
    """Change the schema to `schema_version`."""

    schema: Schema
    schema_version: int
    new_table_name: str | None = None


TabletOp = AlterSchemaOp  # a union once there are writes
_operations = msgspec.msgpack.Decoder(TabletOp)
_encoder = msgspec.msgpack.Encoder()


class _State(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot of the machine."""

    table_name: str
    schema: Schema
    schema_version: int


_states = msgspec.msgpack.Decoder(_State)


def judge_alter(operation: AlterSchemaOp, *, schema: Schema, schema_version: int) -> AlterOutcome:
    """What `operation` would do to a replica with this schema."""
    if operation.schema_version < schema_version:
        return AlterOutcome.OLDER
    if operation.schema_version > schema_version:
        return AlterOutcome.APPLIED
    return AlterOutcome.SAME if operation.schema == schema else AlterOutcome.MISMATCHED


class TabletMachine:
    """What one replica has applied so far. Satisfies the `StateMachine` of a Raft replica."""

    def __init__(
        self,
        *,
        table_name: str,
        schema: Schema,
        schema_version: int,
        on_change: Callable[[], None],
    ) -> None:
        """Start from what the tablet was created with; `on_change` is called after a change."""
        self._on_change = on_change
        self._state = _State(table_name, schema, schema_version)

    @property
    def table_name(self) -> str:
        """The table's name as the tablet last heard it."""
        return self._state.table_name

    @property
    def schema(self) -> Schema:
        """The applied schema."""
        return self._state.schema

    @property
    def schema_version(self) -> int:
        """The applied schema's version."""
        return self._state.schema_version

    def judge(self, operation: AlterSchemaOp) -> AlterOutcome:
        """What `operation` would do now."""
        return judge_alter(operation, schema=self.schema, schema_version=self.schema_version)

    @staticmethod
    def encode(operation: TabletOp) -> bytes:
        """The log payload of `operation`."""
        return _encoder.encode(operation)

    def apply(self, index: int, term: int, payload: bytes) -> AlterOutcome:
        """Apply one committed operation; the outcome is the same on every replica."""
        del index, term
        operation = _operations.decode(payload)
        outcome = self.judge(operation)
        if outcome is AlterOutcome.APPLIED:
            name = operation.new_table_name or self._state.table_name
            self._state = _State(name, operation.schema, operation.schema_version)
            self._on_change()
        return outcome

    def snapshot(self) -> bytes:
        """The whole state."""
        return _encoder.encode(self._state)

    def restore(self, data: bytes, index: int) -> None:
        """Become the state that `snapshot` had at `index`."""
        del index
        self._state = _states.decode(data)
        self._on_change()
