"""Real ZooKeeper: three servers in processes or Docker, with kazoo's wire format (README.md)."""

import asyncio
import contextlib
import json
import struct
from typing import Any

from kazoo.exceptions import EXCEPTIONS, BadVersionError, NodeExistsError, ZookeeperError
from kazoo.protocol.serialization import Connect, Create, GetData, ReplyHeader, SetData, Sync
from kazoo.security import OPEN_ACL_UNSAFE

from harness.cluster import NodeSpec, ReadyPort
from harness.env import Address, ClientEnv
from harness.ops import Attempt, Completion, OpType, Request
from harness.plugins import (
    Convergence,
    Deployment,
    NodeRole,
    Option,
    Roles,
    System,
    Target,
    override,
)
from harness.vocabularies.transactions import play

NAMES, CLIENTS, PEERS, ELECTIONS = ("z1", "z2", "z3"), 2181, 2888, 3888
REGISTER, LISTS, ANY_VERSION = "/register", "/lists", -1
BACK_OFF_S, SESSION_MS = 0.2, 5_000
FAILURES = (OSError, TimeoutError, EOFError, ValueError, ZookeeperError)
COMMAND = ("java", "-Xmx128m", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar",
           "org.apache.zookeeper.server.quorum.QuorumPeerMain", "{files}/zoo.cfg")  # fmt: skip
CONFIGURATION = """
dataDir={data}
clientPortAddress={host}
clientPort={port:2181}
tickTime=250
initLimit=16
syncLimit=8
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
"""


