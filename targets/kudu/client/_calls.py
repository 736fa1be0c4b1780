"""The vocabulary `ddl` in Kudu's terms: how each operation is asked, and what its answer says.

Pure: a `Call` holds a request and the functions that turn an answer into a completion's value.
Every table has one key column named `key`, which is added on create and stripped in answers, so
that the vocabulary knows plain columns only. Results are observations and carry what a checker
needs: the table's id and schema version, the revision of the system tablet, the master's term.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from harness.errors import UsageError
from harness.plugins import Request
from targets.kudu import messages as m

__all__ = ["KEY_COLUMN", "LOCATIONS_MAX", "Answer", "Call", "Value", "plan_call"]

KEY_COLUMN: Final = "key"
LOCATIONS_MAX: Final = 1000

Answer: TypeAlias = (
    m.CreateTableResponse
    | m.AlterTableResponse
    | m.DeleteTableResponse
    | m.GetTableSchemaResponse
    | m.ListTablesResponse
    | m.GetTableLocationsResponse
    | m.IsCreateTableDoneResponse
    | m.IsAlterTableDoneResponse
)


Value: TypeAlias = dict[str, Any] | list[list[Any]]


def _changed(response: Any) -> dict[str, Any]:
    return {"table_id": response.table_id, "schema_version": response.schema_version}


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One operation, ready to be sent any number of times."""

    method: str
    request: Any
    is_mutation: bool
    ok_value: Callable[[Any], dict[str, Any]] = _changed

    @property
    def response_type(self) -> type[Any]:
        """The type of the answer."""
        return m.METHODS[self.method][1]

    def answered_value(self, response: Answer) -> Value:
        """The value of an answer without error."""
        return {"result": "ok", **self.ok_value(response), **_provenance(response)}

    def refused_value(self, response: Answer) -> Value | None:
        """What a refusal observed; `None` where it observed nothing that a model could check."""
        error = response.error
        assert error is not None
        result = _observation(error, self.method)
        if result is None:
            return None
        value: dict[str, Any] = {"result": result}
        table_id = getattr(response, "table_id", "")
        if table_id:
            value["table_id"] = table_id
        return {**value, **_provenance(response)}

    def absence_value(self, response: Answer) -> Value | None:
        """The value of a read to which "not found" is the complete answer; `None` if it was not."""
        error = response.error
        assert error is not None
        if _observation(error, self.method) != "not-found":
            return None
        return Call.refused_value(self, response)

    def unsettled(self, response: Answer) -> str | None:
        """Why an answer without error does not say what was asked, so that a read asks again."""
        del response
        return None


def _observation(error: m.MasterError, method: str) -> str | None:
    code, status = error.code, error.status
    if code is m.MasterErrorCode.TABLE_NOT_FOUND and status is m.AppStatus.NOT_FOUND:
        return "not-found"
    if (
        code is m.MasterErrorCode.TABLE_ALREADY_PRESENT and status is m.AppStatus.ALREADY_PRESENT
    ):  # with SERVICE_UNAVAILABLE the name was only reserved, and may vanish again
        return "exists"
    if code is m.MasterErrorCode.INVALID_SCHEMA and method == "MasterService.AlterTable":
        return "invalid"
    return None


def _provenance(response: Answer) -> dict[str, Any]:
    return {"revision": response.meta.revision, "term": response.meta.term}


def plan_call(request: Request, request_id: m.RequestId) -> Call:
    """The call for `request`; raises `UsageError` for what the vocabulary does not have."""
    planner = _PLANNERS.get(request.f)
    if planner is None:
        raise UsageError(
            f"the operation {request.f!r} is not in the vocabulary 'ddl': "
            f"{', '.join(sorted(_PLANNERS))}"
        )
    value = request.value if request.value is not None else {}
    try:
        return planner(value, request_id)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"the value {request.value!r} does not fit the operation {request.f!r}: {error!r}; "
            "see the vocabulary 'ddl'"
        ) from error


# --- mutations -------------------------------------------------------------------------------


def _named(value: dict[str, Any]) -> m.TableIdentifier:
    return m.TableIdentifier(table_name=value["name"])


def _create(value: dict[str, Any], request_id: m.RequestId) -> Call:
    key = m.Column(id=0, name=KEY_COLUMN, is_key=True, is_nullable=False)
    # Ids are the server's to give: a client that sends them is refused (INVALID_SCHEMA).
    columns = tuple(m.Column(id=0, name=name) for name in value["columns"])
    request = m.CreateTableRequest(
        name=value["name"],
        schema=m.Schema((key, *columns)),
        partition_schema=m.PartitionSchema(
            num_hash_buckets=value["partitions"], hash_columns=(KEY_COLUMN,)
        ),
        request_id=request_id,
        num_replicas=value["replicas"],
        comment=value["nonce"],
    )
    return Call("MasterService.CreateTable", request, True, _changed)


