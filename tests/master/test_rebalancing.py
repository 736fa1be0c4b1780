"""The auto-rebalancer moves replicas, stops in time, and unmarks moves that failed."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from targets.kudu import messages as m
from targets.kudu.bugs import bugs_of
from targets.kudu.consensus import messages as raft
from targets.kudu.context import NodeContext
from targets.kudu.flags import Flags
from targets.kudu.master.catalog.batches import encode_batch
from targets.kudu.master.catalog.catalog_state import Catalog, LeaderView
from targets.kudu.master.catalog.records import (
    Batch,
    ConsensusState,
    TableRecord,
    TableState,
    TabletRecord,
    TabletState,
)
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.tablets import auto_rebalancer
from targets.kudu.master.tablets.auto_rebalancer import AutoRebalancer
from targets.kudu.master.tablets.rebalancing import Progress, ReplicaMove, plan_moves, progress_of
from tests.master.fakes import UNREACHABLE, FakeTServers
from tests.master.test_rereplication import Tablet, one_tablet
from tests.master.test_tablets import TABLET, catalog_with, config
from tests.support.virtual import run

pytestmark = pytest.mark.loop(run=run)
HEALTHY, FAILED = m.PeerHealth.HEALTHY, m.PeerHealth.FAILED
SERVERS = ("A", "B", "C", "D", "E")
Places = list[list[list[str]]]  # by table and tablet: the servers with a replica, leader first


def catalog_of(places: Places, *, index: int = 7, sick: str = "") -> Catalog:
    tables, tablets = [], []
    schema = m.Schema((m.Column(0, "key", is_key=True),))
    for number, table in enumerate(places):
        table_id = f"{number:032x}"
        count = len(table[0])
        tables.append(
            TableRecord(
                table_id, f"t{number}", 0, schema, m.PartitionSchema(), 1, count, TableState.RUNNING
            )
        )
        for at, uuids in enumerate(table):
            stored = ConsensusState(3, uuids[0], config(index, *uuids))
            partition = m.Partition(bytes([at]), b"")
            tablets.append(
                TabletRecord(f"{number:016x}{at:016x}", table_id, partition, TabletState.RUNNING,
                             stored)
            )  # fmt: skip
    rows = SystemTablet()
    rows.apply(1, 1, encode_batch(Batch(1, 0, tuple(tables), tuple(tablets))))
    catalog = Catalog.load(rows, 1)
    for tablet in tablets:
        assert tablet.consensus is not None
        peers = tablet.consensus.config.peers
        health = {peer.uuid: FAILED if peer.uuid == sick else HEALTHY for peer in peers}
        catalog.views[tablet.id] = LeaderView(peers[0].uuid, index, health)
    return catalog


def moved(places: Places, moves: list[ReplicaMove]) -> Places:
    after = [[list(uuids) for uuids in table] for table in places]
    for move in moves:
        uuids = after[int(move.tablet_id[:16], 16)][int(move.tablet_id[16:], 16)]
        uuids[uuids.index(move.source)] = move.target
    return after


def uneven(table: list[list[str]]) -> int:
    counts = [sum(uuid in uuids for uuids in table) for uuid in SERVERS]
    return max(counts) - min(counts)


tablets = st.permutations(SERVERS).map(lambda uuids: uuids[:3])
tables = st.lists(st.lists(tablets, min_size=1, max_size=6), min_size=1, max_size=3)


@given(tables, st.integers(1, 3), st.booleans(), st.randoms(use_true_random=False))
def test_rounds_of_moves_end_with_even_tables_and_servers(places, most, prefers, rng):
    flags = Flags(
        auto_rebalancing_max_moves_per_server=most,
        auto_rebalancing_prefer_follower_replica_moves=prefers,
    )
    for _ in range(100):
        moves = plan_moves(catalog_of(places), SERVERS, flags, rng=rng)
        if not moves:
            break
        busy = [uuid for move in moves for uuid in (move.source, move.target)]
        assert max(map(busy.count, busy)) <= most
        assert len({move.tablet_id for move in moves}) == len(moves)
        places = moved(places, moves)
        assert all(len(set(uuids)) == 3 for table in places for uuids in table)
    else:
        pytest.fail("the moves do not end")
    assert max(map(uneven, places)) <= 1


def test_an_empty_server_gets_replicas_of_followers_first():
    places = [[["A", "B", "C"], ["A", "B", "C"], ["B", "A", "C"]]]
    for _ in range(20):
        (move,) = plan_moves(catalog_of(places), ("A", "B", "C", "D"), Flags(), rng=random.Random())
        assert (move.target, move.config_index) == ("D", 7)
        leader = {0: "A", 1: "A", 2: "B"}[int(move.tablet_id, 16)]
        assert move.source != leader


@pytest.mark.parametrize(
    "catalog",
    [
        catalog_of([[["A", "B", "C"]] * 3], sick="C"),
        catalog_of([[["A"]] * 4]),  # tables with one replica never move
        catalog_of([[["A", "B", "C"]]]),
    ],
)
def test_nothing_moves(catalog):
    assert plan_moves(catalog, SERVERS, Flags(), rng=random.Random(1)) == []


def test_a_tablet_whose_newest_configuration_is_not_reported_does_not_move():
    catalog = catalog_of([[["A", "B", "C"]] * 3])
    assert plan_moves(catalog, SERVERS, Flags(), rng=random.Random(1))
    for tablet_id, view in list(catalog.views.items()):
        catalog.views[tablet_id] = LeaderView(view.leader_uuid, 6, view.health)
    assert plan_moves(catalog, SERVERS, Flags(), rng=random.Random(1)) == []


MOVE = ReplicaMove(TABLET, "B", "D", 7)


@pytest.mark.parametrize(
    ("words", "index", "leader", "expected"),
    [
        ("A B C", 7, "A", Progress.UNDER_WAY),  # the change has not been reported yet
        ("A Br C Dp", 9, "A", Progress.UNDER_WAY),
        ("A Br C Dp", 9, "B", Progress.UNDER_WAY),
        ("A Br C D", 9, "A", Progress.UNDER_WAY),
        ("A Br C D", 9, "B", Progress.LEADER_MUST_GO),
        ("A C D", 9, "A", Progress.DONE),
        ("A C Dp", 9, "A", Progress.UNDER_WAY),
        ("A Br C", 9, "A", Progress.FAILED),
        ("A Br C Ep", 9, "A", Progress.FAILED),
        ("A C E", 9, "A", Progress.FAILED),
        ("A B C D", 9, "A", Progress.FAILED),  # the mark is gone
    ],
)
def test_progress(words, index, leader, expected):
    peers = tuple(
        m.PeerConfig(word[0], f"{word[0]}:1", "NON_VOTER" if "p" in word else "VOTER",
                     promote="p" in word, replace="r" in word)
        for word in words.split()
    )  # fmt: skip
    catalog = catalog_with(consensus=ConsensusState(3, leader, m.RaftConfig(index, peers)))
    assert progress_of(catalog, MOVE) is expected


@pytest.mark.parametrize("state", [TabletState.DELETED, TabletState.REPLACED])
def test_the_move_of_a_dead_tablet_is_over(state):
    assert progress_of(catalog_with(state=state), MOVE) is Progress.DONE
    assert progress_of(Catalog(1), MOVE) is Progress.DONE


# --- rounds of the rebalancer ----------------------------------------------------------------


class Leading(FakeTServers):
    """Tablet servers; a tablet's leader also knows its configuration."""

    config = m.RaftConfig(-1, ())

    async def call(self, address: Any, request: Any, *, timeout_s: float) -> Any:
        if isinstance(request, raft.GetConsensusStateRequest):
            if isinstance(self.answers.get("BulkChangeConfig"), Exception):
                raise UNREACHABLE
            return raft.GetConsensusStateResponse("x", committed_config=self.config)
        return await super().call(address, request, timeout_s=timeout_s)