class Session:
    """A connection to one server, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.xid = reader, writer, 0

    @classmethod
    async def open(cls, env: ClientEnv, node: str) -> "Session":
        """Connect, and wait until a majority of the ensemble has granted a session."""
        session = cls(*await asyncio.open_connection(*env.endpoint(Address(node, CLIENTS))))
        try:
            session.send(bytes(Connect(0, 0, SESSION_MS, 0, b"\0" * 16, False).serialize()))
            await session.frame()
        except BaseException:
            await session.close()
            raise
        return session

    def send(self, frame: bytes) -> None:
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ask(self, request: Any) -> Any:
        self.xid += 1
        self.send(struct.pack(">ii", self.xid, request.type) + bytes(request.serialize()))
        header, offset = ReplyHeader.deserialize(frame := await self.frame(), 0)
        if header.xid != self.xid:
            raise ValueError(f"an answer to {header.xid}, and {self.xid} was asked")
        if header.err:
            raise EXCEPTIONS[header.err]
        return request.deserialize(frame, offset)

    async def close(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class Client:
    """The client of process p, which starts with server p modulo 3, then tries the next one."""

    def __init__(self, env: ClientEnv, number: int, options: Any) -> None:
        self.env, self.number, self.options = env, number, options
        self.session: Session | None = None
        self.changing = False  # a change was sent and may take effect

    @property
    def node(self) -> str:
        return NAMES[self.number % len(NAMES)]

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        node, start, self.changing = self.node, self.env.clock.monotonic_ns(), False
        kind, value, error, asked = OpType.OK, None, None, False
        try:
            async with asyncio.timeout(timeout_s):
                self.session = self.session or await Session.open(self.env, node)
                asked = True
                value = await self.operate(request)
        except BadVersionError:
            kind, value = OpType.FAIL, {"result": "mismatch"}
        except FAILURES as failure:
            error, kind = f"{type(failure).__name__}: {failure}", OpType.FAIL
            kind = OpType.INFO if self.changing else kind
            await self.close()
            self.number += not self.options["pinned"]
            if not asked:
                await asyncio.sleep(min(BACK_OFF_S, timeout_s / 2))
        attempts = (Attempt(node, start, self.env.clock.monotonic_ns(), error or "ok"),)
        return Completion(kind, value, error, None if error else node, attempts)

    async def operate(self, request: Request) -> Any:
        value = request.value
        if request.f == "read":
            return {"result": "ok", "value": (await self.read(REGISTER))[0]}
        if request.f == "write":
            await self.write(REGISTER, value["value"], ANY_VERSION)
        elif request.f == "cas":
            now, version = await self.read(REGISTER)
            if now != value["old"]:
                raise BadVersionError
            await self.write(REGISTER, value["new"], version)
        else:
            return await self.transact(value)
        return {"result": "ok"}

    async def transact(self, mops: Any) -> Any:
        """Run a transaction: all lists are one znode, which is written only if it is unchanged."""
        while True:
            lists, version = await self.read(LISTS)
            answer, changed = play(mops, {key: (lists or {}).get(key, []) for _, key, _ in mops})
            try:
                if changed:
                    await self.write(LISTS, {**(lists or {}), **changed}, version)
            except BadVersionError:
                continue
            return answer

    async def read(self, path: str) -> tuple[Any, int]:
        assert self.session is not None
        if self.options["sync"]:
            await self.session.ask(Sync(path))
        data, stat = await self.session.ask(GetData(path, None))
        return json.loads(data), stat.version

    async def write(self, path: str, value: Any, version: int) -> None:
        assert self.session is not None
        self.changing = True
        try:
            await self.session.ask(SetData(path, json.dumps(value).encode(), version))
        except BadVersionError:
            self.changing = False
            raise

    async def close(self) -> None:
        if self.session is not None:
            session, self.session = self.session, None
            await session.close()


class ZooKeeperSystem(System):
    def __init__(self, deployment: Deployment) -> None:
        self.env, self.options = deployment.env, deployment.settings.options

    def client(self, process: int) -> Client:
        return Client(self.env, process, self.options)

    def core(self, rng: Any) -> list[str]:
        return sorted(rng.sample(NAMES, 2))

    async def srvr(self, node: str) -> dict[str, Any] | None:
        """Return the state that a server reports, if it serves."""
        try:
            async with asyncio.timeout(1):
                reader, writer = await asyncio.open_connection(
                    *self.env.endpoint(Address(node, CLIENTS))
                )
                try:
                    writer.write(b"srvr")
                    text = (await reader.read()).decode()
                finally:
                    writer.transport.abort()
        except FAILURES:
            return None
        state = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
        if "Mode" not in state or "Zxid" not in state:
            return None
        return {"mode": state["Mode"], "epoch": int(state["Zxid"], 16) >> 32, "zxid": state["Zxid"]}

    @override
    async def snapshot(self) -> dict[str, Any]:
        states = await asyncio.gather(*map(self.srvr, NAMES))
        return {name: state for name, state in zip(NAMES, states, strict=True) if state is not None}

    async def groups(self) -> dict[str, Roles]:
        states = (await self.snapshot()).items()
        roles = {name: NodeRole(state["mode"], state["epoch"]) for name, state in states}
        return {"ensemble": Roles(roles, NAMES)}

    async def converged(self) -> Convergence:
        states = await self.snapshot()
        modes = [states[name]["mode"] if name in states else "silent" for name in NAMES]
        good = sorted(modes) == ["follower", "follower", "leader"]
        return Convergence(good, () if good else (f"{', '.join(NAMES)} are {', '.join(modes)}",))

    async def ready(self) -> Convergence:
        """Check that every server serves; create the clients' znodes."""
        ensemble = await self.converged()
        return await self.make_znodes() if ensemble.ok else ensemble

    async def make_znodes(self) -> Convergence:
        try:
            async with asyncio.timeout(2):
                session = await Session.open(self.env, NAMES[0])
                try:
                    for path in (REGISTER, LISTS):
                        with contextlib.suppress(NodeExistsError):
                            await session.ask(Create(path, b"null", OPEN_ACL_UNSAFE, 0))
                finally:
                    await session.close()
        except FAILURES as error:
            return Convergence(False, (f"{type(error).__name__}: {error}",))
        return Convergence(True)


class ZooKeeper(Target):
    api_version, name, doc = 2, "zookeeper", "an example: three servers of real ZooKeeper"
    vocabularies, profiles = frozenset({"register", "list-append"}), ("strict",)
    open, bugs = ZooKeeperSystem, {}
    options = (Option("sync", False, "each read follows a sync; by default it may be stale"),
               Option("pinned", False, "clients stay with one server, even if it is down"))  # fmt: skip

    def nodes(self, settings: Any) -> list[NodeSpec]:
        return [self.node(number) for number in range(1, len(NAMES) + 1)]

    def node(self, number: int) -> NodeSpec:
        address = f"{{host}}:{{port:{PEERS}}}:{{port:{ELECTIONS}}}"
        servers = [f"server.{i}={address if i == number else f'{{host:{n}}}:{PEERS}:{ELECTIONS}'}\n"
                   for i, n in enumerate(NAMES, 1)]  # fmt: skip
        return NodeSpec(
            name=NAMES[number - 1],
            role="server",
            ports=(CLIENTS, PEERS, ELECTIONS),
            dockerfile="{package:zookeeper_example}",
            debian_package="zookeeper",
            files={"zoo.cfg": CONFIGURATION + "".join(servers)},
            setup=(("sh", "-c", f"echo {number} > {{data}}/myid"),),
            command=COMMAND,
            ready=ReadyPort(CLIENTS),
        )
