"""A target written against `Env`: one node that keeps one durable register.

It runs unchanged in simulation, local processes and Docker: `harness run --target toy-register
--workload register --nemesis kill-leader`.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any

import msgspec

from harness.cluster import NodeSpec
from harness.env import Address, ClientEnv, Conn, Env
from harness.ops import Attempt, Completion, OpType, Request
from harness.plugins import Convergence, Deployment, NodeRole, Option, Roles, System, Target
from harness.plugins import TargetSettings as Settings

PORT = 7000
NODE = Address("r1", PORT)


async def main(env: Env, config: dict[str, Any]) -> None:
    """Run the node: answer each JSON frame with another. Sync a write before answering it."""
    del config
    try:
        state = msgspec.json.decode(await env.disk.read("register"))
    except FileNotFoundError:
        state = {"value": None}
    lock = asyncio.Lock()

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        async with lock:
            old = state["value"]
            if request["f"] == "cas" and old != request["value"]["old"]:
                return {"result": "mismatch"}
            if request["f"] != "read":
                new = request["value"]["new" if request["f"] == "cas" else "value"]
                await env.disk.replace("register", msgspec.json.encode({"value": new}))
                state["value"] = new
                return {"result": "ok"}
            return {"result": "ok", "value": old}

    async def serve(conn: Conn) -> None:
        with contextlib.suppress(ConnectionResetError):
            while (frame := await conn.recv()) is not None:
                await conn.send(msgspec.json.encode(await answer(msgspec.json.decode(frame))))

    await env.net.listen(PORT, serve)
    env.event("leader", group="register", term=env.boot + 1)
    await asyncio.Event().wait()


class ToyClient:
    """The client of one process, which reconnects after each failure."""

    def __init__(self, env: ClientEnv) -> None:
        self.env = env
        self.conn: Conn | None = None

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Run one operation. A write without an answer is `info` if it may have been sent."""
        start = self.env.clock.monotonic_ns()
        sent, error = False, ""
        reply: dict[str, Any] | None = None
        try:
            async with asyncio.timeout(timeout_s):
                self.conn = self.conn or await self.env.net.connect(NODE)
                sent = True
                await self.conn.send(msgspec.json.encode({"f": request.f, "value": request.value}))
                frame = await self.conn.recv()
                reply = None if frame is None else msgspec.json.decode(frame)
                error = "" if reply else "CLOSED: the node closed the connection"
        except (OSError, TimeoutError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        attempts = (Attempt("r1", start, self.env.clock.monotonic_ns(), error or "ok"),)
        if reply is not None:
            kind = OpType.OK if reply["result"] == "ok" else OpType.FAIL
            return Completion(kind, reply, None, "r1", attempts)
        await self.close()
        kind = OpType.INFO if sent and request.f != "read" else OpType.FAIL
        return Completion(kind, None, error, None, attempts)

    async def close(self) -> None:
        """Drop the connection."""
        if self.conn is not None:
            self.conn.close()
            self.conn = None


class ToyRegister(Target):
    """The target plug-in."""

    api_version = 2
    name = "toy-register"
    doc = "an example: one durable register on one node, written against Env"
    vocabularies = frozenset({"register"})
    profiles = ("strict",)
    bugs: dict[str, str] = {}
    options: tuple[Option, ...] = ()

    def nodes(self, settings: Settings) -> Sequence[NodeSpec]:
        return [NodeSpec(name="r1", role="register", ports=(PORT,), entry="toy_register:main")]

    def open(self, deployment: Deployment) -> "ToySystem":
        return ToySystem(deployment.env)


class ToySystem(System):
    """The deployed node, as the harness sees it."""

    def __init__(self, env: ClientEnv) -> None:
        self.env = env

    def client(self, process: int) -> ToyClient:
        return ToyClient(self.env)

    def core(self, rng: random.Random) -> Sequence[str]:
        return ["r1"]

    async def groups(self) -> dict[str, Roles]:
        state = await self.ready()
        return {"register": Roles({"r1": NodeRole("leader")} if state.ok else {}, ("r1",))}

    async def ready(self) -> Convergence:
        client = ToyClient(self.env)
        reply = await client.invoke(Request("read", {}), timeout_s=1.0)
        await client.close()
        return Convergence(reply.type is OpType.OK, (reply.error,) if reply.error else ())

    converged = ready
