"""The tables of the metastore's database, by the names that Hive gives them.

Hive's own schema has some seventy tables (`metastore/scripts/upgrade/postgres`); these are the rows
that DDL, its notification log, its exactly-once bookkeeping and delegation tokens need. Two are
ours: `REQUESTS` are the request ids of the profile `strict`, `DIRS` is the file system
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
    """Columns in order; the database fills in `serial` if a statement omits it.

    `numbers` are the other columns with numbers; the rest are texts. No value is null.
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
    # EVENT_ID is not unique in Hive's schema either, or HIVE-16886 could not have happened.
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
    """The rows that `schematool -initSchema` creates, and the databases of the deployment."""
    return {
        DATABASES: [{"DB_ID": n, "NAME": name} for n, name in enumerate(databases, start=1)],
        SEQUENCE: [{"NNI_ID": 1, "NEXT_EVENT_ID": 1, "LAST_TIME": 0}],
    }
