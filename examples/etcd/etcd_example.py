"""Real etcd: three members in Docker, and a client for its JSON gateway. See README.md."""

import asyncio
import contextlib
import json
import random
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from harness.cluster import NodeSpec, ReadyHttp
from harness.env import Address, ClientEnv
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Convergence, Deployment, NodeRole, Option, Request, Roles
from harness.plugins import TargetSettings as Settings

CLIENT_PORT, PEER_PORT = 2379, 2380
NAMES = ("n1", "n2", "n3")
LOOK_S = 1.0  # how long one member may take to say what it is
BACK_OFF_S = 0.2  # a dead member refuses at once; without a pause it would eat the workload's rate
FAILURES = (OSError, TimeoutError, EOFError, ValueError, LookupError)


def b64(value: Any) -> str:
    """Keys and values are bytes; the gateway takes them in base64."""
    return b64encode(json.dumps(value).encode()).decode()


KEY = b64("register")


def body_of(request: Request, serializable: bool) -> tuple[str, dict[str, Any]]:
    """The gateway's path and body for one operation of the vocabulary `register`."""
    if request.f == "read":
        return "/v3/kv/range", {"key": KEY, "serializable": serializable}
    if request.f == "write":
        return "/v3/kv/put", {"key": KEY, "value": b64(request.value["value"])}
    old, new = b64(request.value["old"]), b64(request.value["new"])
    same = {"key": KEY, "target": "VALUE", "result": "EQUAL", "value": old}
    return "/v3/kv/txn", {
        "compare": [same],
        "success": [{"request_put": {"key": KEY, "value": new}}],
    }


class EtcdClient:
    """One connection to one member. After a failure the next member is asked, unless `pinned`."""

    def __init__(
        self, env: ClientEnv, first: int, *, pinned: bool = False, stale: bool = False
    ) -> None:
        self.env, self.number, self.pinned, self.stale = env, first, pinned, stale
        self.stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One HTTP exchange on the open connection; raises one of `FAILURES`."""
        reader, writer = self.stream
        text = json.dumps(body) if body is not None else ""
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.split()[1] != "200":
            raise ValueError(head.splitlines()[0])
        return json.loads(
            await reader.readexactly(int(head.split("content-length: ")[1].split()[0]))
        )

    async def open(self) -> None:
        """Connect. Docker's port proxy accepts for a dead member too, so the member must answer."""
        if self.stream is None:
            host, port = self.env.endpoint(Address(NAMES[self.number % 3], CLIENT_PORT))
            self.stream = await asyncio.open_connection(host, port)
            await self.exchange("GET", "/version")

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """A mutation that was sent and not answered with 200 may have happened: `info`."""
        node, start = NAMES[self.number % 3], self.env.clock.monotonic_ns()
        sent, reply, error = False, {}, ""
        try:
            async with asyncio.timeout(timeout_s):
                await self.open()
                sent = True
                reply = await self.exchange("POST", *body_of(request, self.stale))
        except FAILURES as failure:
            error = f"{type(failure).__name__}: {failure}"[:200]
        attempts = (Attempt(node, start, self.env.clock.monotonic_ns(), error or "ok"),)
        if error:
            await self.close()
            self.number += not self.pinned
            if not sent:
                await asyncio.sleep(min(BACK_OFF_S, timeout_s / 2))
            kind = OpType.INFO if sent and request.f != "read" else OpType.FAIL
            return Completion(kind, None, error, None, attempts)
        if request.f == "cas" and not reply.get("succeeded"):
            return Completion(OpType.FAIL, {"result": "mismatch"}, None, node, attempts)
        value: dict[str, Any] = {"result": "ok"}
        if request.f == "read":
            found = reply.get("kvs")
            value["value"] = json.loads(b64decode(found[0]["value"])) if found else None
        return Completion(OpType.OK, value, None, node, attempts)

    async def close(self) -> None:
        if self.stream is not None:
            (_, writer), self.stream = self.stream, None
            writer.transport.abort()
            with contextlib.suppress(OSError):  # or asyncio complains later of what nobody asked
                await writer.wait_closed()


