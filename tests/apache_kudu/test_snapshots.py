"""Dumps built from the pages and RPC answers of real servers."""

import copy
from types import SimpleNamespace

import pytest

from harness.env import Address
from harness.ops import Verdict
from harness.permits import fact_of
from harness.plugins import NodeRole
from targets.apache_kudu import snapshots
from targets.apache_kudu.snapshots import dump_master, dump_tserver
from targets.apache_kudu.system import ApacheKuduSystem
from targets.apache_kudu.target import ApacheKuduTarget, layout_of
from targets.kudu import messages as m
from targets.kudu.consensus import messages as raft
from targets.kudu.convergence import MasterView, find_pending
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from tests.apache_kudu.test_target import settings
from tests.checkers.catalog.test_invariants import judge
from tests.support.histories import Writer

SERVERS = ("u1", "u2", "u3")
MASTERS = ("x1", "x2", "x3")
META = m.Meta("x1")
LEADER, FOLLOWER = NodeRole("leader", 2), NodeRole("follower", 2)


def config(uuids, leaving=()):
    peers = [m.PeerConfig(uuid, f"{uuid}:1", replace=uuid in leaving) for uuid in uuids]
    return m.RaftConfig(5, tuple(peers))


class Cluster:
    """Masters and tablet servers with the tables A and B, each of which has one tablet."""

    def __init__(self):
        self.versions = {"A": 0, "B": 3}
        self.states = {"A": "RUNNING", "B": "RUNNING"}
        self.held = {uuid: ["A1", "B1"] for uuid in SERVERS}
        self.configs = {}
        self.placed = SERVERS
        self.leader = "x1"
        self.leaderless = set()
        self.refused = set()
        self.asked = []

    def page(self):
        shown = [ident for ident, state in self.states.items() if state == "RUNNING"]
        replicas = [{"type": "VOTER", "server_uuid": uuid} for uuid in reversed(self.placed)]
        return {
            "tables": [
                {"table_id": ident, "table_name": ident.lower(), "state": "RUNNING"}
                for ident in shown
            ],
            "tablets": [
                {
                    "table_id": ident,
                    "tablet_id": f"{ident}1",
                    "state": "RUNNING",
                    "leader": "u1",
                    "replicas": replicas,
                }
                for ident in shown
            ],
            "tablet_servers": [{"uuid": uuid} for uuid in SERVERS],
        }

    def ask(self, uuid):
        async def ask(request, **_):
            self.asked.append((uuid, request))
            return None if type(request) in self.refused else self.answer(uuid, request)

        return ask

    def answer(self, uuid, request):
        match request:
            case m.ListTablesRequest():
                tables = [m.ListedTable(i, i.lower(), s, -1) for i, s in self.states.items()]
                return m.ListTablesResponse(META, tables=tuple(tables))
            case m.GetTableSchemaRequest():
                ident = request.table.table_id
                version = self.versions[ident]
                applied = version - (self.states[ident] != "RUNNING")
                return m.GetTableSchemaResponse(
                    META,
                    table_id=ident,
                    schema_version=version,
                    applied_schema_version=applied,
                    num_replicas=3,
                    comment=f"n-{ident}",
                )
            case m.GetTableLocationsRequest():
                roles = {each: "LEADER" if each == "u1" else "FOLLOWER" for each in SERVERS}
                replicas = [m.ReplicaLocation(u, u, role, "VOTER") for u, role in roles.items()]
                where = m.TabletLocations(
                    f"{request.table.table_id}1", m.Partition(b"", b""), tuple(replicas)
                )
                return m.GetTableLocationsResponse(META, tablets=(where,))
            case m.ListTabletsRequest():
                return m.ListTabletsResponse(uuid, tuple(map(self.hosted, self.held[uuid])), "kudu")
            case raft.GetConsensusStateRequest():
                if request.tablet_id == SYSTEM_TABLET_ID:
                    role = "LEADER" if uuid == self.leader else "FOLLOWER"
                    term = 2 if self.leader == "x1" else 3
                    return raft.GetConsensusStateResponse(
                        uuid, term, role, self.leader, config(MASTERS)
                    )
                if request.tablet_id in self.leaderless:
                    first = config(SERVERS)
                    return raft.GetConsensusStateResponse(uuid, 0, "FOLLOWER", None, first)
                mine = self.configs.get(request.tablet_id, config(SERVERS))
                role = "LEADER" if uuid == "u1" else "FOLLOWER"
                return raft.GetConsensusStateResponse(uuid, 1, role, "u1", mine)
        return raft.LeaderStepDownResponse()

    def hosted(self, tablet_id):
        return m.HostedTablet(
            tablet_id,
            "",
            tablet_id[0].lower(),
            "RUNNING",
            "READY",
            "FOLLOWER",
            1,
            "u1",
            m.Partition(b"", b""),
            self.versions.get(tablet_id[0], 0),
            -1,
        )


