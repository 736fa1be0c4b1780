"""The metastore's calls and exceptions, under the names in Hive's Thrift interface.

A call is a struct whose tag is the Thrift method's name. Its answer is a `Reply`. Calls pass and
return complete tables. An alter replaces the table, and renames it if the new table has another
name (`hive_metastore.thrift`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

ALREADY_EXISTS: Final = "AlreadyExistsException"
NO_SUCH_OBJECT: Final = "NoSuchObjectException"
INVALID_OPERATION: Final = "InvalidOperationException"
INVALID_OBJECT: Final = "InvalidObjectException"
META: Final = "MetaException"
INVALID_TOKEN: Final = "InvalidToken"  # noqa: S105 - the name of an exception
ACCESS_CONTROL: Final = "AccessControlException"
"""A Hadoop exception, like `INVALID_TOKEN`. Real metastores report a `META` instead, or hang up."""
REFUSALS: Final = (
    ALREADY_EXISTS,
    NO_SUCH_OBJECT,
    INVALID_OPERATION,
    INVALID_OBJECT,
    INVALID_TOKEN,
    ACCESS_CONTROL,
)
"""Exceptions that prove that a call had no effect. A `META` proves nothing."""


class MetastoreError(Exception):
    """An exception of the metastore; `kind` is its name in Thrift."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


Context = dict[str, str] | msgspec.UnsetType
"""The environment context of a change, which is unset if it is empty."""


class MetaTable(msgspec.Struct, frozen=True):
    """A table, reduced to the fields that the harness uses.

    `ident` is the id of the table's row, and `directory` says whether the table's directory exists.
    A metastore ignores both fields in a request.
    """

    database: str
    name: str
    columns: tuple[str, ...] = ()
    parameters: dict[str, str] = {}
    ident: int | None = None
    directory: bool = True

    @property
    def full_name(self) -> str:
        """The qualified name, `database.name`."""
        return f"{self.database}.{self.name}"


class Event(msgspec.Struct, frozen=True):
    """An entry of the notification log. Its time is in ms, while Hive's interface has seconds."""

    ident: int
    time_ms: int
    kind: str  # CREATE_TABLE, ALTER_TABLE, DROP_TABLE
    before: MetaTable | None
    after: MetaTable | None


class GetStatus(msgspec.Struct, frozen=True, tag="getStatus"):
    """Ask whether the metastore is alive; the answer is "ALIVE"."""


class GetAllDatabases(msgspec.Struct, frozen=True, tag="get_all_databases"):
    """Ask for the names of all databases, sorted."""


class CreateDatabase(msgspec.Struct, frozen=True, tag="create_database"):
    """Create a database. The call is refused if the database exists."""

    name: str


class DropDatabase(msgspec.Struct, frozen=True, tag="drop_database"):
    """Drop a database. The call is refused if the database does not exist or still has tables."""

    name: str


class CreateTable(msgspec.Struct, frozen=True, tag="create_table_with_environment_context"):
    """Create a table. The call is refused if the table exists.

    In the profile `strict`, the environment context carries the `request_id`. `context` is the rest
    of the environment context, which Kudu's plug-in reads (`metastore.kudu_rules`).
    """

    table: MetaTable
    request_id: str = ""
    context: Context = msgspec.UNSET


class AlterTable(msgspec.Struct, frozen=True, tag="alter_table_with_environment_context"):
    """Replace the table `database.name` with `table`. The new table may have another name."""

    database: str
    name: str
    table: MetaTable
    request_id: str = ""
    context: Context = msgspec.UNSET


class DropTable(msgspec.Struct, frozen=True, tag="drop_table_with_environment_context"):
    """Drop a table. The call is refused if the table does not exist."""

    database: str
    name: str
    request_id: str = ""
    context: Context = msgspec.UNSET


class GetTable(msgspec.Struct, frozen=True, tag="get_table_req"):
    """Ask for one table. The call is refused if the table does not exist."""

    database: str
    name: str


class GetAllTables(msgspec.Struct, frozen=True, tag="get_all_tables"):
    """Ask for the names of a database's tables, sorted."""

    database: str


class GetTableMeta(msgspec.Struct, frozen=True, tag="get_table_meta"):
    """Ask for the sorted list of all tables of all databases, each as `[database, name]`."""


class GetTableObjects(msgspec.Struct, frozen=True, tag="get_table_objects_by_name"):
    """Ask for the tables `names`. The answer omits tables that do not exist."""

    database: str
    names: tuple[str, ...]


class GetCurrentEventId(msgspec.Struct, frozen=True, tag="get_current_notificationEventId"):
    """Ask for the id of the newest event in the notification log."""


class GetNextEvents(msgspec.Struct, frozen=True, tag="get_next_notification"):
    """Ask for at most `max_events` events after the id `last_event`, in order."""

    last_event: int
    max_events: int


class GetEventsCount(msgspec.Struct, frozen=True, tag="get_notification_events_count"):
    """Ask for the number of events after the id `from_event`."""

    from_event: int


class GetDelegationToken(msgspec.Struct, frozen=True, tag="get_delegation_token"):
    """Ask for a new delegation token; the answer is the token's text."""

    owner: str
    renewer: str


class RenewDelegationToken(msgspec.Struct, frozen=True, tag="renew_delegation_token"):
    """Renew a token as a Kerberos `user`; the answer is its new expiry in ms since the epoch."""

    token: str
    user: str


class CancelDelegationToken(msgspec.Struct, frozen=True, tag="cancel_delegation_token"):
    """Cancel a token. If the token does not exist, the call succeeds as well."""

    token: str


class Authenticate(msgspec.Struct, frozen=True, tag="sasl_digest"):
    """Open a connection with a token; the answer is the token's owner."""

    token: str


TokenCall = GetDelegationToken | RenewDelegationToken | CancelDelegationToken | Authenticate
ApiCall = (
    GetStatus
    | GetAllDatabases
    | CreateDatabase
    | DropDatabase
    | CreateTable
    | AlterTable
    | DropTable
    | GetTable
    | GetAllTables
    | GetTableMeta
    | GetTableObjects
    | GetCurrentEventId
    | GetNextEvents
    | GetEventsCount
    | TokenCall
)


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a call: its result, or the name and message of its exception."""

    result: Any = None
    error: str = ""
    message: str = ""
