"""The node `db` as a real PostgreSQL from Debian's package: its configuration, setup and command.

The process environment runs the newest PostgreSQL on the machine. The Docker environment runs the
version that the Dockerfile in `postgresql/` installs. All data are in `{data}`. If power cuts are
planned, `{data}` is on a disk that the harness provides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from harness.cluster import NodeSpec, ReadyCommand
from targets.hive.sql.postgres import USER
from targets.hive.sql.schema import SCHEMA, Table, first_rows

IMAGE: Final = "{package:targets.hive}/hive/sql/postgresql"
BESIDE: Final[Mapping[str, Any]] = {
    "dockerfile": IMAGE,  # the image has the client library that the metastores' driver needs
    "environment": {"HIVE_DRIVER": "{package:psycopg} {package:typing_extensions}"},
}
"""Fields of a metastore's `NodeSpec` that provide PostgreSQL's driver, also in containers."""
_VERSIONS: Final = range(18, 13, -1)
SEARCH_PATH: Final = ":".join(
    [
        *(f"/usr/lib/postgresql/{version}/bin" for version in _VERSIONS),
        *("/usr/local/bin", "/usr/bin", "/bin"),
    ]
)
_SERVER: Final = "postgres -D {data}/pg --config-file={files}/postgresql.conf"
_CONFIGURATION: Final = """
listen_addresses = '{host}'
port = {port:PORT}
unix_socket_directories = ''
hba_file = '{files}/pg_hba.conf'
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
"""


def postgres_node(
    name: str, port: int, databases: tuple[str, ...], *, fsync: bool = True, idle_s: float = 1.0
) -> NodeSpec:
    """Declare the node `db` with PostgreSQL; the arguments are as in `targets.hive.sql.node`."""
    return server_node(name, port, "".join(_schema(databases)), fsync=fsync, idle_s=idle_s)


def server_node(
    name: str,
    port: int,
    schema: str,
    *,
    fsync: bool = True,
    idle_s: float = 1.0,
    connections_max: int = 100,
) -> NodeSpec:
    """Declare a PostgreSQL server that runs the statements in `schema` before its first start.

    Each statement in `schema` ends in a semicolon and an empty line, as single-user mode requires.
    With `fsync` off, a commit reaches the kernel before it is acknowledged (`synchronous_commit` is
    on). So a kill loses nothing, but a power cut may lose commits.
    """
    configuration = _CONFIGURATION.replace("PORT", str(port)) + "".join(
        f"{setting} = {value}\n"
        for setting, value in {
            "fsync": "on" if fsync else "off",
            "synchronous_commit": "on",
            "idle_in_transaction_session_timeout": f"{idle_s * 1000:.0f}ms",
            "max_connections": str(connections_max),
            # End a session soon after its metastore ends, even while it waits for a lock.
            "client_connection_check_interval": "500ms",
            "deadlock_timeout": "200ms",
            # Refused statements are common, so log only one line for each.
            "log_error_verbosity": "terse",
            "log_min_error_statement": "panic",
            "max_wal_senders": "0",
            "wal_level": "minimal",
        }.items()
    )
    return NodeSpec(
        name=name,
        role="db",
        ports=(port,),
        dockerfile=IMAGE,
        user="postgres",  # PostgreSQL refuses to run as root
        environment={"PATH": SEARCH_PATH, "LC_ALL": "C"},
        files={
            "postgresql.conf": configuration,
            "pg_hba.conf": "host all all all trust\n",
            "schema.sql": schema,
        },
        setup=(
            (
                *("initdb", "--pgdata={data}/pg", f"--username={USER}"),
                *("--locale=C", "--encoding=UTF8", "--no-sync"),
            ),
            ("sh", "-c", "postgres --single -j -D {data}/pg postgres < {files}/schema.sql"),
        ),
        # Otherwise a killed server's pid file prevents a start if another process has that pid.
        command=("sh", "-c", f"rm -f {{data}}/pg/postmaster.pid; exec {_SERVER}"),
        ready=ReadyCommand(("pg_isready", "--host={host}", f"--port={{port:{port}}}")),
        clock_probe=(  # the command prints the time of the server's clock
            *("psql", "--host={host}", f"--port={{port:{port}}}", f"--username={USER}"),
            *("--dbname=postgres", "-AXtqc", "select extract(epoch from clock_timestamp())"),
        ),
        faulty_disk=True,
        debian_package="postgresql",
        instead="--database store",
        stop_signal="SIGINT",  # on SIGTERM, the server would wait for the end of every session
    )


def _schema(databases: tuple[str, ...]) -> Iterator[str]:
    for name, table in SCHEMA.items():
        columns = [f'"{column}" {_type_of(table, column)}' for column in table.columns]
        columns += [f"unique ({_names(key)})" for key in table.unique]
        yield f'create table "{name}" ({", ".join(columns)});\n\n'
    for name, rows in first_rows(databases).items():
        for row in rows:
            # PostgreSQL assigns the serial values, so leave them out.
            options = {
                column: value for column, value in row.items() if column != SCHEMA[name].serial
            }
            values = ", ".join(_literal(value) for value in options.values())
            yield f'insert into "{name}" ({_names(options)}) values ({values});\n\n'  # noqa: S608


def _type_of(table: Table, column: str) -> str:
    if column == table.serial:
        return "bigint generated by default as identity"
    return f"{'bigint' if column in table.numbers else 'text'} not null"


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
