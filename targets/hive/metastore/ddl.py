"""Changes of tables, each in one transaction, in the steps of Hive's `ObjectStore`.

A create checks and inserts; the unique key decides a race. A rename reads the table, checks the new
name and updates. A drop reads and deletes. In the profile `strict`, all transactions are
serializable. Read committed would also be correct if a change locked its rows and counted the rows
that it changed, but Hive does neither. A change is refused before anything is written.
"""

from __future__ import annotations

from typing import Final

from targets.hive.api import (
    ALREADY_EXISTS,
    INVALID_OBJECT,
    INVALID_OPERATION,
    META,
    NO_SUCH_OBJECT,
    AlterTable,
    CreateTable,
    DropTable,
    MetastoreError,
    MetaTable,
)
from targets.hive.bugs import Bug
from targets.hive.metastore import kudu_rules
from targets.hive.metastore.events import Events
from targets.hive.metastore.reads import has_database, parameters_of, read_table
from targets.hive.metastore.warehouse import make_directory, move_directory, remove_directory
from targets.hive.sql.protocol import Isolation, Row, Session, UniqueKeyError, equal
from targets.hive.sql.schema import PARAMETERS, TABLES

Changed = tuple[MetaTable | None, MetaTable | None]
"""A table before and after a change; `None` if it does not exist."""

_LAX_DROP: Final = frozenset({Bug.DROP_DROP, Bug.DROP_RENAME})
_READ_COMMITTED: Final = frozenset({Bug.READ_COMMITTED, Bug.HIVE_16886})


class Ddl:
    """Creates, alters and drops tables, each within the caller's transaction."""

    def __init__(self, events: Events, bugs: frozenset[Bug], *, kudu: bool = False) -> None:
        """Apply changes with the defects in `bugs`. With `kudu`, apply Kudu's rules too."""
        self._events = events
        self._bugs = bugs
        self._kudu = kudu
        self._with_directories = Bug.HIVE_21640 not in bugs

    def isolation(self, call: CreateTable | AlterTable | DropTable) -> Isolation:
        lax = _READ_COMMITTED | _LAX_DROP if isinstance(call, DropTable) else _READ_COMMITTED
        return Isolation.READ_COMMITTED if lax & self._bugs else Isolation.SERIALIZABLE

    async def run(
        self, session: Session, call: CreateTable | AlterTable | DropTable
    ) -> Changed | None:
        """Run one change. Raises `MetastoreError`.

        Returns the table before and after the change if the caller must write the event.
        """
        match call:
            case CreateTable():
                if self._kudu:
                    kudu_rules.check_create(call.table, call.context)
                changed = await self._create(session, call.table)
            case AlterTable():
                changed = await self._alter(session, call)
            case DropTable():
                changed = await self._drop(session, call)
        if Bug.EVENT_AFTER_COMMIT in self._bugs:
            return changed
        await self._events.add(session, *changed)
        return None

    async def check_free(self, session: Session, table: MetaTable) -> None:
        if await read_table(session, table.database, table.name) is not None:
            raise MetastoreError(ALREADY_EXISTS, f"Table {table.full_name} already exists")

    async def _create(self, session: Session, table: MetaTable) -> Changed:
        if not await has_database(session, table.database):
            raise MetastoreError(INVALID_OBJECT, f"No such database {table.database}")
        checked_before = Bug.HIVE_26016 in self._bugs
        if not checked_before:
            await self.check_free(session, table)
        try:
            ident = await session.insert(TABLES, _row_of(table))
        except UniqueKeyError as error:
            if checked_before:
                raise MetastoreError(META, f"JDODataStoreException: {error}") from error
            message = f"Table {table.full_name} already exists"
            raise MetastoreError(ALREADY_EXISTS, message) from error
        assert ident is not None, "tables have a serial column"
        await _insert_parameters(session, ident, table)
        if self._with_directories:
            await make_directory(session, table.full_name)
        return None, table

    async def undo_create(self, session: Session, table: MetaTable) -> None:
        """Drop the table that made a create fail, as Hive's faulty roll-back does (HIVE-15424)."""
        existing = await read_table(session, table.database, table.name)
        if existing is not None and existing.ident is not None:
            await _delete(session, existing.ident)
            await remove_directory(session, existing.full_name)
            await self._events.add(session, existing, None)

    async def _alter(self, session: Session, call: AlterTable) -> Changed:
        before = await read_table(session, call.database, call.name, for_update=True)
        old, table = f"{call.database}.{call.name}", call.table
        if before is None or before.ident is None:
            raise MetastoreError(INVALID_OPERATION, f"table {old} doesn't exist")
        if self._kudu:
            kudu_rules.check_alter(before, table, call.context)
        if table.full_name != old:
            if not await has_database(session, table.database):
                message = f"Unable to change partition or table. Database {table.database}"
                raise MetastoreError(INVALID_OPERATION, f"{message} does not exist")
            if await read_table(session, table.database, table.name) is not None:
                raise MetastoreError(INVALID_OPERATION, f"new table {table.full_name} exists")
        try:
            await session.update(TABLES, _row_of(table), equal(TBL_ID=before.ident))
        except UniqueKeyError as error:
            message = f"new table {table.full_name} already exists"
            raise MetastoreError(INVALID_OPERATION, message) from error
        await session.delete(PARAMETERS, equal(TBL_ID=before.ident))
        await _insert_parameters(session, before.ident, table)
        if table.full_name != old:
            await move_directory(session, old, table.full_name)
        return before, table

    async def _drop(self, session: Session, call: DropTable) -> Changed:
        lax = bool(_LAX_DROP & self._bugs)
        table = await read_table(session, call.database, call.name, for_update=not lax)
        message = f"{call.database}.{call.name} table not found"
        if table is None or table.ident is None:
            raise MetastoreError(NO_SUCH_OBJECT, message)
        if self._kudu:
            kudu_rules.check_drop(table, call.context)
        where = equal(TBL_ID=table.ident)
        if Bug.DROP_RENAME not in self._bugs:
            where += equal(DB_NAME=call.database, TBL_NAME=call.name)
        count = await session.delete(TABLES, where)
        if count == 0:
            # A drop can miss its row only if it read the row without a lock.
            renamed = await session.select(TABLES, equal(TBL_ID=table.ident))
            if renamed or Bug.DROP_DROP not in self._bugs:
                raise MetastoreError(NO_SUCH_OBJECT, message)
        else:
            await session.delete(PARAMETERS, equal(TBL_ID=table.ident))
            # With DROP-RENAME, the table may have a new name, and another table may use this path.
            if self._with_directories and Bug.DROP_RENAME not in self._bugs:
                await remove_directory(session, table.full_name)
        return table, None


def _row_of(table: MetaTable) -> Row:
    return {
        "DB_NAME": table.database,
        "TBL_NAME": table.name,
        "COLUMNS": ",".join(table.columns),
    }


async def _insert_parameters(session: Session, ident: int, table: MetaTable) -> None:
    for row in parameters_of(ident, table):
        await session.insert(PARAMETERS, row)


async def _delete(session: Session, ident: int) -> None:
    await session.delete(TABLES, equal(TBL_ID=ident))
    await session.delete(PARAMETERS, equal(TBL_ID=ident))
