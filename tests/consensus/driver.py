"""A driver for a group of Raft replicas in the simulation. It checks the replicas at the end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from harness.cluster import CHECKPOINT, ClusterEvent, Link
from harness.plugins import Session
from harness.run.divergence import Checkpoints
from targets.kudu.consensus import messages as msg
from targets.kudu.messages import PeerConfig
from targets.kudu.rpc import Call, R_co, RpcClient, RpcError
from tests.consensus.group import ASKS, GROUP, members
from tests.sim.toy import PORT, run

T = TypeVar("T")


class Group:
    """A Raft group as a test sees it: its leaders, its writes and their outcomes."""

    def __init__(self, session: Session, names: list[str]) -> None:
        self.session = session
        self.names = names
        self.client = RpcClient(session.env)
        self.leaders: dict[int, str] = {}  # term -> node
        self.kinds: dict[str, int] = {}
        self.exits: list[ClusterEvent] = []
        self.acknowledged: dict[str, int] = {}
        self.failed: list[str] = []
        self.checkpoints = Checkpoints()
        # (node, index) -> "log" or "state", in the order in which they were reported
        self.told: dict[tuple[str, int], list[str]] = {}
        session.cluster.subscribe(self.note)

    def note(self, event: ClusterEvent) -> None:
        self.kinds[event.kind] = self.kinds.get(event.kind, 0) + 1
        if event.kind == CHECKPOINT:
            assert self.checkpoints.take(event.node, event.data, event.time_ns) == []
            kind = "state" if "state" in event.data else "log"
            self.told.setdefault((event.node, event.data["index"]), []).append(kind)
        if event.kind == "leader":
            known = self.leaders.setdefault(event.data["term"], event.node)
            assert known == event.node, f"two leaders in term {event.data['term']}"
        if event.kind == "node-exited" and not event.data["expected"]:
            self.exits.append(event)

    async def ask(self, node: str, method: str, text: str = "") -> dict[str, Any]:
        answer = await self.client.call(f"{node}:{PORT}", ASKS[method](text), timeout_s=8.0)
        return answer.data

    async def leader(self, *, among: list[str] | None = None, timeout_s: float = 30.0) -> str:
        async with asyncio.timeout(timeout_s):
            while True:
                for name in among or self.names:
                    try:
                        answer = await self.ask(name, "Read")
                    except RpcError:
                        continue
                    if "index" in answer:
                        return name
                await asyncio.sleep(0.1)

    async def write(self, node: str, text: str) -> str:
        try:
            answer = await self.ask(node, "Write", text)
        except RpcError as error:
            return "info" if error.sent else "fail"
        if "index" in answer:
            self.acknowledged[text] = answer["index"]
            return "ok"
        if "fail" in answer:
            self.failed.append(text)
            return "fail"
        return "info"

    async def write_all(self, count: int, prefix: str = "w") -> None:
        leader = await self.leader()
        for number in range(count):
            assert await self.write(leader, f"{prefix}{number}") == "ok"

    async def consensus(self, node: str, request: Call[R_co], *, timeout_s: float = 20.0) -> R_co:
        return await self.client.call(f"{node}:{PORT}", request, timeout_s=timeout_s)

    async def change(
        self, kind: msg.ChangeType, name: str, member_type: str = "VOTER", **more: Any
    ) -> msg.ChangeConfigResponse:
        return await self.change_at(await self.leader(), kind, name, member_type, **more)

    async def change_at(
        self, leader: str, kind: msg.ChangeType, name: str, member_type: str = "VOTER", **more: Any
    ) -> msg.ChangeConfigResponse:
        cas = more.pop("cas", None)
        peer = PeerConfig(f"uuid-{name}", f"{name}:{PORT}", member_type, **more)
        request = msg.ChangeConfigRequest(
            f"uuid-{leader}", GROUP, msg.PeerChange(kind, peer), cas_config_opid_index=cas
        )
        return await self.consensus(leader, request)

    async def state(self, node: str) -> msg.GetConsensusStateResponse:
        request = msg.GetConsensusStateRequest(f"uuid-{node}", GROUP)
        return await self.consensus(node, request)

    async def voters(self) -> list[str]:
        config = (await self.state(await self.leader())).committed_config
        assert config is not None
        voters = [peer.uuid for peer in config.peers if peer.member_type == "VOTER"]
        return sorted(uuid.removeprefix("uuid-") for uuid in voters)

    async def wait_for_voters(self, *names: str, timeout_s: float = 20.0) -> None:
        async with asyncio.timeout(timeout_s):
            while True:
                if await self.voters() == sorted(names):
                    return
                await asyncio.sleep(0.1)

    async def restart(self, *names: str, **how: bool) -> None:
        for name in names:
            await self.session.cluster.kill(name, **how)
        for name in names:
            await self.session.cluster.start(name)

    def links(self, node: str) -> list[Link]:
        others = [name for name in self.names if name != node]
        return [link for other in others for link in (Link(node, other), Link(other, node))]

    async def converged(self, *, timeout_s: float = 60.0) -> list[dict[str, Any]]:
        """Wait until every node has applied the same entries, and return all dumps."""
        async with asyncio.timeout(timeout_s):
            while True:
                dumps = [await self.ask(name, "Dump") for name in self.names]
                if len({(dump["applied_index"], dump["digest"]) for dump in dumps}) == 1:
                    return dumps
                await asyncio.sleep(0.25)

    async def check(self) -> list[dict[str, Any]]:
        """Check the healed group.

        All nodes agree and none has crashed. Acknowledged writes exist exactly once, and failed
        writes do not exist.
        """
        await self.leader()
        dumps = await self.converged()
        for dump in dumps:
            items = dump["items"]
            assert items == dumps[0]["items"]
            assert len(items) == len(set(items))
            assert set(self.acknowledged) <= set(items)
            assert not set(self.failed) & set(items)
        digests: dict[int, str] = {}
        for dump in dumps:
            for index, digest in dump["digests"]:
                assert digests.setdefault(index, digest) == digest
        assert self.exits == []
        return dumps


def simulate(
    main: Callable[[Group], Coroutine[Any, Any, T]],
    *,
    nodes: int = 3,
    spares: int = 0,
    seed: int = 1,
    knobs: dict[str, Any] | None = None,
    **config: Any,
) -> T:
    """Run `main` on a simulated group of `nodes` members; `spares` more servers have no replica
    yet.
    """
    names = [f"n{number}" for number in range(1, nodes + spares + 1)]

    async def body(session: Session) -> T:
        return await main(Group(session, names[:nodes]))

    return run(body, members(names, peers=names[:nodes], **config), seed=seed, **(knobs or {}))
