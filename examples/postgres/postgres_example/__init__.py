"""A target with two roles: small servers, and the PostgreSQL behind them (README.md)."""

import asyncio
import contextlib
import json
import random

from harness.cluster import NodeSpec, ReadyCommand, ReadyPort
from harness.env import Address, ClientEnv
from harness.ops import Attempt, OpType
from harness.plugins import (
    Completion,
    Convergence,
    Deployment,
    NodeRole,
    Request,
    Roles,
    System,
    Target,
)
from harness.plugins import TargetSettings as Settings

APPS, PORT, DATABASE_PORT = ("a1", "a2"), 8080, 5432
BIN = "/usr/lib/postgresql/15/bin"
SERVER = "{package:postgres_example}/postgres_example/register_server.py"
BACK_OFF_S = 0.2
FAILURES = (OSError, TimeoutError, EOFError, ValueError)
CONFIGURATION = f"""
listen_addresses = '{{host}}'
port = {{port:{DATABASE_PORT}}}
unix_socket_directories = ''
hba_file = '{{files}}/pg_hba.conf'
shared_buffers = 16MB
dynamic_shared_memory_type = mmap
"""
HBA = "host all all all trust\n"
SCHEMA = "create table register (value bigint);\ninsert into register values (null);\n"

DATABASE = NodeSpec(
    name="db",
    role="db",
    ports=(DATABASE_PORT,),
    dockerfile="{package:postgres_example}/postgres_example/postgres_image",
    user="postgres",  # it refuses to run as root
    files={"postgresql.conf": CONFIGURATION, "pg_hba.conf": HBA, "schema.sql": SCHEMA},
    setup=(
        (f"{BIN}/initdb", "--pgdata={data}/pg", "--username=postgres", "--no-sync"),
        ("sh", "-c", f"{BIN}/postgres --single -D {{data}}/pg postgres < {{files}}/schema.sql"),
    ),
    command=(f"{BIN}/postgres", "-D", "{data}/pg", "--config-file={files}/postgresql.conf"),
    ready=ReadyCommand((f"{BIN}/pg_isready", "--host={host}", f"--port={{port:{DATABASE_PORT}}}")),
    clock_probe=(  # prints the time of PostgreSQL's own clock
        *(f"{BIN}/psql", "--host={host}", f"--port={{port:{DATABASE_PORT}}}"),
        *("--username=postgres", "-AXtqc", "select extract(epoch from clock_timestamp())"),
    ),
    faulty_disk=True,  # for power cuts and disk faults, if FUSE is available
)


def app(name: str) -> NodeSpec:
    """One server; it starts when the database answers."""
    command = f"python3 {SERVER} {{host}} {{port:{PORT}}} {{peer:db:{DATABASE_PORT}}}".split()
    return NodeSpec(
        name=name,
        role="app",
        command=tuple(command),
        ports=(PORT,),
        ready=ReadyPort(PORT),
        after=("db",),
        faulty_disk=True,
    )


class Client:
    """A client that uses one server, and after a failure the other one."""

    def __init__(self, env: ClientEnv, first: int) -> None:
        self.env, self.number = env, first

    async def exchange(self, request: dict, sent: asyncio.Event) -> dict:
        """Exchange one request; wait for the greeting, as Docker's proxy accepts for dead servers."""
        host, port = self.env.endpoint(Address(APPS[self.number % 2], PORT))
        reader, writer = await asyncio.open_connection(host, port)
        try:
            await reader.readuntil(b"\n")
            sent.set()
            writer.write(json.dumps(request).encode() + b"\n")
            return json.loads(await reader.readuntil(b"\n"))
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Run one operation; `info` if the database may have received an unanswered mutation."""
        node, start, sent = APPS[self.number % 2], self.env.clock.monotonic_ns(), asyncio.Event()
        asked = {"f": request.f, "old": request.value.get("old")}
        asked["value"] = request.value.get("new", request.value.get("value"))
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self.exchange(asked, sent)
        except FAILURES as failure:
            reply = {"error": f"{type(failure).__name__}: {failure}", "asked": sent.is_set()}
        attempts = (Attempt(node, start, self.env.clock.monotonic_ns(), reply.get("error", "ok")),)
        if "error" in reply:
            self.number += 1
            if not reply["asked"]:
                await asyncio.sleep(min(BACK_OFF_S, timeout_s / 2))
            kind = OpType.INFO if reply["asked"] and request.f != "read" else OpType.FAIL
            return Completion(kind, None, reply["error"], None, attempts)
        if request.f == "cas" and not reply["changed"]:
            return Completion(OpType.FAIL, {"result": "mismatch"}, None, node, attempts)
        value = {"result": "ok", **({"value": reply["value"]} if request.f == "read" else {})}
        return Completion(OpType.OK, value, None, node, attempts)

    async def close(self) -> None:
        pass


class Postgres(Target):
    """The target plug-in."""

    api_version = 2
    name = "postgres"
    doc = "an example: two servers of our own (role app) over one PostgreSQL (role db)"
    vocabularies = frozenset({"register"})
    profiles = ("strict",)
    bugs: dict[str, str] = {}
    options = ()

    def nodes(self, settings: Settings) -> list[NodeSpec]:
        return [*(app(name) for name in APPS), DATABASE]

    def open(self, deployment: Deployment) -> "PostgresSystem":
        return PostgresSystem(deployment.env)


class PostgresSystem(System):
    """The deployed nodes, as the harness sees them."""

    def __init__(self, env: ClientEnv) -> None:
        self.env = env

    def client(self, process: int) -> Client:
        return Client(self.env, process)

    def core(self, rng: random.Random) -> list[str]:
        return [rng.choice(APPS), "db"]

    async def groups(self) -> dict[str, Roles]:
        return {"postgres": Roles({"db": NodeRole("leader")}, ("db",))}  # servers never lead

    async def converged(self) -> Convergence:
        clients = [Client(self.env, number) for number in range(len(APPS))]
        asked = (client.invoke(Request("read", {}), timeout_s=1) for client in clients)
        reads = zip(APPS, await asyncio.gather(*asked), strict=True)
        pending = [f"{name}: {read.error}" for name, read in reads if read.type is not OpType.OK]
        return Convergence(not pending, tuple(pending))

    ready = converged
