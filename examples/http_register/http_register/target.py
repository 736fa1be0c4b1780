"""The plug-in: how to start the program, and a client for its protocol."""

import asyncio
import contextlib
import json
import random
from typing import Any

from harness.cluster import NodeSpec
from harness.env import Address, ClientEnv
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Convergence, Deployment, NodeRole, Option, Request, Roles
from harness.plugins import TargetSettings as Settings

PORT = 8080
NAMES = ("r1", "r2", "r3")  # r1 is the primary


async def http(env: ClientEnv, node: str, method: str, body: str) -> tuple[int, str]:
    """One HTTP exchange; raises `OSError` or `asyncio.IncompleteReadError`."""
    host, port = env.endpoint(Address(node, PORT))
    reader, writer = await asyncio.open_connection(host, port)
    try:
        head = f"{method} / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        reply = await reader.readuntil(b"\r\n\r\n")
        length = int(reply.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return int(reply.split()[1]), (await reader.readexactly(length)).decode()
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):  # or asyncio complains later of what nobody asked
            await writer.wait_closed()


class HttpClient:
    """Process p talks to node p modulo 3: where one fails, the next process asks another node."""

    def __init__(self, env: ClientEnv, process: int) -> None:
        self.env, self.node = env, NAMES[process % len(NAMES)]

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """A write without a 200 may have happened: `info`. A read without one is `fail`."""
        start = self.env.clock.monotonic_ns()
        read = request.f == "read"
        body = "" if read else json.dumps(request.value["value"])
        try:
            async with asyncio.timeout(timeout_s):
                status, text = await http(self.env, self.node, "GET" if read else "PUT", body)
            error = None if status == 200 else text
        except (OSError, TimeoutError, EOFError, IndexError) as failure:
            text, error = "", f"{type(failure).__name__}: {failure}"
        attempts = (Attempt(self.node, start, self.env.clock.monotonic_ns(), error or "ok"),)
        if error:
            return Completion(OpType.FAIL if read else OpType.INFO, None, error, None, attempts)
        value = {"result": "ok", "value": json.loads(text)} if read else {"result": "ok"}
        return Completion(OpType.OK, value, None, self.node, attempts)

    async def close(self) -> None:
        """Nothing to do."""


class HttpRegister:
    """The target plug-in: three nodes, started by their command line."""

    api_version = 2
    name = "http-register"
    doc = "an example: a foreign HTTP register on three nodes; --stale answers reads wrongly"
    vocabularies = frozenset({"register"})
    profiles = ("strict",)
    bugs: dict[str, str] = {}
    options = (Option("stale", False, "let the other nodes answer reads from an old copy"),)

    def nodes(self, settings: Settings) -> list[NodeSpec]:
        command = ["python3", "{package:http_register}/http_register/server.py"]
        command += ["--host", "{host}", "--port", f"{{port:{PORT}}}", "--data", "{data}"]
        follow = ["--primary", f"{{peer:r1:{PORT}}}"] + ["--stale"] * settings.options["stale"]
        words = {name: tuple(command + (follow if name != "r1" else [])) for name in NAMES}
        return [NodeSpec(name=n, role="register", ports=(PORT,), command=words[n]) for n in NAMES]

    def open(self, deployment: Deployment) -> "HttpSystem":
        return HttpSystem(deployment.env)


class HttpSystem:
    """The three nodes that run, as the harness looks at them."""

    def __init__(self, env: ClientEnv) -> None:
        self.env = env

    def client(self, process: int) -> HttpClient:
        return HttpClient(self.env, process)

    def core(self, rng: random.Random) -> tuple[str, ...]:
        return (NAMES[0], rng.choice(NAMES[1:]))  # the primary serves alone; a follower needs it

    async def groups(self) -> dict[str, Roles]:
        return {"register": Roles({"r1": NodeRole("leader")}, NAMES)}  # nobody else ever leads

    async def ready(self) -> Convergence:
        clients = [HttpClient(self.env, number) for number in range(len(NAMES))]
        replies = [await client.invoke(Request("read"), timeout_s=1.0) for client in clients]
        errors = tuple(reply.error for reply in replies if reply.error)
        return Convergence(not errors, errors)

    converged = ready

    async def snapshot(self) -> dict[str, Any]:
        return {}
