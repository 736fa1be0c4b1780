"""Kudu's tables as entries in the metastore: their names, parameters and calls.

Names have the form `database.table`, in lower case. A call of a master identifies the master and
the table in its environment context, which Kudu's plug-in in the metastore checks
(`targets.hive.metastore.kudu_rules`).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from targets.hive import api
from targets.hive.metastore import kudu_rules as rules
from targets.kudu.hms.client import HaClient, HmsError
from targets.kudu.master.catalog.records import TableRecord

_NAME: Final = re.compile(r"([a-z0-9_/]+)\.([a-z0-9_/]+)")
RENAMED_BY: Final = "harness.renamed_by"
"""A parameter, not in Kudu, that ties an event of a rename to the request for the rename."""
_EVENTS: Final = list[api.Event]
_TABLES: Final = list[api.MetaTable]


def split_name(name: str) -> tuple[str, str] | None:
    """Split a name into database and table; `None` if Hive does not allow the name."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], match[2])


def bad_hms_name(name: str) -> str | None:
    """Return the reason why Hive does not allow the table name `name`; `None` if it does."""
    if split_name(name) is not None:
        return None
    return (
        f"the table name {name!r} is not valid in Hive; write it as database.table, with letters, "
        "digits, / and _ only"
    )


def entry_of(
    table: TableRecord, cluster_id: str, addresses: Sequence[str], old: api.MetaTable | None = None
) -> api.MetaTable:
    """Build the entry of a table whose name Hive allows; keep `old`'s other parameters."""
    names = split_name(table.name)
    assert names is not None, f"{table.name!r} should have been refused"
    keys = {
        rules.HANDLER_KEY: rules.HANDLER,
        rules.TABLE_ID: table.id,
        rules.CLUSTER_ID: cluster_id,
        rules.TABLE_NAME: table.name,
        rules.MASTER_ADDRESSES: ",".join(addresses),
        rules.EXTERNAL: "TRUE",
        rules.PURGE: "TRUE",
        "comment": table.comment,
    }
    columns = tuple(column.name for column in table.schema.columns)
    others = {} if old is None else old.parameters
    return api.MetaTable(*names, columns, {**others, **keys})


async def tables_of(ask: Callable[[api.ApiCall], Awaitable[Any]]) -> list[api.MetaTable]:
    """Return all tables of the metastore behind `ask`. Each database is read as one snapshot."""
    by_database: dict[str, list[str]] = {}
    for database, name in await ask(api.GetTableMeta()):
        by_database.setdefault(database, []).append(name)
    tables: list[api.MetaTable] = []
    for database, short in by_database.items():
        raw = await ask(api.GetTableObjects(database, tuple(short)))
        tables += msgspec.convert(raw, _TABLES)
    return tables


class HmsCatalog:
    """A master's calls to the metastore. All of them raise `HmsError`.

    `cluster_id` and `addresses` are functions; `addresses` returns the masters that entries name.
    Changes carry request ids, so that a resent change takes effect once.
    """

    def __init__(
        self,
        client: HaClient,
        *,
        cluster_id: Callable[[], str],
        addresses: Callable[[], Sequence[str]],
        new_id: Callable[[], str],
    ) -> None:
        self._client = client
        self._cluster_id = cluster_id
        self.addresses = addresses
        self._new_id = new_id

    # --- changes -----------------------------------------------------------------------------

    async def create(self, table: TableRecord, request_id: str) -> None:
        """Create the entry of a table. Without a `request_id`, a resent call may run twice."""
        entry = entry_of(table, self._cluster_id(), self.addresses())
        call = api.CreateTable(entry, request_id, {rules.MASTER_EVENT: "true"})
        await self._client.call(call, once=bool(request_id))

    async def create_again(self, table: TableRecord) -> None:
        """Create the entry of a table that had an entry before."""
        await self.create(table, self._new_id())

    async def drop(self, name: str, table_id: str) -> None:
        """Drop the entry `name`, if it belongs to the table with the id `table_id`."""
        context = {rules.MASTER_EVENT: "true", rules.TABLE_ID: table_id}
        call = api.DropTable(*_split(name), self._new_id(), context)
        await self._client.call(call)

    async def alter(self, name: str, table: TableRecord, *, marker: str = "") -> bool:
        """Overwrite the entry `name` with the state of `table`, if the entry belongs to `table`.

        Return whether such an entry exists. If `table` has another name, the entry is renamed, and
        `marker` identifies the event of the rename.
        """
        database, short = _split(name)
        try:
            raw = await self._client.call(api.GetTable(database, short))
        except HmsError as error:
            if error.kind == api.NO_SUCH_OBJECT:
                return False
            raise HmsError(error.kind, str(error), maybe_done=False) from error
        old = msgspec.convert(raw, api.MetaTable)
        if old.parameters.get(rules.TABLE_ID) != table.id:
            return False
        entry = entry_of(table, self._cluster_id(), self.addresses(), old)
        if entry == msgspec.structs.replace(old, ident=None, directory=entry.directory):
            return True
        if marker:
            entry.parameters[RENAMED_BY] = marker
        context = {rules.MASTER_EVENT: "true"}
        call = api.AlterTable(database, short, entry, self._new_id(), context)
        await self._client.call(call)
        return True

    async def overwrite(self, old: api.MetaTable, table: TableRecord) -> None:
        """Overwrite `old` with the state of `table`, even if their ids differ; only for tools."""
        entry = entry_of(table, self._cluster_id(), self.addresses(), old)
        context = {rules.MASTER_EVENT: "true", rules.CHECK_ID: "false"}
        call = api.AlterTable(old.database, old.name, entry, self._new_id(), context)
        await self._client.call(call)

    async def downgrade(self, old: api.MetaTable) -> None:
        """Convert an entry to the older format, from before Kudu synchronized with Hive."""
        lost = (rules.TABLE_ID, rules.CLUSTER_ID, rules.PURGE)
        kept = {key: value for key, value in old.parameters.items() if key not in lost}
        kept[rules.HANDLER_KEY] = rules.LEGACY_HANDLER
        entry = msgspec.structs.replace(old, parameters=kept)
        context = {rules.MASTER_EVENT: "true", rules.CHECK_ID: "false"}
        call = api.AlterTable(old.database, old.name, entry, self._new_id(), context)
        await self._client.call(call)

    # --- reads -------------------------------------------------------------------------------

    async def events_after(self, last: int, most: int) -> list[api.Event]:
        raw = await self._client.call(api.GetNextEvents(last, most))
        return msgspec.convert(raw, _EVENTS)

    async def current_event(self) -> int:
        return int(await self._client.call(api.GetCurrentEventId()))

    async def entries(self) -> list[api.MetaTable]:
        """Return the entries of all synchronized tables of this cluster."""
        return [table for table in await self.all_entries() if self.is_ours(table)]

    async def all_entries(self) -> list[api.MetaTable]:
        """Return all tables of the metastore; each database is read as one snapshot."""
        return await tables_of(self._client.call)

    def is_ours(self, table: api.MetaTable) -> bool:
        """Whether the entry is a synchronized table of this cluster."""
        parameters: Mapping[str, str] = table.parameters
        ours = parameters.get(rules.CLUSTER_ID) == self._cluster_id()
        return rules.is_synchronized(table) and ours


def _split(name: str) -> tuple[str, str]:
    names = split_name(name)
    if names is None:
        message = f"{name!r} is not valid in Hive"
        raise HmsError(api.INVALID_OBJECT, message, maybe_done=False)
    return names