@pytest.fixture
def cluster(monkeypatch):
    cluster = Cluster()

    async def page(env, address):
        return copy.deepcopy(cluster.page())

    monkeypatch.setattr(snapshots, "_page", page)
    return cluster


async def dumped(cluster):
    masters = {}
    for number, uuid in enumerate(MASTERS, start=1):
        role = LEADER if number == 1 else FOLLOWER
        page = Address(f"m{number}", 8051)
        masters[f"m{number}"] = await dump_master(None, page, role, cluster.ask(uuid))
    owners = {"A1": "A", "B1": "B"}
    asks = {f"t{n}": cluster.ask(uuid) for n, uuid in enumerate(SERVERS, start=1)}
    tservers = {name: await dump_tserver(ask, owners) for name, ask in asks.items()}
    return masters, tservers


def pending(masters, tservers):
    roles = {name: LEADER if name == "m1" else FOLLOWER for name in masters}
    views = {name: MasterView(dump=dump, role=roles[name]) for name, dump in masters.items()}
    return find_pending(views, tservers)


def run(*, version=3, forgotten=()):
    """Build a history that deletes table C; the answer to the delete does not name the table."""
    h = Writer()
    h.create(1, "a", "A")
    h.create(1, "b", "B")
    h.create(2, "c", "C")
    for _ in range(version):
        h.ok(2, "alter", {"name": "b", "nonce": "x", "steps": [["add", "z"]]}, {"table_id": "B"})
    if "C" not in forgotten:
        h.ok(2, "delete", {"name": "c", "nonce": "y"}, {"table_id": None})
    return h


async def test_a_cluster_at_rest_is_sound(cluster):
    masters, tservers = await dumped(cluster)
    assert pending(masters, tservers) == ()
    assert masters["m1"]["name_map"] == {"a": "A", "b": "B"}
    assert [(t["id"], t["version"]) for t in masters["m1"]["tables"]] == [("A", 0), ("B", 3)]
    result = judge(run(), {"masters": masters, "tservers": tservers})
    assert result.verdict is Verdict.VALID, result


async def test_a_leader_that_was_just_deposed_does_not_lead_in_the_next_term(cluster):
    # m2 has just taken over in term 3, but `dumped` still takes m1 for the leader
    cluster.leader = "x2"
    masters, _ = await dumped(cluster)
    led = {name: (dump["role"], dump["term"], dump["ready"]) for name, dump in masters.items()}
    assert led == {
        "m1": ("FOLLOWER", 3, False),
        "m2": ("LEADER", 3, False),
        "m3": ("FOLLOWER", 3, False),
    }


async def test_a_table_that_nothing_deleted_is_missed(cluster):
    masters, tservers = await dumped(cluster)
    result = judge(run(forgotten=["C"]), {"masters": masters, "tservers": tservers})
    assert result.details["by_invariant"] == {"acknowledged": 1}


async def test_a_lost_alter_is_missed(cluster):
    masters, tservers = await dumped(cluster)
    result = judge(run(version=4), {"masters": masters, "tservers": tservers})
    assert result.details["by_invariant"] == {"acknowledged": 1}


async def test_an_altering_table_is_not_at_rest_although_its_page_hides_it(cluster):
    cluster.states["B"] = "ALTERING"
    masters, tservers = await dumped(cluster)
    assert [t["state"] for t in masters["m1"]["tables"]] == ["RUNNING", "ALTERING"]
    assert any("ALTERING" in line for line in pending(masters, tservers))
    assert judge(run(), {"masters": masters, "tservers": tservers}).verdict is Verdict.INVALID
    result = judge(run(), {"masters": masters, "tservers": tservers}, settled=False)
    assert result.verdict is Verdict.VALID, result


