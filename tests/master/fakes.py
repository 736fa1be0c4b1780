"""A master without a network, in virtual time.

`FakeReplica` is one object in place of the master's Raft replica: it keeps a log and applies
committed entries. Tests decide when entries commit: `hold()` keeps them uncommitted, `commit()`
commits them, and `depose()` ends the leadership while the fate of held entries is unknown.
`FakeTServers` gives scripted answers of tablet servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from harness.env import Address
from targets.kudu import messages as m
from targets.kudu.bugs import bugs_of
from targets.kudu.consensus.errors import IndeterminateError, NotLeaderError
from targets.kudu.consensus.messages import ConsensusError
from targets.kudu.context import NodeContext
from targets.kudu.flags import Flags
from targets.kudu.master.admin import Admin
from targets.kudu.master.catalog.catalog_manager import Ddl
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.follower_reads import FollowerReads
from targets.kudu.master.leadership import Leadership
from targets.kudu.master.master_service import MasterService
from targets.kudu.master.membership import Membership
from targets.kudu.master.tablets.async_rpc_tasks import Tasks
from targets.kudu.master.tablets.background import run_background
from targets.kudu.master.tablets.heartbeats import Heartbeats
from targets.kudu.master.tablets.ts_manager import TServerMap
from targets.kudu.rpc import Call, R_co, RpcConnectionError
from targets.kudu.rpc.server import request_type_of
from tests.support.env import FakeDisk, FakeEnv
from tests.support.virtual import VirtualClock

T = TypeVar("T")
WALL_START_NS = 1_700_000_000_000_000_000


async def settle(rounds: int = 50) -> None:
    """Run all tasks that can run, without advancing time."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def master_env(seed: int = 1) -> FakeEnv:
    """Return the `Env` of master `m1`, whose disk shows that it has been started before."""
    clock = VirtualClock(wall_begin_ns=WALL_START_NS)
    return FakeEnv("m1", clock=clock, disk=FakeDisk(instance=b""), seed=seed)


class FakeReplica:
    """The system tablet's replica on one master."""

    def __init__(self, machine: SystemTablet) -> None:
        self.machine = machine
        self.role = "FOLLOWER"
        self.term = 0
        self.config = m.RaftConfig(-1, (m.PeerConfig("a" * 32, "m1:7051"),))
        # (term, payload) of each entry; the index of an entry is its position + 1
        self.log: list[tuple[int, bytes]] = []
        self.applied = 0
        self.held = False
        self.reachable = True  # whether a majority answers
        self.confirmations = 0
        self.observer: Any = None
        self._waiters: dict[int, asyncio.Future[tuple[int, int, Any]]] = {}

    # --- the interface that the master uses --------------------------------------------------

    def leads(self, term: int) -> bool:
        return self.role == "LEADER" and self.term == term

    async def replicate(
        self, payload: bytes, *, timeout_s: float | None = None
    ) -> tuple[int, int, Any]:
        if self.role != "LEADER":
            raise NotLeaderError("not the leader")
        self.log.append((self.term, payload))
        index = len(self.log)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[index] = waiter
        await asyncio.sleep(0.001)
        if not self.held and self.role == "LEADER":
            self.commit()
        return await waiter

    async def confirm_leadership(self, *, timeout_s: float) -> int:
        self.confirmations += 1
        await asyncio.sleep(0.001)
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not (self.reachable and self.role == "LEADER" and self._own_term_applied()):
            if self.role != "LEADER":
                raise NotLeaderError("not the leader")
            if asyncio.get_running_loop().time() >= deadline:
                raise TimeoutError
            await asyncio.sleep(0.01)
        return self.applied

    def step_down(self) -> None:
        self.depose()

    def status(self) -> dict[str, Any]:
        return {"applied": self.applied}

    dump = status

    # the interface for tests

    def _own_term_applied(self) -> bool:
        return self.applied > 0 and self.log[self.applied - 1][0] == self.term

    def elect(self, term: int, *, no_op_commits: bool = True) -> None:
        """Become the leader. The NO_OP of the term commits all earlier entries, if it commits
        itself.
        """
        self.role, self.term = "LEADER", term
        self.log.append((term, b""))
        self.held = not no_op_commits
        self.observer(self)
        if no_op_commits:
            self.commit()

    def commit(self) -> None:
        """Commit and apply the whole log."""
        self.held = False
        while self.applied < len(self.log):
            term, payload = self.log[self.applied]
            self.applied += 1
            result = self.machine.apply(self.applied, term, payload) if payload else None
            waiter = self._waiters.pop(self.applied, None)
            if waiter is not None and not waiter.done():
                waiter.set_result((self.applied, term, result))

    def hold(self) -> None:
        """Commit nothing until `commit` is called."""
        self.held = True

    def depose(self, *, lose_tail: bool = False) -> None:
        """Follow another leader of a higher term; held entries may be overwritten."""
        self.role, self.term = "FOLLOWER", self.term + 1
        if lose_tail:
            del self.log[self.applied :]
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(IndeterminateError("deposed"))
        self._waiters.clear()
        self.observer(self)


