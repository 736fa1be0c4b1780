"""The metastore's calls and exceptions, under the names of Hive's Thrift interface.

A call is a struct whose tag is the method name. The answer is a `Reply`. Calls pass and return
whole tables: an alter replaces the table, and renames it if the new table has another name
(`hive_metastore.thrift`).
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
"""Hadoop's exceptions about tokens. Thrift wraps both in a `META`, or ends the connection."""
REFUSALS: Final = (
    ALREADY_EXISTS,
    NO_SUCH_OBJECT,
    INVALID_OPERATION,
    INVALID_OBJECT,
    INVALID_TOKEN,
    ACCESS_CONTROL,
)
"""Exceptions that prove that nothing was done; a `META` proves nothing."""


class MetastoreError(Exception):
    """An exception of the metastore; `kind` is its name in Thrift."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


Context = dict[str, str] | msgspec.UnsetType
"""The environment context of a change; unset if it is empty."""


class MetaTable(msgspec.Struct, frozen=True):
    """A table, reduced to the fields that the harness uses.

    `ident` is the id of the table's row, and `directory` tells whether the table's directory
    exists. A metastore ignores both in a request.
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
    """An entry of the notification log. Its time is in ms; Hive's is in seconds."""

    ident: int
    time_ms: int
    kind: str  # CREATE_TABLE, ALTER_TABLE, DROP_TABLE
    before: MetaTable | None
    after: MetaTable | None


class GetStatus(msgspec.Struct, frozen=True, tag="getStatus"):
    """Answers "ALIVE"."""


class GetAllDatabases(msgspec.Struct, frozen=True, tag="get_all_databases"):
    """Answers the names of all databases, sorted."""


class CreateDatabase(msgspec.Struct, frozen=True, tag="create_database"):
    """Creates a database; refused if it exists."""

    name: str


class DropDatabase(msgspec.Struct, frozen=True, tag="drop_database"):
    """Drops a database; refused if it does not exist or still holds tables."""

    name: str


class CreateTable(msgspec.Struct, frozen=True, tag="create_table_with_environment_context"):
    """Creates a table; refused if it exists.

    In the profile `strict`, the environment context carries the `request_id`. `context` is the rest
    of the environment context, which rules of plug-ins read (`targets.hive.metastore.kudu_rules`).
    """

    table: MetaTable
    request_id: str = ""
    context: Context = msgspec.UNSET


class AlterTable(msgspec.Struct, frozen=True, tag="alter_table_with_environment_context"):
    """Replaces the table of this name by the new table, which may have another name."""

    database: str
    name: str
    table: MetaTable
    request_id: str = ""
    context: Context = msgspec.UNSET


class DropTable(msgspec.Struct, frozen=True, tag="drop_table_with_environment_context"):
    """Drops a table; refused if it does not exist."""

    database: str
    name: str
    request_id: str = ""
    context: Context = msgspec.UNSET


class GetTable(msgspec.Struct, frozen=True, tag="get_table_req"):
    """Answers the table."""

    database: str
    name: str


class GetAllTables(msgspec.Struct, frozen=True, tag="get_all_tables"):
    """Answers the names of a database's tables, sorted."""

    database: str


class GetTableMeta(msgspec.Struct, frozen=True, tag="get_table_meta"):
    """Answers [database, name] of all tables of all databases, sorted."""


class GetTableObjects(msgspec.Struct, frozen=True, tag="get_table_objects_by_name"):
    """Answers the complete tables of these names; absent tables are left out."""

    database: str
    names: tuple[str, ...]


class GetCurrentEventId(msgspec.Struct, frozen=True, tag="get_current_notificationEventId"):
    """Answers the id of the newest event."""


class GetNextEvents(msgspec.Struct, frozen=True, tag="get_next_notification"):
    """Answers events after `last_event`, in order, `max_events` at most."""

    last_event: int
    max_events: int


class GetEventsCount(msgspec.Struct, frozen=True, tag="get_notification_events_count"):
    """Answers the number of events after `from_event`."""

    from_event: int


class GetDelegationToken(msgspec.Struct, frozen=True, tag="get_delegation_token"):
    """Asks for a new delegation token; the answer is its text."""

    owner: str
    renewer: str


class RenewDelegationToken(msgspec.Struct, frozen=True, tag="renew_delegation_token"):
    """Answers the token's new expiry, in ms since the epoch. Kerberos authenticates the `user`."""

    token: str
    user: str


class CancelDelegationToken(msgspec.Struct, frozen=True, tag="cancel_delegation_token"):
    """Cancels a token. Never refused: cancelling an absent token succeeds."""

    token: str


class Authenticate(msgspec.Struct, frozen=True, tag="sasl_digest"):
    """Opens a connection with a token; answers the token's owner."""

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
    """The result of a call, or its exception."""

    result: Any = None
    error: str = ""
    message: str = ""
