"""Requests about tables, as masters of real Kudu execute them.

Answers of real masters lack fields of the bundled ones: most have no table id, and only
IsAlterTableDone has a schema version. Further calls of the same master supply the missing values,
but only if they are certain:

* **The id of a table that is read or deleted.** The master is first asked for the id of the name,
  and then for the table with this id *and* this name, which it refuses if the two do not match.
* **The version of a schema.** GetTableSchema answers with the schema that all tablets have applied.
  It is called between two calls of IsAlterTableDone for the same id (`shown_versions`).
* **The version that an alter made.** If the versions before and after an acknowledged alter differ
  by one, no other change came between, since every change makes a version.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from harness.errors import UsageError
from targets.apache_kudu.wire import methods as w
from targets.apache_kudu.wire.connection import Reply
from targets.apache_kudu.wire.errors import master_error
from targets.apache_kudu.wire.protobuf import Values, WireFormatError
from targets.apache_kudu.wire.rows import NUMBERS, type_name
from targets.apache_kudu.wire.session import Session, remember, unsent
from targets.kudu import messages as m
from targets.kudu.rpc import RpcError

UNSTATED: Final = -1
"""The schema version in an answer that does not contain it."""
_ROUNDS_MAX: Final = 3
ROLES: Final = {0: "FOLLOWER", 1: "LEADER", 2: "LEARNER", 3: "NON_PARTICIPANT"}
ROLE_NUMBERS: Final = {name: number for number, name in ROLES.items()}
_VOTERS: Final = 1
ANY_REPLICA: Final = 0
R = TypeVar("R", bound=m.MasterResponse)


class Version(NamedTuple):
    """A version of a table, and whether all tablets have applied it."""

    table_id: str
    number: int
    done: bool


def shown_versions(before: Version, after: Version) -> tuple[int, int]:
    """Return the (applied, committed) versions of a schema that was read between two looks.

    Versions only grow. While a table is being altered, masters show the schema from before the
    first of the unfinished alters. `UNSTATED` is returned for an uncertain version.
    """
    if before.table_id != after.table_id:
        return UNSTATED, UNSTATED
    if before.number == after.number:
        applied = after.number if before.done and after.done else UNSTATED
        return applied, after.number
    if before.done and not after.done and after.number == before.number + 1:
        return before.number, UNSTATED
    return UNSTATED, UNSTATED


# --- changes ----------------------------------------------------------------------------------


async def create_table(s: Session, request: m.CreateTableRequest) -> m.CreateTableResponse:
    """Create a table; the answer has no version."""
    hashed = request.partition_schema
    buckets = hashed.num_hash_buckets
    hashes = {"columns": [{"name": name} for name in hashed.hash_columns], "num_buckets": buckets}
    values: Values = {
        "name": request.name,
        "schema": {"columns": [column_values(column) for column in request.schema.columns]},
        "partition_schema": {
            # One bucket means no hash partitioning. Kudu expects an empty list then.
            "hash_schema": [] if buckets == 1 else [hashes],
            "range_schema": {"columns": [{"name": name} for name in hashed.range_columns]},
        },
        "num_replicas": request.num_replicas if request.num_replicas >= 0 else None,
        "owner": request.owner or None,
        "comment": request.comment or None,
    }
    reply = await s.ask(w.CREATE_TABLE, values)
    return m.CreateTableResponse(_meta(s), master_error(reply), reply.get("table_id", ""), UNSTATED)


async def delete_table(s: Session, request: m.DeleteTableRequest) -> m.DeleteTableResponse:
    """Delete a table by id and name. If the name's id keeps changing, delete it by name alone."""
    table = _table(request.table)

    async def delete(which: Values) -> Reply:
        return await s.ask(w.DELETE_TABLE, {"table": which})

    reply, ident = await _with_id(s, table, delete, is_change=True)
    return m.DeleteTableResponse(_meta(s), master_error(reply), ident, UNSTATED)


async def alter_table(s: Session, request: m.AlterTableRequest) -> m.AlterTableResponse:
    """Alter a table."""
    table = _table(request.table)
    before = await unsent(version_of_name(s, table))
    values: Values = {
        "table": table,
        "steps": [_step(step) for step in request.steps],
        "new_table_name": request.new_table_name,
        "num_replicas": request.num_replicas,
    }
    reply = await s.ask(w.ALTER_TABLE, values)
    error, ident = master_error(reply), reply.get("table_id", "")
    version = UNSTATED
    if error is None and before is not None and before.table_id == ident:
        # The alter was acknowledged, so a later failure proves nothing about it.
        with contextlib.suppress(RpcError):
            after = await version_of_id(s, ident)
            if after is not None and after.number == before.number + 1:
                version = after.number
    return m.AlterTableResponse(_meta(s), error, ident, version)


# --- reads ------------------------------------------------------------------------------------


