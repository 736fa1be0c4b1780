"""A node that is one member of a Raft group, for replica tests in the simulation."""

import asyncio
import zlib
from typing import Any

import msgspec

from harness.cluster import NodeSpec
from harness.env import Env
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.consensus_service import ConsensusService
from targets.kudu.consensus.errors import IndeterminateError, NotAppendedError, NotLeaderError
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.consensus.tombstoned_voting import TombstonedVoter
from targets.kudu.flags import Flags
from targets.kudu.messages import PeerConfig, RaftConfig
from targets.kudu.rpc import Call, R_co, RpcClient, RpcServer
from tests.sim.toy import PORT, specs

GROUP = "g" * 32
FOLDER = f"tablets/{GROUP}"
BURIED = "buried"  # a file that marks the replica as a tombstone


class Told(msgspec.Struct, array_like=True, frozen=True):
    data: dict[str, Any]


class Ask(Call[R_co], frozen=True):
    service = "Test"
    text: str = ""


class Write(Ask[Told], frozen=True): ...


class Read(Ask[Told], frozen=True): ...


class Dump(Ask[Told], frozen=True): ...


class Tombstone(Ask[Told], frozen=True): ...


ASKS: dict[str, type[Ask[Told]]] = {kind.__name__: kind for kind in (Write, Read, Dump, Tombstone)}


class Appender:
    """A state machine that lists all applied writes, with a rolling checksum."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.crc = 0

    def apply(self, index: int, term: int, payload: bytes) -> int:
        self.items.append(payload.decode())
        self.crc = zlib.crc32(payload, self.crc)
        return len(self.items)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.items, self.crc))

    async def restore(self, data: bytes, index: int) -> None:
        self.items, self.crc = msgspec.msgpack.decode(data, type=tuple[list[str], int])


def members(names: list[str], **config: Any) -> tuple[NodeSpec, ...]:
    return specs(*names, entry="tests.consensus.group:main", **config)


async def main(env: Env, config: dict[str, Any]) -> None:
    """Run a node; a node that is not in `peers` gets its replica when a leader asks for one."""
    flags = msgspec.convert(config.get("flags", {}), Flags)
    server, client = RpcServer(env, PORT), RpcClient(env)
    service = ConsensusService(env, server, client, f"uuid-{env.name}", flags)
    peers = tuple(PeerConfig(f"uuid-{name}", f"{name}:{PORT}") for name in config["peers"])
    member = _Member(env, config, service, RaftConfig(-1, peers), flags)
    service.on_missing_group = member.on_missing_group
    for handler in (member.write, member.read, member.dump, member.tombstone):
        server.serve(handler)
    await server.start()
    if await env.disk.list(BURIED):
        await member.voter.start()
    elif env.name in config["peers"] or await env.disk.list(f"{FOLDER}/"):
        await member.start()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await member.stop()
        client.close()
        server.close()


class _Member:
    """One node and its replica, if it has one.

    In place of a superblock, the configuration of the first peers is kept.
    """

    def __init__(
        self,
        env: Env,
        config: dict[str, Any],
        service: ConsensusService,
        first: RaftConfig,
        flags: Flags,
    ) -> None:
        self.env = env
        self.config = config
        self.service = service
        self.first = first
        self.flags = flags
        self.machine = Appender()
        self.replica: Replica | None = None
        self.voter = TombstonedVoter(
            env, consensus=service, group_id=GROUP, folder=FOLDER, local_uuid=f"uuid-{env.name}"
        )
        self.health: list[dict[str, str]] = []  # reported health, without repetitions

    async def start(self) -> None:
        self.machine = Appender()
        self.replica = Replica(
            self.env,
            consensus=self.service,
            group_id=GROUP,
            folder=FOLDER,
            local_uuid=f"uuid-{self.env.name}",
            initial_config=self.first,
            flags=self.flags,
            machine=self.machine,
            snapshot_every=self.config.get("snapshot_every", 500),
            trace_steps=self.config.get("trace_steps", False),
            copy_source=lambda: msgspec.msgpack.encode(self.config["peers"]),
            on_role_change=self.note,
        )
        await self.replica.start()

    async def tombstone(self, request: Tombstone, peer: str) -> Told:
        if self.replica is not None:
            await self.replica.stop()
            await self.replica.keep_last_logged()
            await self.env.disk.replace(BURIED, b"x")
            await self.replica.delete_data(keep_votes=True)
            self.replica = None
        await self.voter.start()
        return Told({})

    async def stop(self) -> None:
        if self.replica is not None:
            await self.replica.stop()

    def note(self, replica: Replica) -> None:
        health: dict[str, str] = dict(replica.peer_health())
        if self.health[-1:] != [health]:
            self.health.append(health)

    async def on_missing_group(
        self, request: msg.StartTabletCopyRequest
    ) -> msg.ConsensusError | None:
        assert msgspec.msgpack.decode(request.superblock) == self.config["peers"]
        if self.replica is not None:
            return msg.ConsensusError(msg.ConsensusErrorCode.ALREADY_INPROGRESS, "it starts")
        self.first = request.config
        await self.voter.stop()
        if await self.env.disk.list(BURIED):
            await self.env.disk.remove(BURIED)
        if self.config.get("refuses_copies"):
            return msg.ConsensusError(msg.ConsensusErrorCode.TABLET_NOT_FOUND, "deleted here")
        await self.start()
        return None

    async def write(self, request: Write, peer: str) -> Told:
        assert self.replica is not None
        try:
            index, term, count = await self.replica.replicate(request.text.encode(), timeout_s=5.0)
        except NotAppendedError as error:
            return Told({"fail": str(error)})
        except IndeterminateError as error:
            return Told({"info": str(error)})
        return Told({"index": index, "term": term, "count": count})

    async def read(self, request: Read, peer: str) -> Told:
        if self.replica is None:
            return Told({"fail": "no replica here"})
        try:
            index = await self.replica.confirm_leadership(timeout_s=5.0)
        except (NotLeaderError, TimeoutError) as error:
            return Told({"fail": str(error)})
        return Told({"index": index, "items": list(self.machine.items)})

    async def dump(self, request: Dump, peer: str) -> Told:
        files = await self.env.disk.list("tablets/")
        state = {} if self.replica is None else self.replica.dump()
        return Told({**state, "items": self.machine.items, "files": files, "health": self.health})
