"""Translates calls of `targets.hive.api` into Hive 4's Thrift requests, and the answers back.

The structs come from `pymetastore`, which generates them from Hive's own IDL. All tables are
created as views, because the workloads only need metadata. Hive stores a view with the same code as
a table, but creates no directory for it, and the metastores have no shared file system for
directories.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift import TSerialization
from thrift.protocol.TJSONProtocol import TJSONProtocolFactory
from thrift.Thrift import TException

from targets.apache_hive.tokens import read_hadoop, read_text
from targets.hive import api
from targets.hive.metastore.kudu_rules import is_kudu

_OWNER: Final = "harness"
_TEXT: Final = "select 1"

_REFUSED: Final = {
    "token does not exist": api.INVALID_TOKEN,
    "tried to renew an expired token": api.INVALID_TOKEN,
    "tries to renew a token": api.ACCESS_CONTROL,
    "tried to renew a token": api.ACCESS_CONTROL,
    "is trying to renew a token": api.ACCESS_CONTROL,
}
"""The Hadoop exceptions behind a MetaException, by phrases of its message."""


class Exchange(NamedTuple):
    """A Thrift call: method, arguments, the struct of the answer, and a reader of that struct."""

    method: str
    arguments: Any
    result: type[Any]
    read: Callable[[Any], Any]


def _nothing(answer: Any) -> None:
    del answer


def _exchange(method: str, read: Callable[[Any], Any] = _nothing, **arguments: Any) -> Exchange:
    return Exchange(
        method,
        getattr(ThriftHiveMetastore, f"{method}_args")(**arguments),
        getattr(ThriftHiveMetastore, f"{method}_result"),
        read,
    )


class KuduEntry(api.MetaTable, frozen=True):
    """The entry of a Kudu table, together with the metastore's complete struct.

    `MetaTable` leaves out some fields, such as the types of columns. A change through Hive must
    preserve these fields.
    """

    row: Any = None


def _written(table: api.MetaTable) -> Any:
    if not isinstance(table, KuduEntry):
        return _view(table)
    row = copy.deepcopy(table.row)
    row.dbName, row.tableName = table.database, table.name
    row.parameters = dict(table.parameters)
    return row


def _view(table: api.MetaTable) -> Any:
    columns = [ttypes.FieldSchema(name, "string", "") for name in table.columns]
    return ttypes.Table(
        tableName=table.name,
        dbName=table.database,
        owner=_OWNER,
        sd=ttypes.StorageDescriptor(
            cols=columns,
            compressed=False,
            numBuckets=-1,
            serdeInfo=ttypes.SerDeInfo(parameters={}),
            bucketCols=[],
            sortCols=[],
            parameters={},
        ),
        partitionKeys=[],
        parameters=dict(table.parameters),
        viewOriginalText=_TEXT,
        viewExpandedText=_TEXT,
        tableType="VIRTUAL_VIEW",
    )


def _table(found: Any) -> api.MetaTable:
    columns = tuple(column.name for column in found.sd.cols or ())
    return api.MetaTable(found.dbName, found.tableName, columns, dict(found.parameters))


def _whole(found: Any) -> api.MetaTable:
    """Convert the answer to a get into an entry that a client can change and write back."""
    table = _table(found)
    return KuduEntry(**msgspec.structs.asdict(table), row=found) if is_kudu(table) else table


def _names(metas: Any) -> list[tuple[str, str]]:
    return sorted((meta.dbName, meta.tableName) for meta in metas)


def event_of(ident: int, time_s: int, kind: str, message: str) -> api.Event:
    """Decode an event from Hive's JSON message, in which tables are in Thrift's JSON format."""
    event = msgspec.json.decode(message)
    kinds = {"CREATE_TABLE": (None, "tableObjJson"), "DROP_TABLE": ("tableObjJson", None)}
    sides = kinds.get(kind, ("tableObjBeforeJson", "tableObjAfterJson"))
    before, after = (None if name is None else _table_of(event[name]) for name in sides)
    return api.Event(ident, time_s * 1000, kind, before, after)


def _table_of(text: str) -> api.MetaTable:
    table = TSerialization.deserialize(ttypes.Table(), text.encode(), TJSONProtocolFactory())
    return _table(table)


def _events(answer: Any) -> list[api.Event]:
    return [
        event_of(each.eventId, each.eventTime, each.eventType, each.message)
        for each in answer.events
    ]


def _context() -> Any:
    return ttypes.EnvironmentContext(properties={})


def greeting() -> Exchange:
    """Return the request `set_ugi`, with the user's name. It is allowed once per connection."""
    return _exchange("set_ugi", user_name=_OWNER, group_names=[])


def exchange_for(call: api.ApiCall) -> Exchange:
    """Return the Thrift request for a call, and the reader of its answer."""
    match call:
        case api.CreateDatabase(name):
            return _exchange("create_database", database=ttypes.Database(name, ""))
        case api.GetAllDatabases():
            return _exchange("get_all_databases", sorted)
        case api.CreateTable(table):
            return _exchange(
                "create_table_with_environment_context",
                tbl=_view(table),
                environment_context=_context(),
            )
        case api.AlterTable(database, name, table):
            return _exchange(
                "alter_table_with_environment_context",
                dbname=database,
                tbl_name=name,
                new_tbl=_written(table),
                environment_context=_context(),
            )
        case api.DropTable(database, name):
            return _exchange(
                "drop_table_with_environment_context",
                dbname=database,
                name=name,
                deleteData=True,
                environment_context=_context(),
            )
        case api.GetTable(database, name):
            request = ttypes.GetTableRequest(database, name)
            return _exchange("get_table_req", lambda found: _whole(found.table), req=request)
        case api.GetTableObjects(database, names):
            wanted = ttypes.GetTablesRequest(database, list(names))
            return _exchange(
                "get_table_objects_by_name_req",
                lambda found: [*map(_table, found.tables)],
                req=wanted,
            )
        case api.GetTableMeta():
            return _exchange("get_table_meta", _names, db_patterns="*", tbl_patterns="*")
        case api.GetCurrentEventId():
            return _exchange("get_current_notificationEventId", lambda found: found.eventId)
        case api.GetDelegationToken(owner, renewer):
            return _exchange(
                "get_delegation_token",
                lambda found: read_hadoop(found).text,
                token_owner=owner,
                renewer_kerberos_principal_name=renewer,
            )
        case api.RenewDelegationToken(token):
            return _exchange("renew_delegation_token", int, token_str_form=read_text(token).hadoop)
        case api.CancelDelegationToken(token):
            return _exchange("cancel_delegation_token", token_str_form=read_text(token).hadoop)
        case api.GetNextEvents(last, most):
            request = ttypes.NotificationEventRequest(last, most)
            return _exchange("get_next_notification", _events, rqst=request)
    raise TypeError(f"this client makes no call of type {type(call).__name__}")


def error_of(answer: Any) -> api.MetastoreError | None:
    """Return the exception in the answer to a call, or `None` if the call succeeded."""
    fields: Mapping[str, Any] = vars(answer)
    for value in fields.values():
        if isinstance(value, TException):
            message = str(getattr(value, "message", None) or "")
            kind = type(value).__name__
            if kind == api.META:
                refusals = [refusal for text, refusal in _REFUSED.items() if text in message]
                kind = refusals[0] if refusals else kind
            return api.MetastoreError(kind, message)
    return None
