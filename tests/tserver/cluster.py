"""Three simulated tablet servers with one tablet, and a driver that records acknowledged writes.

No master runs; a silent node takes its place.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from harness.cluster import CHECKPOINT, ClusterEvent, Link, NodeSpec
from harness.faults.ledger import Ledger
from harness.nodes.faults import Aim, Clock, Cut, Pause
from harness.plugins import Session
from harness.run.divergence import Checkpoints
from targets.kudu import messages as m
from targets.kudu.pages import TSERVER_PAGES_PORT
from targets.kudu.rpc import Call, R_co, RpcClient, RpcError
from tests.sim.toy import run, specs

T = TypeVar("T")
TABLET = "b" * 32
NAMES = ["t1", "t2", "t3"]
KEY = m.Column(0, "key", is_key=True)
SCHEMA = m.Schema((KEY, m.Column(1, "a"), m.Column(2, "b")))
FLAGS = {
    "tablet_snapshot_every": 7,
    "consensus_max_batch_size_bytes": 2000,
    "log_segment_size_kb": 8,
    "log_cache_size_limit_kb": 64,
}


def row(kind: str, key: str, **values: str | None) -> m.RowOperation:
    ids = {"a": 1, "b": 2}
    return m.RowOperation(m.RowKind[kind], (key,), {ids[name]: v for name, v in values.items()})


class Servers:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.cluster = session.cluster
        self.rng = session.env.random
        self.rpc = RpcClient(session.env)
        self.uuids: dict[str, str] = {}
        self.exits: list[ClusterEvent] = []
        self.checkpoints = Checkpoints()
        self.states = 0
        self.leader = NAMES[0]
        self.ledger = Ledger(session.cluster, session.env)
        session.cluster.subscribe(self.note)

    def note(self, event: ClusterEvent) -> None:
        if event.kind == CHECKPOINT:
            assert self.checkpoints.take(event.node, event.data, event.time_ns) == []
            self.states += "state" in event.data
        if event.kind == "leader":
            self.leader = event.node
        if event.kind == "node-exited" and not event.data["expected"]:
            self.exits.append(event)

    async def call(self, node: str, request: Call[R_co], *, timeout_s: float = 12.0) -> R_co:
        return await self.rpc.call(f"{node}:7050", request, timeout_s=timeout_s)

    async def create(self, **changes: Any) -> None:
        async with asyncio.timeout(30):
            while len(self.uuids) < len(NAMES):
                for name in NAMES:
                    with contextlib.suppress(RpcError):
                        listed = await self.call(name, m.ListTabletsRequest())
                        self.uuids[name] = listed.ts_uuid
                await asyncio.sleep(0.1)
        peers = tuple(m.PeerConfig(self.uuids[name], f"{name}:7050") for name in NAMES)
        for name in NAMES:
            fields: dict[str, Any] = {
                "dest_uuid": self.uuids[name],
                "table_id": "table",
                "table_name": "t",
                "tablet_id": TABLET,
                "partition": m.Partition(b"", b""),
                "schema": SCHEMA,
                "schema_version": 0,
                "config": m.RaftConfig(-1, peers),
                "partition_schema": m.PartitionSchema(),
            }
            request = m.CreateTabletRequest(**fields | changes)
            created = await self.call(name, request)
            assert created.error is None

    async def write(
        self, node: str, client: str, number: int, *rows: m.RowOperation, **more: Any
    ) -> m.WriteResponse:
        name = m.RowRequestId(client, number, more.pop("first_incomplete", 0))
        return await self.call(node, m.WriteRequest(TABLET, name, rows, **more))

    async def write_ok(self, client: str, number: int, *rows: m.RowOperation) -> m.WriteResponse:
        """Send the same request to all possible leaders in turn until one answers."""
        async with asyncio.timeout(60):
            while True:
                for node in [self.leader, *NAMES]:
                    try:
                        answer = await self.write(node, client, number, *rows)
                    except RpcError:
                        continue
                    if answer.error is None:
                        return answer
                await asyncio.sleep(0.1)

    async def page(self, node: str, **request: Any) -> m.ScanResponse:
        return await self.call(node, m.ScanRequest(TABLET, **request))

    async def scan(
        self, nodes: list[str], **request: Any
    ) -> tuple[m.ScanResponse, dict[str, tuple[Any, ...]]] | None:
        first: m.ScanResponse | None = None
        rows: dict[str, tuple[Any, ...]] = {}
        token = b""
        for count in range(10_000):
            node = nodes[count % len(nodes)]
            try:
                answer = await self.page(node, page_token=token, **request)
            except RpcError:
                return None
            if answer.error is not None:
                return None
            first = first or answer
            assert answer.snap_timestamp == first.snap_timestamp
            keys = [one[0] for one in answer.rows]
            assert [*rows, *keys] == sorted({*rows, *keys})
            rows |= {one[0]: one[1:] for one in answer.rows}
            token = answer.page_token
            if not token:
                return first, rows
        raise AssertionError("a scan without end")

    async def scan_ok(self, nodes: list[str], **request: Any) -> Any:
        async with asyncio.timeout(60):
            while True:
                for start in range(len(nodes)):
                    found = await self.scan(nodes[start:] + nodes[:start], **request)
                    if found is not None:
                        return found
                await asyncio.sleep(0.1)

    def links(self, node: str) -> list[Link]:
        others = [name for name in NAMES if name != node]
        return [link for other in others for link in (Link(node, other), Link(other, node))]

    async def broken(
        self, what: Cut | Pause | Clock, name: str, *, links: list[Link] | None = None
    ) -> None:
        aim = Aim(what=what, targets=(name,), links=tuple(links or ()))
        await self.ledger.inject(aim, lease_s=3 + 4 * self.rng.random(), groups={})

    async def dumps(self) -> list[dict[str, Any]]:
        """Wait until all servers have applied the same entries; return the tablet's dumps."""
        async with asyncio.timeout(60):
            while True:
                found = []
                for name in NAMES:
                    with contextlib.suppress(RpcError):
                        dump = await self.call(name, m.DumpTabletsRequest())
                        found.append(dump.data["tablets"][0])
                if (
                    len(found) == len(NAMES)
                    and len({dump["raft"]["applied_index"] for dump in found}) == 1
                ):
                    return found
                await asyncio.sleep(0.2)


def simulate(
    main: Callable[[Servers], Coroutine[Any, Any, T]],
    *,
    seed: int = 1,
    knobs: dict[str, Any] | None = None,
    **flags: Any,
) -> T:
    def server(name: str) -> NodeSpec:
        config = {
            "masters": ("m1:7000",),
            "address": f"{name}:7050",
            "flags": FLAGS | flags,
            "profile": "strict",
        }
        return NodeSpec(
            name=name,
            role="tserver",
            ports=(7050,),
            pages=TSERVER_PAGES_PORT,
            entry="targets.kudu.tserver.node:main",
            config=config,
        )

    async def body(session: Session) -> T:
        servers = Servers(session)
        await servers.create()
        result = await main(servers)
        assert servers.exits == []
        return result

    nodes = (*specs("m1", entry="echo"), *(server(name) for name in NAMES))
    return run(body, nodes, seed=seed, **(knobs or {}))
