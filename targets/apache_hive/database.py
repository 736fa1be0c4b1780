"""PostgreSQL 15 as the node `db`, with the schema that Hive's release brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import psycopg

from harness.cluster import NodeSpec, ReadyCommand
from harness.env import Address, ClientEnv

__all__ = ["DATABASE_NODE", "DATABASE_PORT", "NAME", "USER", "database_spec", "read_rows"]

DATABASE_NODE: Final = "db"
DATABASE_PORT: Final = 5432
NAME: Final = "metastore"
USER: Final = "postgres"
_SCHEMA: Final = "hive/scripts/metastore/upgrade/postgres/hive-schema-4.0.0.postgres.sql"
_BIN: Final = "/usr/lib/postgresql/15/bin"
_CONFIGURATION: Final = f"""
listen_addresses = '{{host}}'
port = {{port:{DATABASE_PORT}}}
unix_socket_directories = ''
hba_file = '{{files}}/pg_hba.conf'
shared_buffers = 32MB
dynamic_shared_memory_type = mmap
max_connections = 400
idle_in_transaction_session_timeout = 2s
"""
"""Each metastore has pools of some 40 connections. One that is paused in the middle of a transaction
would stop the other for as long without the last line."""
_LOAD: Final = (
    f"echo 'create database {NAME};' | {_BIN}/postgres --single -D {{data}}/pg postgres && "
    # A command ends where a semicolon is followed by two newlines (postgres(1), -j).
    f"""(cat {{files}}/schema.sql; printf '\\n\\nselect * from "VERSION";\\n\\n') | """
    f"{_BIN}/postgres --single -j -D {{data}}/pg {NAME} | grep -F 'SCHEMA_VERSION = \"4.0.0\"'"
)


def database_spec(place: Path) -> NodeSpec:
    """The node; `place` is where the artefacts are."""
    schema = (place / _SCHEMA).read_text(encoding="utf-8")  # determinism: deployed, as a file
    return NodeSpec(
        name=DATABASE_NODE,
        role="db",
        ports=(DATABASE_PORT,),
        user="postgres",  # it refuses to run as root
        files={
            "postgresql.conf": _CONFIGURATION,
            "pg_hba.conf": "host all all all trust\n",
            "schema.sql": schema,
        },
        setup=(
            (f"{_BIN}/initdb", "--pgdata={data}/pg", f"--username={USER}", "--no-sync"),
            ("sh", "-c", _LOAD),
        ),
        command=(
            *(f"{_BIN}/postgres", "-D", "{data}/pg"),
            "--config-file={files}/postgresql.conf",
        ),
        ready=ReadyCommand(
            (f"{_BIN}/pg_isready", "--host={host}", f"--port={{port:{DATABASE_PORT}}}")
        ),
        faulty_disk=True,
        debian_package="postgresql-15",
    )


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
_SEQUENCE: Final = 'select "NEXT_EVENT_ID" from "NOTIFICATION_SEQUENCE"'


async def read_rows(env: ClientEnv, *, nonce: str, timeout_s: float) -> dict[str, Any] | None:
    """What the database holds of one moment, as `HiveSystem.snapshot` has it; `None` where it does
    not answer. `nonce` is the parameter of tables that holds theirs.
    """
    host, port = env.endpoint(Address(DATABASE_NODE, DATABASE_PORT))
    seconds = max(2, round(timeout_s))
    try:
        connection = await psycopg.AsyncConnection.connect(
            host=host,
            port=port,
            dbname=NAME,
            user=USER,
            connect_timeout=seconds,
            options=f"-c statement_timeout={seconds}s -c default_transaction_isolation=serializable",
        )
        async with connection:
            tables = await (await connection.execute(_TABLES, (nonce,))).fetchall()
            orphans = await (await connection.execute(_ORPHANS)).fetchall()
            sequence = await (await connection.execute(_SEQUENCE)).fetchall()
    except psycopg.Error:
        return None
    return {
        "tables": [list(row) for row in tables],
        "orphans": [row[0] for row in orphans],
        "events": [],
        "next_event": sequence[0][0] if sequence else 1,
    }
