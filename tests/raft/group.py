"""A node that is one member of a Raft group, for replica tests in the simulation."""

import asyncio
import zlib
from typing import Any

import msgspec

from harness.cluster import NodeSpec
from harness.env import Env
from targets.kudu.flags import Flags
from targets.kudu.messages import PeerConfig, RaftConfig
from targets.kudu.raft.replica import (
    ConsensusService,
    IndeterminateError,
    NotAppendedError,
    NotLeaderError,
    Replica,
)
from targets.kudu.rpc import RpcClient, RpcServer
from tests.sim.toy import PORT, specs

GROUP = "g" * 32


class Ask(msgspec.Struct, array_like=True, frozen=True):
    text: str = ""


class Told(msgspec.Struct, array_like=True, frozen=True):
    data: dict[str, Any]


class Appender:
    """A state machine that lists what it was given, with a rolling checksum over all of it."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.crc = 0

    def apply(self, index: int, term: int, payload: bytes) -> int:
        self.items.append(payload.decode())
        self.crc = zlib.crc32(payload, self.crc)
        return len(self.items)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.items, self.crc))

    def restore(self, data: bytes, index: int) -> None:
        self.items, self.crc = msgspec.msgpack.decode(data, type=tuple[list[str], int])


def members(names: list[str], **config: Any) -> tuple[NodeSpec, ...]:
    return specs(*names, entry="tests.raft.group:main", **config)


async def main(env: Env, config: dict[str, Any]) -> None:
    flags = msgspec.convert(config.get("flags", {}), Flags)
    server, client = RpcServer(env, PORT), RpcClient(env)
    service = ConsensusService(env, server, client, f"uuid-{env.name}", flags)
    peers = tuple(PeerConfig(f"uuid-{name}", f"{name}:{PORT}") for name in config["peers"])
    machine = Appender()
    replica = Replica(
        env,
        consensus=service,
        group_id=GROUP,
        folder=f"tablets/{GROUP}",
        local_uuid=f"uuid-{env.name}",
        initial_config=RaftConfig(-1, peers),
        flags=flags,
        machine=machine,
        snapshot_every=config.get("snapshot_every", 500),
        trace_steps=config.get("trace_steps", False),
    )

    async def write(request: Ask, peer: str) -> Told:
        try:
            index, term, count = await replica.replicate(request.text.encode(), timeout_s=5.0)
        except NotAppendedError as error:
            return Told({"fail": str(error)})
        except IndeterminateError as error:
            return Told({"info": str(error)})
        return Told({"index": index, "term": term, "count": count})

    async def read(request: Ask, peer: str) -> Told:
        try:
            index = await replica.confirm_leadership(timeout_s=5.0)
        except (NotLeaderError, TimeoutError) as error:
            return Told({"fail": str(error)})
        return Told({"index": index, "items": list(machine.items)})

    async def dump(request: Ask, peer: str) -> Told:
        files = await env.disk.list("tablets/")
        return Told({**replica.dump(), "items": machine.items, "files": files})

    server.register("Test.Write", write, Ask)
    server.register("Test.Read", read, Ask)
    server.register("Test.Dump", dump, Ask)
    await server.start()
    await replica.start()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await replica.stop()
        client.close()
        server.close()
