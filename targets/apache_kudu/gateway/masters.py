"""Calls of Kudu's `MasterService`, as bundled masters answer them.

Kudu's clients compute the bucket of a row themselves, by Murmur2, so the gateway sets the
`murmur_seed` of each new table. They cannot use a hashed table that a bundled client has created,
because its hash is CRC-32.

Four features are not translated: ranges, several levels of hash buckets, defaults of columns, and
changes of a table's owner or comment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.ops import NS_PER_S
from targets.apache_kudu.gateway.errors import master_error, not_supported
from targets.apache_kudu.gateway.link import Handler, Link, Request
from targets.apache_kudu.wire import methods as w
from targets.apache_kudu.wire.members import MEMBER_NUMBERS
from targets.apache_kudu.wire.methods import Method
from targets.apache_kudu.wire.protobuf import Values, WireFormatError
from targets.apache_kudu.wire.tables import ANY_REPLICA, ROLE_NUMBERS, read_schema, stored_schema
from targets.kudu import messages as m

_FOLLOWER: Final = 0
_LOCATIONS: Final = 10
"""The number of tablets in an answer if the request names no number (`master.proto`)."""
_UNTRANSLATED: Final = ("new_extra_configs", "new_table_owner", "new_table_comment")


class _NotSupportedError(Exception):
    """Bundled masters do not support this request."""


# --- the cluster ------------------------------------------------------------------------------


async def _connect_to_master(link: Link, request: Request) -> Values:
    answer = await link.ask(m.ConnectToMasterRequest(), request)
    return master_error(answer) or {
        "role": ROLE_NUMBERS.get(answer.role, _FOLLOWER),
        "master_addresses": [link.host_port(address) for address in answer.master_addresses],
        "cluster_id": answer.cluster_id,
    }


async def _get_master_registration(link: Link, request: Request) -> Values:
    answer = await link.ask(m.GetMasterRegistrationRequest(), request)
    return {
        **(master_error(answer) or {}),
        "instance": {"uuid": answer.meta.master_uuid, "seqno": answer.start_ns},
        "registration": {
            "rpc_addresses": [link.host_port(link.address)],
            "software_version": answer.software_version,
            "start_time": answer.start_ns // NS_PER_S,
        },
        "role": ROLE_NUMBERS.get(answer.role, _FOLLOWER),
        "member_type": MEMBER_NUMBERS.get(answer.member_type, 0),
    }


# --- changes ----------------------------------------------------------------------------------


async def _create_table(link: Link, request: Request) -> Values:
    values = request.values
    try:
        schema = read_schema(values.get("schema", {}))
        partitioning = _read_partitioning(values, schema)
    except (_NotSupportedError, WireFormatError) as error:
        return not_supported(str(error))
    change = m.CreateTableRequest(
        values.get("name", ""),
        schema,
        partitioning,
        link.change_id(),
        num_replicas=values.get("num_replicas", -1),
        owner=values.get("owner", ""),
        comment=values.get("comment", ""),
    )
    answer = await link.ask(change, request)
    return master_error(answer) or {"table_id": answer.table_id}


def _read_partitioning(values: Values, schema: m.Schema) -> m.PartitionSchema:
    if values.get("range_bounds", {}).get("rows"):
        raise _NotSupportedError("ranges of tables")
    partitioning = values.get("partition_schema", {})
    ranged = partitioning.get("range_schema")
    # Without a range schema, the whole key forms the ranges (`PartitionSchema::FromPB`).
    ranges = _key_names(schema) if ranged is None else _names(ranged.get("columns", ()))
    hashes = partitioning.get("hash_schema", [])
    if len(hashes) > 1:
        raise _NotSupportedError(f"{len(hashes)} levels of hash buckets; one is supported")
    if not hashes:
        return m.PartitionSchema(range_columns=ranges)
    (level,) = hashes
    buckets, seed = level.get("num_buckets", 0), level.get("seed", 0)
    return m.PartitionSchema(buckets, _names(level["columns"]), ranges, murmur_seed=seed)


def _names(columns: Sequence[Values]) -> tuple[str, ...]:
    return tuple(column.get("name", "") for column in columns)


def _key_names(schema: m.Schema) -> tuple[str, ...]:
    return tuple(column.name for column in schema.columns if column.is_key)


async def _delete_table(link: Link, request: Request) -> Values:
    change = m.DeleteTableRequest(_table(request), link.change_id())
    return master_error(await link.ask(change, request)) or {}


async def _alter_table(link: Link, request: Request) -> Values:
    values = request.values
    unknown = [name for name in _UNTRANSLATED if values.get(name, []) != []]
    if unknown:
        return not_supported(f"an alter with {', '.join(unknown)}")
    try:
        steps = tuple(map(_step, values.get("steps", ())))
    except (_NotSupportedError, WireFormatError) as error:
        return not_supported(str(error))
    change = m.AlterTableRequest(
        _table(request),
        link.change_id(),
        steps,
        values.get("new_table_name"),
        values.get("num_replicas"),
    )
    answer = await link.ask(change, request)
    return master_error(answer) or {
        "schema_version": answer.schema_version,
        "table_id": answer.table_id,
    }


def _step(step: Values) -> m.AlterStep:
    match step:
        case {"add_column": {"schema": column}}:
            (added,) = read_schema({"columns": [column]}).columns
            return m.AlterStep(m.StepType.ADD_COLUMN, added)
        case {"drop_column": {"name": name}}:
            return m.AlterStep(m.StepType.DROP_COLUMN, name=name)
        case {"rename_column": {"old_name": name, "new_name": new_name}}:
            return m.AlterStep(m.StepType.RENAME_COLUMN, name=name, new_name=new_name)
    raise _NotSupportedError(f"a step of an alter with the type {step.get('type', 0)}")


# --- reads ------------------------------------------------------------------------------------


async def _is_create_table_done(link: Link, request: Request) -> Values:
    answer = await link.ask(m.IsCreateTableDoneRequest(_table(request)), request)
    return master_error(answer) or {"done": answer.done}


async def _is_alter_table_done(link: Link, request: Request) -> Values:
    answer = await link.ask(m.IsAlterTableDoneRequest(_table(request)), request)
    return master_error(answer) or {"schema_version": answer.schema_version, "done": answer.done}


async def _list_tables(link: Link, request: Request) -> Values:
    asked = m.ListTablesRequest(request.values.get("name_filter", ""))
    answer = await link.ask(asked, request)
    return master_error(answer) or {
        "tables": [{"id": table.id, "name": table.name} for table in answer.tables]
    }


async def _get_table_schema(link: Link, request: Request) -> Values:
    answer = await link.ask(m.GetTableSchemaRequest(_table(request)), request)
    error = master_error(answer)
    if error is not None:
        return error
    try:
        partitioning = _partitioning_values(answer.partition_schema, answer.schema)
    except _NotSupportedError as refusal:
        return not_supported(str(refusal))
    return {
        "schema": stored_schema(answer.schema.columns),
        "num_replicas": answer.num_replicas,
        "table_id": answer.table_id,
        "partition_schema": partitioning,
        "table_name": answer.name,
        "owner": answer.owner,
        "comment": answer.comment,
    }


def _partitioning_values(partitioning: m.PartitionSchema, schema: m.Schema) -> Values:
    ids = {column.name: column.id for column in schema.columns}

    def columns(names: Sequence[str]) -> list[Any]:
        return [{"id": ids[name]} for name in names]

    ranged = {"range_schema": {"columns": columns(partitioning.range_columns)}}
    buckets, seed = partitioning.num_hash_buckets, partitioning.murmur_seed
    if buckets == 1 and not partitioning.custom_ranges:
        return ranged
    if seed is None or partitioning.custom_ranges:
        raise _NotSupportedError(
            "the rows of this table are placed in a way that Kudu's clients do not know; create "
            "the table with one of them"
        )
    hashed = partitioning.hash_columns or _key_names(schema)
    return {
        "hash_schema": [{"columns": columns(hashed), "num_buckets": buckets, "seed": seed}],
        **ranged,
    }


async def _get_table_locations(link: Link, request: Request) -> Values:
    values = request.values
    asked = m.GetTableLocationsRequest(
        _table(request),
        values.get("key_start", b""),
        values.get("key_end", b""),
        values.get("max_returned_locations", _LOCATIONS),
        any_replica=values.get("replica_type_filter") == ANY_REPLICA,
    )
    answer = await link.ask(asked, request)
    return master_error(answer) or {
        "tablets": [
            {
                "tablet_id": tablet.tablet_id,
                "partition": {"start": tablet.partition.start, "end": tablet.partition.end},
                "replicas": [
                    {
                        "ts_info": {
                            "uuid": replica.ts_uuid,
                            "rpc_addresses": [link.host_port(replica.address, replica.ts_uuid)],
                        },
                        "role": ROLE_NUMBERS.get(replica.role, _FOLLOWER),
                    }
                    for replica in tablet.replicas
                ],
            }
            for tablet in answer.tablets
        ],
        "ttl_ms": answer.ttl_ms,
    }


def _table(request: Request) -> m.TableIdentifier:
    table = request.values.get("table", {})
    return m.TableIdentifier(table.get("table_id"), table.get("table_name"))


async def ping(link: Link, request: Request) -> Values:
    """Answer at once, because the handshake has proven that the server is alive."""
    del link, request
    return {}


MASTER_CALLS: Final[Mapping[Method, Handler]] = {
    w.CONNECT_TO_MASTER: _connect_to_master,
    w.GET_MASTER_REGISTRATION: _get_master_registration,
    w.CREATE_TABLE: _create_table,
    w.DELETE_TABLE: _delete_table,
    w.ALTER_TABLE: _alter_table,
    w.IS_CREATE_TABLE_DONE: _is_create_table_done,
    w.IS_ALTER_TABLE_DONE: _is_alter_table_done,
    w.LIST_TABLES: _list_tables,
    w.GET_TABLE_SCHEMA: _get_table_schema,
    w.GET_TABLE_LOCATIONS: _get_table_locations,
    w.PING_MASTER: ping,
}
