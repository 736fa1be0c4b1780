"""The tables of the metastore's database, under Hive's names.

Hive's own schema has about seventy tables (`metastore/scripts/upgrade/postgres`). This schema has
only those for DDL, the notification log and delegation tokens. Two tables do not come from Hive:
`REQUESTS` has the request ids of the profile `strict`, and `DIRS` is the file system
(`metastore.warehouse`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

DATABASES: Final = "DBS"
TABLES: Final = "TBLS"
DIRECTORIES: Final = "DIRS"
PARAMETERS: Final = "TABLE_PARAMS"
LOG: Final = "NOTIFICATION_LOG"
SEQUENCE: Final = "NOTIFICATION_SEQUENCE"
REQUESTS: Final = "REQUESTS"
MASTER_KEYS: Final = "MASTER_KEYS"
TOKENS: Final = "DELEGATION_TOKENS"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its columns in order; the database numbers rows in the column `serial`.

    `numbers` are the other numeric columns. The remaining columns are strings. No value is null.
    """

    columns: tuple[str, ...]
    unique: tuple[tuple[str, ...], ...]
    serial: str = ""
    numbers: tuple[str, ...] = ()


SCHEMA: Final[Mapping[str, Table]] = {
    DATABASES: Table(("DB_ID", "NAME"), (("DB_ID",), ("NAME",)), "DB_ID"),
    TABLES: Table(
        ("TBL_ID", "DB_NAME", "TBL_NAME", "COLUMNS"),
        (("TBL_ID",), ("DB_NAME", "TBL_NAME")),
        "TBL_ID",
    ),
    DIRECTORIES: Table(("PATH",), (("PATH",),)),
    PARAMETERS: Table(
        ("TBL_ID", "PARAM_KEY", "PARAM_VALUE"), (("TBL_ID", "PARAM_KEY"),), numbers=("TBL_ID",)
    ),
    # As in Hive's schema, EVENT_ID is not unique, because equal ids can occur (HIVE-16886).
    LOG: Table(
        ("NL_ID", "EVENT_ID", "EVENT_TIME", "EVENT_TYPE", "DB_NAME", "TBL_NAME", "MESSAGE"),
        (("NL_ID",),),
        "NL_ID",
        numbers=("EVENT_ID", "EVENT_TIME"),
    ),
    SEQUENCE: Table(
        ("NNI_ID", "NEXT_EVENT_ID", "LAST_TIME"),
        (("NNI_ID",),),
        numbers=("NNI_ID", "NEXT_EVENT_ID", "LAST_TIME"),
    ),
    REQUESTS: Table(("REQUEST_ID", "MADE_AT", "OUTCOME"), (("REQUEST_ID",),), numbers=("MADE_AT",)),
    MASTER_KEYS: Table(("KEY_ID", "MASTER_KEY"), (("KEY_ID",),), "KEY_ID"),
    TOKENS: Table(("TOKEN_IDENT", "TOKEN"), (("TOKEN_IDENT",),)),
}


def first_rows(databases: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    """Return the initial rows of two tables: Hive's databases, and the sequence of event ids."""
    return {
        DATABASES: [{"DB_ID": n, "NAME": name} for n, name in enumerate(databases, start=1)],
        SEQUENCE: [{"NNI_ID": 1, "NEXT_EVENT_ID": 1, "LAST_TIME": 0}],
    }
