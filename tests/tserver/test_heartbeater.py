"""Heartbeat loops in virtual time, and a server's identity across restarts."""

import asyncio
import contextlib

import pytest

from harness.errors import TargetError, UsageError
from targets.kudu import messages as m
from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.flags import Flags
from targets.kudu.rpc import RpcError
from targets.kudu.tserver import node
from targets.kudu.tserver.heartbeater import Heartbeater
from tests.kudu_client.fakes import FakeEnv as VirtualEnv
from tests.support.env import FakeDisk
from tests.support.virtual import run
from tests.tserver.fakes import server_env

pytestmark = pytest.mark.loop(run=run)


class Tablets:
    """A fake tablet manager with two tablets to report."""

    live_tablets = 2

    def report(self, tablet_ids):
        ids = ("x", "y") if tablet_ids is None else tuple(tablet_ids)
        make = m.ReportedTablet
        return tuple(make(i, "RUNNING", "READY", 1, None, None, 0) for i in ids), ("gone",)


class Masters:
    """Fake masters: `leader` handles reports, `down` refuse connections, `silent` never answer."""

    def __init__(self, leader: str | None = "m1:7051") -> None:
        self.leader, self.term = leader, 1
        self.down: set[str] = set()
        self.silent: set[str] = set()
        self.named: dict[str, tuple[str, ...]] = {}  # the list of masters in each master's answers
        self.terms: dict[str, int] = {}  # masters whose term is not `term`
        self.beats: list[tuple[float, str, m.TSHeartbeatRequest]] = []

    async def call(self, address, request, *, timeout_s):
        self.beats.append((asyncio.get_running_loop().time(), address, request))
        if address in self.down:
            raise RpcError("refused", sent=False)
        if address in self.silent:
            await asyncio.sleep(timeout_s)
            raise RpcError("timed out", sent=True)
        leads = address == self.leader
        report = request.report
        return m.TSHeartbeatResponse(
            m.Meta(address, self.terms.get(address, self.term)),
            leader_master=leads,
            processed_sequence=report.sequence_number if leads and report else -1,
            master_addresses=self.named.get(address, ()),
            cluster_id="c1" if leads else "",
        )

    def to(self, address: str) -> list[m.TSHeartbeatRequest]:
        return [request for _, to, request in self.beats if to == address]


class Belongs:
    def __init__(self, cluster_id=""):
        self.cluster_id = cluster_id

    async def join(self, cluster_id):
        self.cluster_id = cluster_id


@contextlib.asynccontextmanager
async def beating(
    masters: Masters, addresses=("m1:7051", "m2:7051"), bugs=(), belongs=None, flags=None
):
    env = VirtualEnv()
    node = NodeContext(env, "u", "t1:7050", flags or Flags(), frozenset(bugs), masters)
    heartbeater = Heartbeater(node, addresses, belongs or Belongs(), seqno=9)
    task = env.spawn(heartbeater.run(Tablets()), name="heartbeats")
    yield heartbeater
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_first_beats_register_everywhere_and_then_keep_the_interval():
    masters = Masters()
    async with beating(masters):
        await asyncio.sleep(5.05)
    for address in ("m1:7051", "m2:7051"):
        first, *later = masters.to(address)
        assert first.registration == m.TSRegistration("t1:7050")
        assert (first.ts_uuid, first.ts_seqno, first.num_live_tablets) == ("u", 9, 2)
        assert not first.report.is_incremental
        assert [r.tablet_id for r in first.report.updated_tablets] == ["x", "y"]
        assert first.report.removed_tablet_ids == ("gone",)
        assert all(beat.registration is None for beat in later)
        assert len(later) in {4, 5}
    assert all(b.report.is_incremental for b in masters.to("m1:7051")[1:])
    assert all(b.report is None for b in masters.to("m2:7051")[1:])


async def test_the_first_leader_says_which_cluster_it_is_for_ever():
    masters, belongs = Masters(), Belongs()
    async with beating(masters, belongs=belongs):
        await asyncio.sleep(2.5)
    assert belongs.cluster_id == "c1"
    assert [beat.cluster_id for beat in masters.to("m1:7051")] == ["", "c1", "c1"]
    belongs = Belongs("another")
    async with beating(Masters(), belongs=belongs):
        await asyncio.sleep(2.5)
    assert belongs.cluster_id == "another"


