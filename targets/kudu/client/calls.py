"""Kudu's requests for the operations of the vocabulary `ddl`, and the values of their answers.

The functions are pure. A `Call` holds a request, and functions that turn an answer into a
completion's value. The value has the data that a checker needs: the table's id and schema version,
the revision of the system tablet, and the master's term.

Every table has one key column named `key`. A create adds it and answers omit it, so operations of
the vocabulary do not mention the key column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from harness.errors import UsageError
from harness.plugins import Request
from harness.vocabularies import ddl
from targets.kudu import messages as m
from targets.kudu import rpc

KEY_COLUMN: Final = "key"
LOCATIONS_MAX: Final = 1000

Value: TypeAlias = dict[str, Any] | list[list[Any]]


def _changed(response: Any) -> dict[str, Any]:
    version = _stated(response.schema_version)
    return {"table_id": response.table_id or None, "schema_version": version}


def _stated(number: int) -> int | None:
    """Return `number`, or `None` for -1, with which real Kudu says that it reports no number."""
    return None if number < 0 else number


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One operation: its request and its value for each answer. Requests may be sent repeatedly."""

    request: rpc.Call[m.MasterResponse]
    is_mutation: bool
    ok_value: Callable[[Any], dict[str, Any]] = _changed

    def answered_value(self, response: m.MasterResponse) -> Value:
        """Return the completion's value for an answer that has no error."""
        return {"result": "ok", **self.ok_value(response), **_provenance(response)}

    def refused_value(self, response: m.MasterResponse) -> Value | None:
        """Return the completion's value for a refusal; `None` if no model can check the refusal."""
        error = response.error
        assert error is not None
        result = self._observation(error)
        if result is None:
            return None
        value: dict[str, Any] = {"result": result}
        table_id = getattr(response, "table_id", "")
        if table_id:
            value["table_id"] = table_id
        return {**value, **_provenance(response)}

    def absence_value(self, response: m.MasterResponse) -> Value | None:
        """Return a read's value if its answer is "not found"; `None` for other errors."""
        error = response.error
        assert error is not None
        if self._observation(error) != "not-found":
            return None
        return Call.refused_value(self, response)

    def unsettled(self, response: m.MasterResponse) -> str | None:
        """Return why a read's answer is not final and the read is repeated; `None` if final."""
        del response
        return None

    def _observation(self, error: m.MasterError) -> str | None:
        code, status = error.code, error.status
        if code is m.MasterErrorCode.TABLE_NOT_FOUND and status is m.AppStatus.NOT_FOUND:
            return "not-found"
        present = m.AppStatus.ALREADY_PRESENT
        if code is m.MasterErrorCode.TABLE_ALREADY_PRESENT and status is present:
            return "exists"  # with any other status, the name is only reserved
        is_alter = isinstance(self.request, m.AlterTableRequest)
        return "invalid" if code is m.MasterErrorCode.INVALID_SCHEMA and is_alter else None


def _provenance(response: m.MasterResponse) -> dict[str, Any]:
    return {"revision": _stated(response.meta.revision), "term": response.meta.term or None}


def plan_call(request: Request, request_id: m.RequestId) -> Call:
    """Return the call for `request`. Raises `UsageError` for operations outside the vocabulary."""
    call = ddl.call_of(request.f, request.value)
    match call:
        case ddl.Create():
            return _create(call, request_id)
        case ddl.Alter():
            steps = tuple(_step(step) for step in call.steps)
            return _altered(call.name, request_id, steps=steps)
        case ddl.Rename():
            return _altered(call.name, request_id, new_table_name=call.new_name)
        case ddl.Delete():
            delete = m.DeleteTableRequest(table=_named(call.name), request_id=request_id)
            return Call(delete, True)
        case ddl.Get():
            schema = m.GetTableSchemaRequest(table=_named(call.name))
            return Call(schema, False, _schema)
        case ddl.List():
            return Call(m.ListTablesRequest(), False, _tables)
        case ddl.Locate():
            where = m.GetTableLocationsRequest(
                table=_named(call.name), max_returned_locations=LOCATIONS_MAX
            )
            return Call(where, False, _locations)
        case ddl.IsCreateDone():
            created = m.IsCreateTableDoneRequest(table=_named(call.name))
            return Call(created, False, _create_done)
        case ddl.IsAlterDone():
            altered = m.IsAlterTableDoneRequest(table=_named(call.name))
            return Call(altered, False, _alter_done)