def _step(step: list[str]) -> m.AlterStep:
    kind, *names = step
    if kind == "add":
        (name,) = names
        return m.AlterStep(m.StepType.ADD_COLUMN, column=m.Column(id=0, name=name))
    if kind == "drop":
        (name,) = names
        return m.AlterStep(m.StepType.DROP_COLUMN, name=name)
    if kind == "rename":
        old, new = names
        return m.AlterStep(m.StepType.RENAME_COLUMN, name=old, new_name=new)
    raise ValueError(f"an alter step is one of add, drop, rename; not {kind!r}")


def _alter(value: dict[str, Any], request_id: m.RequestId) -> Call:
    request = m.AlterTableRequest(
        table=_named(value),
        request_id=request_id,
        steps=tuple(_step(step) for step in value["steps"]),
    )
    return Call("MasterService.AlterTable", request, True, _changed)


def _rename(value: dict[str, Any], request_id: m.RequestId) -> Call:
    request = m.AlterTableRequest(
        table=_named(value), request_id=request_id, new_table_name=value["new_name"]
    )
    return Call("MasterService.AlterTable", request, True, _changed)


def _delete(value: dict[str, Any], request_id: m.RequestId) -> Call:
    request = m.DeleteTableRequest(table=_named(value), request_id=request_id)
    return Call("MasterService.DeleteTable", request, True, _changed)


# --- reads -----------------------------------------------------------------------------------


def _get(value: dict[str, Any], _: m.RequestId) -> Call:
    def ok_value(response: m.GetTableSchemaResponse) -> dict[str, Any]:
        columns = [column for column in response.schema.columns if not column.is_key]
        return {
            **_changed(response),
            "applied_schema_version": response.applied_schema_version,
            "columns": [column.name for column in columns],
            "column_ids": [column.id for column in columns],
            "comment": response.comment,
        }

    request = m.GetTableSchemaRequest(table=_named(value))
    return Call("MasterService.GetTableSchema", request, False, ok_value)


def _list(_: dict[str, Any], __: m.RequestId) -> Call:
    def ok_value(response: m.ListTablesResponse) -> dict[str, Any]:
        lines = sorted((t.name, t.id, t.schema_version) for t in response.tables)
        return {"tables": [list(line) for line in lines]}

    return Call("MasterService.ListTables", m.ListTablesRequest(), False, ok_value)


def _locate(value: dict[str, Any], _: m.RequestId) -> Call:
    def tablet(location: m.TabletLocations) -> dict[str, Any]:
        leaders = [r.ts_uuid for r in location.replicas if r.role == "LEADER"]
        return {
            "tablet_id": location.tablet_id,
            "start": location.partition.start.hex(),
            "end": location.partition.end.hex(),
            "leader": leaders[0] if leaders else None,
            "replicas": [replica.ts_uuid for replica in location.replicas],
        }

    def ok_value(response: m.GetTableLocationsResponse) -> dict[str, Any]:
        value = {**_changed(response), "tablets": [tablet(t) for t in response.tablets]}
        if len(response.tablets) >= LOCATIONS_MAX:
            value["truncated"] = True  # more tablets may follow: nobody may take this for all
        return value

    request = m.GetTableLocationsRequest(table=_named(value), max_returned_locations=LOCATIONS_MAX)
    return Call("MasterService.GetTableLocations", request, False, ok_value)


def _is_create_done(value: dict[str, Any], _: m.RequestId) -> Call:
    def ok_value(response: m.IsCreateTableDoneResponse) -> dict[str, Any]:
        return {"table_id": response.table_id, "done": response.done}

    request = m.IsCreateTableDoneRequest(table=_named(value))
    return Call("MasterService.IsCreateTableDone", request, False, ok_value)


def _is_alter_done(value: dict[str, Any], _: m.RequestId) -> Call:
    def ok_value(response: m.IsAlterTableDoneResponse) -> dict[str, Any]:
        return {**_changed(response), "done": response.done}

    request = m.IsAlterTableDoneRequest(table=_named(value))
    return Call("MasterService.IsAlterTableDone", request, False, ok_value)


_PLANNERS: Final[dict[str, Callable[[dict[str, Any], m.RequestId], Call]]] = {
    "create": _create,
    "alter": _alter,
    "rename": _rename,
    "delete": _delete,
    "get": _get,
    "list": _list,
    "locate": _locate,
    "is-create-done": _is_create_done,
    "is-alter-done": _is_alter_done,
}