async def test_servers_do_not_settle_in_a_cluster_that_may_forget_its_id():
    masters, belongs = Masters(), Belongs()
    async with beating(masters, belongs=belongs, flags=Flags(log_force_fsync_all=False)):
        await asyncio.sleep(2.5)
    assert belongs.cluster_id == ""


class OfTwoClusters(Masters):
    """Fake masters in which m2 leads another cluster, and answers slowly."""

    async def call(self, address, request, *, timeout_s):
        answer = await super().call(address, request, timeout_s=timeout_s)
        if address == "m1:7051":
            return answer
        await asyncio.sleep(0.5)
        meta, named = m.Meta(address, 99), ("m2:7051", "m9:7051")
        return m.TSHeartbeatResponse(
            meta, leader_master=True, master_addresses=named, cluster_id="c2"
        )


async def test_answers_of_another_cluster_are_ignored():
    masters, belongs = OfTwoClusters(), Belongs()
    async with beating(masters, belongs=belongs) as heartbeater:
        await asyncio.sleep(2.5)
        assert heartbeater.masters == ("m1:7051", "m2:7051")
    assert belongs.cluster_id == "c1"
    assert all(beat.registration for beat in masters.to("m2:7051"))


async def test_changes_reach_the_leader_at_once_and_together():
    masters = Masters()
    async with beating(masters) as heartbeater:
        await asyncio.sleep(1.5)
        seen = len(masters.beats)
        heartbeater.mark_dirty("y")
        await asyncio.sleep(0)
        heartbeater.mark_dirty("x")
        await asyncio.sleep(0.05)
        ((when, address, beat),) = masters.beats[seen:]
        assert address == "m1:7051"
        assert when < 1.52
        assert [r.tablet_id for r in beat.report.updated_tablets] == ["x", "y"]


async def test_a_new_leader_is_given_everything():
    masters = Masters()
    async with beating(masters) as heartbeater:
        await asyncio.sleep(1.5)
        masters.leader, masters.term = "m2:7051", 2
        heartbeater.mark_dirty("x")
        await asyncio.sleep(1.5)
        full = [b for b in masters.to("m2:7051")[1:] if b.report and not b.report.is_incremental]
        assert len(full) == 1
        assert full[0].registration is None


async def test_a_dead_master_costs_others_nothing_and_is_not_stormed():
    masters = Masters()
    masters.down.add("m2:7051")
    masters.silent.add("m3:7051")
    async with beating(masters, ("m1:7051", "m2:7051", "m3:7051")):
        await asyncio.sleep(10.5)
    assert len(masters.to("m1:7051")) == 11
    assert 10 <= len(masters.to("m2:7051")) <= 14
    assert len(masters.to("m3:7051")) == 1
    assert all(beat.registration for beat in masters.to("m2:7051"))


async def test_a_master_that_others_name_is_heartbeaten_to_while_they_do():
    masters = Masters()
    masters.named = {"m1:7051": ("m1:7051", "m3:7051")}
    async with beating(masters) as heartbeater:
        await asyncio.sleep(1.5)
        assert heartbeater.masters == ("m1:7051", "m2:7051", "m3:7051")
        first = masters.to("m3:7051")[0]
        assert first.registration == m.TSRegistration("t1:7050")
        assert not first.report.is_incremental
        masters.leader, masters.term = "m3:7051", 2
        heartbeater.mark_dirty("x")
        await asyncio.sleep(1.5)
        assert any(beat.report for beat in masters.to("m3:7051")[1:])
        masters.named = {"m1:7051": ("m1:7051",)}
        await asyncio.sleep(1.5)
        seen = len(masters.to("m3:7051"))
        await asyncio.sleep(5)
    assert heartbeater.masters == ("m1:7051", "m2:7051")  # the initial list stays
    assert len(masters.to("m3:7051")) == seen