class FakeTServers:
    """An RPC client that records calls to tablet servers and gives scripted answers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.answers: dict[str, m.TabletError | ConsensusError | Exception | None] = {}

    async def call(self, address: Address | str, request: Any, *, timeout_s: float) -> Any:
        await asyncio.sleep(0.001)
        name = request.method.split(".")[1]
        self.calls.append((str(address), name, request))
        answer = self.answers.get(name)
        if isinstance(answer, Exception):
            raise answer
        return request.answer_type(error=answer)

    def of(self, name: str) -> list[Any]:
        return [request for _, method, request in self.calls if method == name]


UNREACHABLE = RpcConnectionError("no process listens", sent=False)


class FakeMaster:
    """All parts of a master around a `FakeReplica`."""

    def __init__(
        self,
        *bugs: str,
        flags: Flags | None = None,
        profile: str = "strict",
        log_of: FakeReplica | None = None,
        seed: int = 1,
    ) -> None:
        self.env: Any = master_env(seed)
        self.flags = flags or Flags()
        self.rows = SystemTablet()
        self.replica = FakeReplica(self.rows)
        # with `log_of`, another master of the group, which has the same log but has applied nothing
        if log_of is not None:
            self.replica.log = list(log_of.log)
            self.replica.term = log_of.term
        self.client = FakeTServers()
        self.tservers = TServerMap()
        client: Any = self.client
        node = NodeContext(
            self.env, "a" * 32, "m1:7051", self.flags, bugs_of(profile, bugs), client
        )
        self.leadership = Leadership(
            node,
            self.rows,
            lambda catalog: Tasks(node, self.tservers, catalog),
            lambda epoch: epoch.adopt(
                self.env.spawn(run_background(node, epoch, self.tservers), name="background")
            ),
        )
        self.replica.observer = self.leadership.on_role_change
        self.heartbeats = Heartbeats(node, self.leadership, self.tservers)
        self.service = MasterService(
            node,
            rows=self.rows,
            leadership=self.leadership,
            tservers=self.tservers,
            ddl=Ddl(node, self.tservers),
            admin=Admin(node, self.tservers),
            heartbeats=self.heartbeats,
            follower_reads=FollowerReads(node, self.leadership),
            membership=Membership(node, self.leadership, ("m1:7051",)),
        )
        self.handlers: dict[type, Any] = {}
        server: Any = self
        self.calls: dict[str, int] = {}
        self.service.register(server)

    def serve(self, handler: Any, request_type: type | None = None) -> None:
        self.handlers[request_type or request_type_of(handler)] = handler

    async def ask(self, request: Call[R_co]) -> R_co:
        answer = self.handlers[type(request)](request, "client")
        return await answer if isinstance(answer, Coroutine) else answer

    async def lead(self, term: int = 1, *, tservers: int = 3) -> FakeMaster:
        """Win an election, load the catalog, and receive heartbeats of tablet servers."""
        self.leadership.on_role_change(self.replica)
        for number in range(tservers):
            await self.heartbeat(f"ts{number}")
        self.replica.elect(term)
        for _ in range(20):
            await asyncio.sleep(0.01)
            if self.leadership.epoch is not None:
                break
        assert self.epoch
        return self

    async def fail_over(self, term: int = 5) -> None:
        """Depose the master and let it lead again; forget all calls and scripted answers."""
        self.replica.depose()
        await self.lead(term)
        self.client.answers.clear()
        self.client.calls.clear()

    async def held(self, request: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a request that stays pending until the test calls `commit` or `depose`."""
        self.replica.hold()
        task = asyncio.ensure_future(request)
        await asyncio.sleep(0.1)
        return task

    async def heartbeat(
        self, uuid: str, report: m.TabletReport | None = None, **changes: Any
    ) -> m.TSHeartbeatResponse:
        fields: dict[str, Any] = {"registration": m.TSRegistration(f"{uuid}:7050")} | changes
        request = m.TSHeartbeatRequest(uuid, 1, report=report, **fields)
        answer = self.heartbeats.handle(request, uuid)
        return answer if isinstance(answer, m.TSHeartbeatResponse) else await answer

    # --- requests ----------------------------------------------------------------------------

    async def create(self, name: str, *columns: str, **changes: Any) -> m.CreateTableResponse:
        return await self.ask(create_request(name, *columns, **changes))

    async def delete(self, name: str, seq_no: int | None = None) -> m.DeleteTableResponse:
        request = m.DeleteTableRequest(m.TableIdentifier(table_name=name), request_id(seq_no))
        return await self.ask(request)

    async def alter(
        self, name: str, *steps: m.AlterStep, to: str | None = None, seq_no: int | None = None
    ) -> m.AlterTableResponse:
        request = m.AlterTableRequest(
            m.TableIdentifier(table_name=name), request_id(seq_no), steps, to
        )
        return await self.ask(request)

    async def get(self, name: str) -> m.GetTableSchemaResponse:
        request = m.GetTableSchemaRequest(m.TableIdentifier(table_name=name))
        return await self.ask(request)

    async def names(self) -> list[str]:
        answer = await self.ask(m.ListTablesRequest())
        assert answer.error is None, answer.error
        return [table.name for table in answer.tables]

    async def locate(self, name: str, **changes: Any) -> m.GetTableLocationsResponse:
        request = m.GetTableLocationsRequest(m.TableIdentifier(table_name=name), **changes)
        return await self.ask(request)

    async def run_tablets(self, name: str) -> None:
        """Let every tablet server report every tablet of a table as running, the leader first."""
        catalog = self.catalog
        for tablet in list(catalog.live_tablets(catalog.by_name[name])):
            assert tablet.consensus is not None, "not placed yet"
            version = catalog.tables[tablet.table_id].version
            peers = tablet.consensus.config.peers
            for peer in peers:
                replica = reported(tablet.id, tablet.consensus.config, peers[0].uuid, version)
                await self.heartbeat(peer.uuid, m.TabletReport(True, 1, (replica,)))

    @property
    def epoch(self) -> Any:
        assert self.leadership.epoch is not None
        return self.leadership.epoch

    @property
    def catalog(self) -> Any:
        return self.epoch.catalog