class Round:
    """A move that the rebalancer has begun: the tablet's second replica to a fourth server."""

    def __init__(self, tablet: Tablet, client: Leading, task: "asyncio.Task[None]") -> None:
        self.tablet, self.client, self.task = tablet, client, task

    @property
    def asked(self) -> list[tuple[list[tuple[str, str, bool]], int | None]]:
        return [
            ([(c.type.value, c.peer.uuid, c.peer.replace) for c in request.changes],
             request.cas_config_opid_index)
            for request in self.client.of("BulkChangeConfig")
        ]  # fmt: skip

    async def fail(self) -> None:
        """Report that the leaving replica is marked `replace`, and then that the new one was
        evicted.
        """
        tablet = self.tablet
        marked = m.PeerConfig(tablet.second, f"{tablet.second}:7050", replace=True)
        tablet.change(marked)
        self.client.config = tablet.config
        await tablet.report()


async def begin(monkeypatch: pytest.MonkeyPatch, *bugs: str) -> Round:
    flags = Flags(auto_rebalancing_interval_seconds=5)
    tablet = await one_tablet()
    master, client = tablet.master, Leading()
    move = ReplicaMove(tablet.id, tablet.second, tablet.spare[0], -1)
    rounds = iter([[move]])
    monkeypatch.setattr(auto_rebalancer, "plan_moves", lambda *_, **__: next(rounds, []))
    fake: Any = client
    node = NodeContext(master.env, "a" * 32, "m1:7051", flags, bugs_of("strict", bugs), fake)
    rebalancer = AutoRebalancer(node, master.epoch, master.tservers)
    task = asyncio.ensure_future(rebalancer.run())
    await asyncio.sleep(5.5)
    found = Round(tablet, client, task)
    assert found.asked == [
        ([("MODIFY_PEER", tablet.second, True), ("ADD_PEER", move.target, False)], -1)
    ]
    return found


@pytest.mark.parametrize("bugs", [(), ("KUDU-3789",)])
async def test_the_mark_of_a_failed_move_is_removed(monkeypatch, bugs):
    found = await begin(monkeypatch, *bugs)
    await found.fail()
    await asyncio.sleep(2)
    index = None if bugs else found.tablet.config.opid_index
    assert found.asked[1:] == [([("MODIFY_PEER", found.tablet.second, False)], index)]
    found.task.cancel()


@pytest.mark.parametrize(("bugs", "is_removed"), [((), True), (("KUDU-3789",), False)])
async def test_kudu_3789_forgets_a_mark_that_a_leader_out_of_reach_keeps(
    monkeypatch, bugs, is_removed
):
    found = await begin(monkeypatch, *bugs)
    await found.fail()
    found.client.answers["BulkChangeConfig"] = UNREACHABLE
    await asyncio.sleep(4)
    del found.client.answers["BulkChangeConfig"]
    before = len(found.asked)
    await asyncio.sleep(20)
    marks = [([("MODIFY_PEER", found.tablet.second, False)], found.tablet.config.opid_index)]
    assert found.asked[before:] == marks[:is_removed]
    found.task.cancel()


async def test_a_mark_that_is_gone_is_not_removed(monkeypatch):
    found = await begin(monkeypatch)
    await found.fail()
    peers = [replace(peer, replace=False) for peer in found.client.config.peers]
    found.client.config = m.RaftConfig(found.client.config.opid_index + 1, tuple(peers))
    await asyncio.sleep(20)
    assert len(found.asked) == 1
    found.task.cancel()