async def get_table_schema(
    s: Session, request: m.GetTableSchemaRequest
) -> m.GetTableSchemaResponse:
    """Read a table, with the versions of the schema as far as they are certain."""
    table = _table(request.table)
    before: Version | None = None
    applied = committed = UNSTATED
    for _ in range(_ROUNDS_MAX):
        reply = await s.ask(w.GET_TABLE_SCHEMA, {"table": table})
        error = master_error(reply)
        if error is not None:
            return m.GetTableSchemaResponse(_meta(s), error)
        after = await version_of_id(s, reply["table_id"])
        if after is None:
            break
        if before is not None:
            applied, committed = shown_versions(before, after)
        if applied != UNSTATED:
            break
        before = after
    schema = read_schema(reply.get("schema", {}))
    s.memory.learn_columns(reply["table_id"], schema.columns)
    return m.GetTableSchemaResponse(
        _meta(s),
        None,
        table_id=reply["table_id"],
        name=reply.get("table_name", ""),
        schema=schema,
        schema_version=committed,
        applied_schema_version=applied,
        partition_schema=_partition_schema(reply.get("partition_schema", {}), schema),
        num_replicas=reply.get("num_replicas", 0),
        owner=reply.get("owner", ""),
        comment=reply.get("comment", ""),
    )


async def list_tables(s: Session, request: m.ListTablesRequest) -> m.ListTablesResponse:
    """List tables; the answer has no versions."""
    reply = await s.ask(w.LIST_TABLES, {"name_filter": request.name_filter or None})
    tables = [m.ListedTable(each["id"], each["name"], "", UNSTATED) for each in reply["tables"]]
    by_name = tuple(sorted(tables, key=lambda table: table.name))
    return m.ListTablesResponse(_meta(s), master_error(reply), by_name)


async def is_create_table_done(
    s: Session, request: m.IsCreateTableDoneRequest
) -> m.IsCreateTableDoneResponse:
    """Ask whether every tablet of a table runs."""

    async def look(which: Values) -> Reply:
        return await s.ask(w.IS_CREATE_TABLE_DONE, {"table": which})

    reply, ident = await _with_id(s, _table(request.table), look)
    done = reply.get("done", False)
    return m.IsCreateTableDoneResponse(_meta(s), master_error(reply), ident, done)


async def is_alter_table_done(
    s: Session, request: m.IsAlterTableDoneRequest
) -> m.IsAlterTableDoneResponse:
    """Ask whether every tablet of a table has applied the newest schema."""

    async def look(which: Values) -> Reply:
        return await s.ask(w.IS_ALTER_TABLE_DONE, {"table": which})

    reply, ident = await _with_id(s, _table(request.table), look)
    return m.IsAlterTableDoneResponse(
        _meta(s),
        master_error(reply),
        ident,
        reply.get("schema_version", UNSTATED),
        reply.get("done", False),
    )


async def get_table_locations(
    s: Session, request: m.GetTableLocationsRequest
) -> m.GetTableLocationsResponse:
    """Ask for the locations of a table's tablets."""

    async def look(which: Values) -> Reply:
        values: Values = {
            "table": which,
            "key_start": request.key_start or None,
            "key_end": request.key_end or None,
            "max_returned_locations": request.max_returned_locations,
            "replica_type_filter": ANY_REPLICA if request.any_replica else _VOTERS,
        }
        return await s.ask(w.GET_TABLE_LOCATIONS, values)

    reply, ident = await _with_id(s, _table(request.table), look)
    tablets = _unbounded([_located(s, tablet) for tablet in reply["tablets"]])
    for tablet in tablets if ident else ():
        remember(s.memory.tables, tablet.tablet_id, ident)
    return m.GetTableLocationsResponse(
        _meta(s), master_error(reply), ident, UNSTATED, tablets, reply.get("ttl_ms", 0)
    )


