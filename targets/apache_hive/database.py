"""The node `db`: the PostgreSQL server of the real metastores, loaded with Hive's own schema.

The harness reads Hive's tables directly from this database.
"""

from __future__ import annotations

import asyncio
from pathlib import Path  # determinism: no node runs this module
from typing import Any, Final

from harness.cluster import NodeSpec
from harness.env import Address, ClientEnv
from targets.apache_hive.artefacts import HIVE4, Release
from targets.apache_hive.messages import event_of
from targets.hive.client.calls import NONCE, event_row
from targets.hive.sql.postgres import DATABASE, USER
from targets.hive.sql.server import server_node
from targets.hive.system import DATABASE_NODE, DATABASE_PORT

_CONNECTIONS_MAX: Final = 400
"""PostgreSQL's limit of connections. Each metastore pools about 40 of them."""
_IDLE_S: Final = 2.0
_TABLES: Final = """
select d."NAME" || '.' || t."TBL_NAME", t."TBL_ID", p."PARAM_VALUE"
from "TBLS" t join "DBS" d using ("DB_ID")
left join "TABLE_PARAMS" p on p."TBL_ID" = t."TBL_ID" and p."PARAM_KEY" = %s
order by 1, 2
"""
_ORPHANS: Final = """
select distinct "TBL_ID" from "TABLE_PARAMS"
where "TBL_ID" not in (select "TBL_ID" from "TBLS") order by 1
"""
_EVENTS: Final = """
select "EVENT_ID", "EVENT_TIME", "EVENT_TYPE", "MESSAGE" from "NOTIFICATION_LOG"
order by "EVENT_ID", "NL_ID"
"""
_SEQUENCE: Final = 'select "NEXT_EVENT_ID" from "NOTIFICATION_SEQUENCE"'


def database_node(place: Path, release: Release = HIVE4) -> NodeSpec:
    """Declare the node `db`. `place` is the folder of the release's artefacts.

    Hive's schema file has a semicolon and an empty line after each statement, as PostgreSQL's
    single-user mode requires. If a statement fails, the metastores refuse to start.
    """
    schema = (place / release.schema).read_text(encoding="utf-8")
    return server_node(
        DATABASE_NODE,
        DATABASE_PORT,
        f"{schema}\n\n",
        idle_s=_IDLE_S,
        connections_max=_CONNECTIONS_MAX,
    )


async def read_rows(env: ClientEnv, *, timeout_s: float) -> dict[str, Any] | None:
    """Return one snapshot of Hive's tables for `targets.hive.system`; `None` if the read fails."""
    import psycopg

    host, port = env.endpoint(Address(DATABASE_NODE, DATABASE_PORT))
    try:
        async with asyncio.timeout(timeout_s):
            connection = await psycopg.AsyncConnection.connect(
                host=host, port=port, dbname=DATABASE, user=USER
            )
            async with connection:
                await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
                tables = await (await connection.execute(_TABLES, (NONCE,))).fetchall()
                orphans = await (await connection.execute(_ORPHANS)).fetchall()
                events = await (await connection.execute(_EVENTS)).fetchall()
                sequence = await (await connection.execute(_SEQUENCE)).fetchall()
    except (TimeoutError, psycopg.Error, OSError):
        return None
    if not sequence:
        return None  # the schema is not loaded yet
    return {
        "tables": [list(row) for row in tables],
        "orphans": [row[0] for row in orphans],
        "events": [event_row(event_of(*row)) for row in events],
        "next_event": sequence[0][0],
    }