async def with_table(*columns: str, partitions: int = 1, running: bool = True) -> FakeMaster:
    """Return a leader with a placed table "t" whose tablets run."""
    master = await FakeMaster().lead()
    await master.create("t", *columns, partitions=partitions)
    await asyncio.sleep(0.1)
    if running:
        await master.run_tablets("t")
    return master


def refusal(answer: Any) -> Any:
    assert answer.error is not None, "it was granted"
    return answer.error


_numbers = iter(range(1_000, 1_000_000))


def request_id(seq_no: int | None = None) -> m.RequestId:
    number = next(_numbers) if seq_no is None else seq_no
    return m.RequestId("client-1", number, f"nonce-{number}")


def create_request(
    name: str,
    *columns: str,
    partitions: int = 1,
    replicas: int = 3,
    seq_no: int | None = None,
    **changes: Any,
) -> m.CreateTableRequest:
    names = columns or ("a",)
    schema = m.Schema((m.Column(0, "key", is_key=True), *(m.Column(0, column) for column in names)))
    identity = request_id(seq_no)
    fields: dict[str, Any] = {
        "name": name,
        "schema": schema,
        "partition_schema": m.PartitionSchema(partitions),
        "request_id": identity,
        "num_replicas": replicas,
        "comment": identity.nonce,
    }
    return m.CreateTableRequest(**(fields | changes))


def add(name: str) -> m.AlterStep:
    return m.AlterStep(m.StepType.ADD_COLUMN, column=m.Column(0, name))


def drop(name: str) -> m.AlterStep:
    return m.AlterStep(m.StepType.DROP_COLUMN, name=name)


def rename(old: str, new: str) -> m.AlterStep:
    return m.AlterStep(m.StepType.RENAME_COLUMN, name=old, new_name=new)


def reported(
    tablet_id: str,
    config: m.RaftConfig | None,
    leader: str | None,
    version: int = 0,
    *,
    term: int = 1,
    state: str = "RUNNING",
    data_state: str = "READY",
    error: str | None = None,
    **health: m.PeerHealth,
) -> m.ReportedTablet:
    return m.ReportedTablet(
        tablet_id, state, data_state, term, leader, config, version, error, peer_health=health
    )