def states_ends(bounds: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether these bounds include the ends of the key space, as in Kudu 1.17 and later.

    With n hash buckets and no ranges, the first tablet then starts at bucket 0, and the last ends
    at n.
    """
    ends = tuple(bucket.to_bytes(4, "big") for bucket in (0, len(bounds)))
    return bool(bounds) and (bounds[0][0], bounds[-1][1]) == ends


def _unbounded(tablets: list[m.TabletLocations]) -> tuple[m.TabletLocations, ...]:
    bounds = [(tablet.partition.start, tablet.partition.end) for tablet in tablets]
    if states_ends(bounds):
        for place, end in ((0, {"start": b""}), (-1, {"end": b""})):
            partition = msgspec.structs.replace(tablets[place].partition, **end)
            tablets[place] = msgspec.structs.replace(tablets[place], partition=partition)
    return tuple(tablets)


# --- ids and versions -------------------------------------------------------------------------


async def _with_id(
    s: Session, table: Values, ask: Callable[[Values], Awaitable[Reply]], *, is_change: bool = False
) -> tuple[Reply, str]:
    if table.get("table_id"):
        return await ask(table), table["table_id"]
    for _ in range(_ROUNDS_MAX):
        look = s.ask(w.GET_TABLE_SCHEMA, {"table": table})
        seen = await (unsent(look) if is_change else look)
        if master_error(seen) is not None:
            break
        reply = await ask({**table, "table_id": seen["table_id"]})
        error = master_error(reply)
        if error is None or error.code is not m.MasterErrorCode.TABLE_NOT_FOUND:
            return reply, seen["table_id"] if error is None else ""
    return await ask(table), ""


async def version_of_name(s: Session, table: Values) -> Version | None:
    """Return the version of the table with this name, if the master has it. Raises `RpcError`."""
    seen = await s.ask(w.GET_TABLE_SCHEMA, {"table": table})
    return None if master_error(seen) is not None else await version_of_id(s, seen["table_id"])


async def version_of_id(s: Session, table_id: str) -> Version | None:
    """Return the version of the table with this id, if the master has it. Raises `RpcError`."""
    reply = await s.ask(w.IS_ALTER_TABLE_DONE, {"table": {"table_id": table_id}})
    if master_error(reply) is not None or "schema_version" not in reply:
        return None
    return Version(table_id, reply["schema_version"], reply.get("done", False))


# --- parts of messages ------------------------------------------------------------------------


def _meta(s: Session) -> m.Meta:
    return m.Meta(s.uuid)


def with_term(response: R, term: int) -> R:
    """Return the answer, marked as given in `term`."""
    return msgspec.structs.replace(response, meta=msgspec.structs.replace(response.meta, term=term))


def _table(which: m.TableIdentifier) -> Values:
    return {"table_id": which.table_id or None, "table_name": which.table_name or None}


def column_values(column: m.Column) -> Values:
    """Encode a column for a request, without its id, which servers refuse."""
    return {
        "name": column.name,
        "type": NUMBERS[column.type],
        "is_key": column.is_key,
        "is_nullable": column.is_nullable,
    }


def stored_schema(columns: Iterable[m.Column]) -> Values:
    """Encode the schema of a table for an answer, with the ids of columns."""
    return {"columns": [{"id": column.id, **column_values(column)} for column in columns]}


def _step(step: m.AlterStep) -> Values:
    match step.type:
        case m.StepType.ADD_COLUMN:
            assert step.column is not None, "only ADD_COLUMN has a column"
            part: Values = {"add_column": {"schema": column_values(step.column)}}
        case m.StepType.DROP_COLUMN:
            part = {"drop_column": {"name": step.name}}
        case m.StepType.RENAME_COLUMN:
            part = {"rename_column": {"old_name": step.name, "new_name": step.new_name}}
        case m.StepType.ADD_RANGE_PARTITION | m.StepType.DROP_RANGE_PARTITION:
            raise UsageError("this client of real Kudu adds and drops no ranges; use --target kudu")
    return {"type": int(step.type), **part}


def read_schema(schema: Values) -> m.Schema:
    """Decode a schema.

    Raises `WireFormatError` for a column without a name or with an unsupported type.
    """
    return m.Schema(tuple(map(_read_column, schema.get("columns", ()))))


def _read_column(column: Values) -> m.Column:
    if not column.keys() >= {"name", "type"}:
        raise WireFormatError(f"a column has only the fields {sorted(column)}")
    return m.Column(
        column.get("id", 0),
        column["name"],
        type_name(column["type"]),
        column.get("is_key", False),
        column.get("is_nullable", False),
    )


def _partition_schema(values: Values, schema: m.Schema) -> m.PartitionSchema:
    names = {column.id: column.name for column in schema.columns}

    def named(columns: list[Any]) -> tuple[str, ...]:
        return tuple(each.get("name") or names[each["id"]] for each in columns)

    hashes = values.get("hash_schema", [])
    if len(hashes) > 1:
        raise WireFormatError("the table has several levels of hash buckets; one is supported")
    ranges = named(values.get("range_schema", {}).get("columns", []))
    if not hashes:
        return m.PartitionSchema(range_columns=ranges)
    (first,) = hashes
    return m.PartitionSchema(
        first["num_buckets"], named(first["columns"]), ranges, murmur_seed=first.get("seed", 0)
    )


def _located(s: Session, tablet: Values) -> m.TabletLocations:
    part = tablet.get("partition", {})
    replicas = []
    for replica in tablet["replicas"]:
        info = replica["ts_info"]
        address = s.registered_name(info["uuid"], info)
        role = ROLES.get(replica.get("role", 0), "UNKNOWN_ROLE")
        kind = "NON_VOTER" if role == "LEARNER" else "VOTER"
        replicas.append(m.ReplicaLocation(info["uuid"], address, role, kind))
    partition = m.Partition(part.get("start", b""), part.get("end", b""))
    return m.TabletLocations(tablet["tablet_id"], partition, tuple(replicas))