async def status(env: ClientEnv, number: int) -> dict[str, Any] | None:
    """What one member says of itself; `None` if it does not answer."""
    client = EtcdClient(env, number, pinned=True)
    try:
        async with asyncio.timeout(LOOK_S):
            await client.open()
            return await client.exchange("POST", "/v3/maintenance/status", {})
    except FAILURES:
        return None
    finally:
        await client.close()


class Etcd:
    """The target plug-in."""

    api_version = 2
    name = "etcd"
    doc = "an example: three members of real etcd; needs --env docker"
    vocabularies = frozenset({"register"})
    profiles = ("strict",)
    bugs = {
        "NO-FSYNC": "members answer without having synced what they answer for (etcd's own flag)",
        "SERIALIZABLE-READS": "a member answers reads from its own state, without asking a quorum",
    }
    options = (
        Option("image", "", "an image with `etcd` on its path; by default one is built"),
        Option("pinned", False, "clients stay with one member, even if it is down"),
    )

    def nodes(self, settings: Settings) -> list[NodeSpec]:
        cluster = ",".join(f"{name}=http://{{address:{name}:{PEER_PORT}}}" for name in NAMES)
        flags = {
            "name": "{name}",
            "data-dir": "{data}/etcd",
            "listen-client-urls": f"http://{{host}}:{{port:{CLIENT_PORT}}}",
            "listen-peer-urls": f"http://{{host}}:{{port:{PEER_PORT}}}",
            "initial-cluster": cluster,
        }
        image, ports, specs = settings.options["image"] or None, (CLIENT_PORT, PEER_PORT), []
        dockerfile = None if image else "{package:etcd_example}"  # the folder this module lies in
        ready = ReadyHttp(CLIENT_PORT, "/health")  # it has found the others, and one leads
        for name in NAMES:
            flags["advertise-client-urls"] = f"http://{{address:{name}:{CLIENT_PORT}}}"
            flags["initial-advertise-peer-urls"] = f"http://{{address:{name}:{PEER_PORT}}}"
            command = ("etcd", *(f"--{flag}={value}" for flag, value in flags.items()))
            if "NO-FSYNC" in settings.bugs:
                command += ("--unsafe-no-fsync",)
            specs.append(
                NodeSpec(
                    name=name,
                    role="member",
                    ports=ports,
                    command=command,
                    image=image,
                    dockerfile=dockerfile,
                    ready=ready,
                    faulty_disk=True,  # for power cuts and faults of disks, where there is FUSE
                )
            )
        return specs

    def open(self, deployment: Deployment) -> "EtcdSystem":
        return EtcdSystem(deployment.env, deployment.settings)


class EtcdSystem:
    """The three members that run, as the harness looks at them."""

    def __init__(self, env: ClientEnv, settings: Settings) -> None:
        self.env, self.settings = env, settings

    def client(self, process: int) -> EtcdClient:
        stale = "SERIALIZABLE-READS" in self.settings.bugs
        return EtcdClient(self.env, process, pinned=self.settings.options["pinned"], stale=stale)

    def core(self, rng: random.Random) -> Sequence[str]:
        return sorted(rng.sample(NAMES, 2))

    async def snapshot(self) -> dict[str, dict[str, Any]]:
        found = await asyncio.gather(*(status(self.env, number) for number in range(3)))
        return {name: state for name, state in zip(NAMES, found, strict=True) if state}

    async def groups(self) -> dict[str, Roles]:
        roles = {}
        for name, state in (await self.snapshot()).items():
            leads = state.get("leader") == state["header"]["member_id"]
            roles[name] = NodeRole("leader" if leads else "follower", int(state["raftTerm"]))
        return {"etcd": Roles(roles, NAMES)}

    async def converged(self) -> Convergence:
        found = await self.snapshot()
        pending = [f"{name} does not answer" for name in NAMES if name not in found]
        for key in ("leader", "raftTerm", "raftAppliedIndex"):
            values = {name: state.get(key) for name, state in found.items()}
            if len(set(values.values())) > 1 or None in values.values():
                pending.append(f"the members disagree on {key}: {values}")
        return Convergence(not pending, tuple(pending))

    ready = converged
