"""Reads of tables and databases within the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from targets.hive.api import MetaTable
from targets.hive.sql.protocol import Row, Session, Where, equal
from targets.hive.sql.schema import DATABASES, PARAMETERS, TABLES


async def has_database(session: Session, name: str) -> bool:
    """Whether the database exists."""
    return bool(await session.select(DATABASES, equal(NAME=name)))


async def read_databases(session: Session) -> list[str]:
    """Return the names of all databases, sorted."""
    return sorted(str(row["NAME"]) for row in await session.select(DATABASES))


async def read_table(
    session: Session, database: str, name: str, *, for_update: bool = False
) -> MetaTable | None:
    """Return the table with this name, or `None`. With `for_update`, its row is locked."""
    where = equal(DB_NAME=database, TBL_NAME=name)
    for row in await session.select(TABLES, where, for_update=for_update):
        parameters = await session.select(PARAMETERS, equal(TBL_ID=row["TBL_ID"]))
        return _table_of(row, parameters)
    return None


async def read_names(session: Session, where: Where = ()) -> list[tuple[str, str]]:
    """Return the sorted pairs `(database, name)` of all tables that match `where`."""
    rows = await session.select(TABLES, where)
    return sorted((str(row["DB_NAME"]), str(row["TBL_NAME"])) for row in rows)


async def read_tables(session: Session) -> list[MetaTable]:
    """Return all tables of all databases, with columns and parameters."""
    rows = await session.select(TABLES)
    parameters: dict[object, list[Row]] = {}
    for row in await session.select(PARAMETERS):
        parameters.setdefault(row["TBL_ID"], []).append(row)
    return [_table_of(row, parameters.get(row["TBL_ID"], ())) for row in rows]


def _table_of(row: Row, parameters: Sequence[Row]) -> MetaTable:
    ident, columns = row["TBL_ID"], str(row["COLUMNS"])
    assert isinstance(ident, int), "ids are numbers"
    return MetaTable(
        str(row["DB_NAME"]),
        str(row["TBL_NAME"]),
        tuple(columns.split(",")) if columns else (),
        {str(row["PARAM_KEY"]): str(row["PARAM_VALUE"]) for row in parameters},
        ident,
    )


def parameters_of(ident: int, table: MetaTable) -> Iterator[Row]:
    """Yield a database row for each parameter of `table`, under the id `ident`."""
    for key, value in table.parameters.items():
        yield {"TBL_ID": ident, "PARAM_KEY": key, "PARAM_VALUE": value}