# --- requests --------------------------------------------------------------------------------


def _named(name: str) -> m.TableIdentifier:
    return m.TableIdentifier(table_name=name)


def _create(call: ddl.Create, request_id: m.RequestId) -> Call:
    key = m.Column(id=0, name=KEY_COLUMN, is_key=True, is_nullable=False)
    # The master assigns column ids, and refuses a request that has ids (INVALID_SCHEMA).
    columns = tuple(m.Column(id=0, name=name) for name in call.columns)
    request = m.CreateTableRequest(
        name=call.name,
        schema=m.Schema((key, *columns)),
        partition_schema=m.PartitionSchema(
            num_hash_buckets=call.partitions,
            hash_columns=(KEY_COLUMN,),
            range_columns=(KEY_COLUMN,) if call.ranges else (),
            is_bounded=bool(call.ranges),
        ),
        ranges=tuple(
            m.RangeHash(start.encode(), end.encode(), call.partitions) for start, end in call.ranges
        ),
        request_id=request_id,
        num_replicas=call.replicas,
        comment=call.nonce,
    )
    return Call(request, True)


def _step(step: list[str]) -> m.AlterStep:
    match step:
        case ["add", name]:
            return m.AlterStep(m.StepType.ADD_COLUMN, column=m.Column(id=0, name=name))
        case ["drop", name]:
            return m.AlterStep(m.StepType.DROP_COLUMN, name=name)
        case ["rename", old, new]:
            return m.AlterStep(m.StepType.RENAME_COLUMN, name=old, new_name=new)
        case ["add-range", start, end, buckets]:
            kind, number = m.StepType.ADD_RANGE_PARTITION, int(buckets) if buckets else None
            return m.AlterStep(
                kind, start=start.encode(), end=end.encode(), num_hash_buckets=number
            )
        case ["drop-range", start, end]:
            kind = m.StepType.DROP_RANGE_PARTITION
            return m.AlterStep(kind, start=start.encode(), end=end.encode())
    raise UsageError(
        f"{step!r} is not a step of an alter: ['add', c], ['drop', c], ['rename', old, new], "
        "['add-range', start, end, buckets] or ['drop-range', start, end]; see the vocabulary "
        "'ddl'"
    )


def _altered(name: str, request_id: m.RequestId, **changes: Any) -> Call:
    request = m.AlterTableRequest(table=_named(name), request_id=request_id, **changes)
    return Call(request, True)


# --- answers ---------------------------------------------------------------------------------


def _schema(response: m.GetTableSchemaResponse) -> dict[str, Any]:
    proven: dict[str, Any] = {}
    if response.applied_schema_version >= 0:  # otherwise columns prove nothing
        columns = [column for column in response.schema.columns if not column.is_key]
        proven = {
            "applied_schema_version": response.applied_schema_version,
            "columns": [column.name for column in columns],
            "column_ids": [column.id for column in columns],
        }
    return {**_changed(response), **proven, "comment": response.comment}


def _tables(response: m.ListTablesResponse) -> dict[str, Any]:
    lines = sorted((t.name, t.id, t.schema_version) for t in response.tables)
    return {"tables": [[name, ident, _stated(version)] for name, ident, version in lines]}


def _tablet(location: m.TabletLocations) -> dict[str, Any]:
    leaders = [r.ts_uuid for r in location.replicas if r.role == "LEADER"]
    return {
        "tablet_id": location.tablet_id,
        "start": location.partition.start.hex(),
        "end": location.partition.end.hex(),
        "leader": leaders[0] if leaders else None,
        "replicas": [replica.ts_uuid for replica in location.replicas],
    }


def _locations(response: m.GetTableLocationsResponse) -> dict[str, Any]:
    value = {**_changed(response), "tablets": [_tablet(t) for t in response.tablets]}
    if len(response.tablets) >= LOCATIONS_MAX:
        value["truncated"] = True  # the answer had the maximum number of tablets
    return value


def _create_done(response: m.IsCreateTableDoneResponse) -> dict[str, Any]:
    return {"table_id": response.table_id or None, "done": response.done}


def _alter_done(response: m.IsAlterTableDoneResponse) -> dict[str, Any]:
    return {**_changed(response), "done": response.done}