async def test_of_masters_that_disagree_the_newest_term_is_believed_and_in_it_the_leader():
    masters = Masters()
    masters.term = 3
    masters.named = {
        "m1:7051": ("m1:7051", "m3:7051"),  # the leader's list
        "m2:7051": ("m2:7051", "m4:7051"),  # a follower whose list is out of date
    }
    async with beating(masters) as heartbeater:
        await asyncio.sleep(3.5)
        assert heartbeater.masters == ("m1:7051", "m2:7051", "m3:7051")
        masters.terms = {"m2:7051": 4}
        await asyncio.sleep(1.5)
        assert heartbeater.masters == ("m1:7051", "m2:7051", "m4:7051")


# --- identity --------------------------------------------------------------------------------


def start(disk: FakeDisk, wall_ns: int) -> node._Instance:
    env = server_env(disk)
    env.clock.now_ns = wall_ns
    return asyncio.run(node._start_instance(env))


def test_identity_is_kept_and_starts_are_distinct_at_any_clock():
    disk = FakeDisk()
    first = start(disk, 1000)
    assert len(first.uuid) == 32
    assert int(first.uuid, 16) >= 0
    assert first.seqno == 1000
    later = start(disk, 5000)
    set_back = start(disk, 200)
    assert (later.uuid, later.seqno) == (first.uuid, 5000)
    assert (set_back.uuid, set_back.seqno) == (first.uuid, 5001)


def test_corrupt_identity_is_not_replaced_by_a_new_one():
    disk = FakeDisk()
    disk.files["instance"] = b"{"
    with pytest.raises(TargetError, match="'instance'"):
        start(disk, 1)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "masters"),
        ({"masters": [], "address": "t1:7050", "flags": {}, "profile": "x"}, "'x'"),
        ({"masters": [], "address": "a", "flags": {}, "profile": "strict", "bugs": ["B"]}, "'B'"),
        ({"masters": [], "address": "a", "flags": {"no": 1}, "profile": "strict"}, "no"),
    ],
)
def test_bad_configuration_is_refused(config, text):
    with pytest.raises(UsageError, match=text):
        asyncio.run(node.main(server_env(), config))


async def test_switch_leader_only_heartbeats_finds_the_leader_and_stays():
    masters = Masters(leader="m2:7051")
    async with beating(masters, bugs=(Bug.LEADER_ONLY_HEARTBEATS,)):
        await asyncio.sleep(5)
        assert len(masters.to("m1:7051")) == 1
        masters.leader, before = "m1:7051", len(masters.to("m2:7051"))
        await asyncio.sleep(5)
    assert len(masters.to("m2:7051")) <= before + 1
    assert len(masters.to("m1:7051")) >= 4


@pytest.mark.parametrize("bugs", [(Bug.KUDU_1374,), ()])
async def test_switch_kudu_1374_clears_marks_for_all_masters(bugs):
    masters = Masters()
    async with beating(masters, bugs=bugs) as heartbeater:
        await asyncio.sleep(1.5)
        heartbeater.mark_dirty("x")
        await asyncio.sleep(0.5)
        marks = [loop._tracker.dirty for loop in heartbeater._loops.values()]
    assert [sorted(each) for each in marks] == [[], [] if bugs else ["x"]]


@pytest.mark.parametrize(("bugs", "loops"), [((Bug.KUDU_2684,), 2), ((), 1)])
async def test_switch_kudu_2684_sends_to_a_master_as_often_as_the_list_names_it(bugs, loops):
    masters = Masters()
    masters.named = {"m1:7051": ("m1:7051", "m3:7051")}
    twice = ("m1:7051", "m2:7051", "m1:7051")
    async with beating(masters, addresses=twice, bugs=bugs) as heartbeater:
        await asyncio.sleep(0.5)
        full = [beat for beat in masters.to("m1:7051") if not beat.report.is_incremental]
        masters.beats.clear()
        await asyncio.sleep(10)
        assert heartbeater.masters == ("m1:7051", "m2:7051", "m3:7051")
    assert len(full) == loops
    beats = [len(masters.to(f"m{number}:7051")) for number in (1, 2, 3)]
    assert beats == [10 * loops, 10, 10]