@pytest.mark.parametrize(
    "silent", [m.GetTableSchemaRequest, m.GetTableLocationsRequest, m.ListTablesRequest]
)
async def test_a_leader_that_does_not_tell_all_has_no_dump(cluster, silent):
    cluster.refused.add(silent)
    masters, _ = await dumped(cluster)
    assert masters["m1"] is None
    assert masters["m2"] is not None


def system_of(cluster, now):
    clock = SimpleNamespace(monotonic_ns=lambda: now[0] * 10**9)
    system = ApacheKuduSystem(SimpleNamespace(clock=clock), layout_of(settings()))
    uuids = dict(zip(("t1:7050", "t2:7050", "t3:7050"), SERVERS, strict=True))

    async def ask(address, request, **_):
        return await cluster.ask(uuids[address])(request)

    system._ask = ask
    return system


async def test_what_stays_of_a_removed_table_is_awaited_only_for_a_while(cluster):
    cluster.held["u2"].append("X1")
    cluster.leaderless.add("X1")
    now = [100]
    system = system_of(cluster, now)
    masters, tservers = await dumped(cluster)

    def awaited():
        return pending(masters, system._awaited(masters["m1"], tservers))

    assert any("X1" in line for line in awaited())
    now[0] += 10
    assert awaited() == ()
    h = run()
    h.fact("permits", fact_of("modern", ApacheKuduTarget().permits(settings())))
    result = judge(h, {"masters": masters, "tservers": tservers})
    assert result.verdict is Verdict.PERMITTED
    assert result.details["permitted"] == {"orphan-replicas": 1}


async def test_a_copy_whose_change_was_taken_back_is_awaited_only_for_a_while(cluster):
    cluster.placed = ("u1", "u3")
    cluster.configs = dict.fromkeys(("A1", "B1"), config(cluster.placed))
    now = [100]
    system = system_of(cluster, now)
    masters, tservers = await dumped(cluster)

    def strays():
        left = pending(masters, system._awaited(masters["m1"], tservers))
        return [line for line in left if "t2 holds tablet" in line]

    assert len(strays()) == 2
    now[0] += 10
    assert strays() == []
    cluster.configs = {}
    masters, tservers = await dumped(cluster)
    assert len(strays()) == 2


async def test_what_comes_back_of_a_removed_table_is_awaited_once_more(cluster):
    cluster.leaderless.add("X1")
    now = [100]
    system = system_of(cluster, now)
    for held, silent, awaits in [
        (["A1", "B1", "X1"], False, True),
        (["A1", "B1", "X1"], True, True),  # a silent server proves nothing
        (["A1", "B1", "X1"], False, False),
        (["A1", "B1"], False, False),
        (["A1", "B1", "X1"], False, True),
    ]:
        cluster.held["u2"] = held
        masters, tservers = await dumped(cluster)
        if silent:
            tservers["t2"] = None
        left = pending(masters, system._awaited(masters["m1"], tservers))
        assert bool(left) is awaits, left
        now[0] += 10


async def test_a_led_replica_of_a_removed_table_is_awaited_always(cluster):
    cluster.held["u2"].append("X1")
    now = [100]
    system = system_of(cluster, now)
    masters, tservers = await dumped(cluster)
    for _ in range(2):
        left = pending(masters, system._awaited(masters["m1"], tservers))
        assert any("X1" in line for line in left)
        now[0] += 10


@pytest.mark.parametrize(
    ("members", "leaving", "gives_way"),
    [
        ((*SERVERS, "u4"), ("u1",), True),
        ((*SERVERS, "u4"), ("u2",), False),  # the leader will evict u2
        (SERVERS, ("u1",), False),  # u1 is a new replica, which does not vote yet
    ],
)
async def test_a_leader_whose_replica_was_moved_steps_down(cluster, members, leaving, gives_way):
    cluster.configs["A1"] = config(members, leaving)
    await system_of(cluster, [0])._finish_moves()
    steps = [
        (who, r.tablet_id) for who, r in cluster.asked if type(r) is raft.LeaderStepDownRequest
    ]
    assert steps == ([("u1", "A1")] if gives_way else [])
