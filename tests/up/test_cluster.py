"""Faults that a user injects into a running cluster by hand, in virtual time."""

import asyncio

import pytest

from harness.cluster import Bite, NodeState
from harness.errors import InfrastructureError, TargetError, UsageError
from tests.support.virtual import run
from tests.up.fakes import Cluster, standing

pytestmark = pytest.mark.loop(run=run)


async def test_a_fault_stays_until_it_is_healed():
    here = standing()
    broken = await here.break_by_hand("kill leader", None)
    assert (broken.id, broken.targets, broken.left_s) == ("f1", ("m2",), None)
    await asyncio.sleep(1e6)
    assert here.session.cluster.state("m2") is NodeState.DOWN
    (healed,) = await here.heal_by_hand("f1")
    assert (healed.count, healed.unit, here.session.cluster.state("m2")) == (
        1, "processes", NodeState.RUNNING
    )  # fmt: skip
    assert await here.heal_by_hand("f1") == [healed]  # a second heal returns the same effect again


async def test_a_fault_ends_by_itself_to_the_moment():
    here = standing()
    await here.break_by_hand("cut leader from members", 30.0)
    await asyncio.sleep(29.0)
    (fault,) = (await here.status()).faults
    assert fault.left_s == pytest.approx(1.0, abs=0.01)
    assert any(here.session.cluster.links.values())
    await asyncio.sleep(1.01)
    report = await here.status()
    assert not any(here.session.cluster.links.values())
    assert (report.faults, [each.count for each in report.healed]) == ((), [7])


async def test_a_fault_healed_by_hand_is_not_healed_again_by_its_timer():
    here = standing()
    await here.break_by_hand("kill node:m1", 5.0)
    await here.heal_by_hand(None)
    await here.break_by_hand("kill node:m1", None)
    await asyncio.sleep(100.0)
    assert here.session.cluster.state("m1") is NodeState.DOWN


async def test_a_failed_undo_is_reported_and_retried():
    here = standing()
    await here.break_by_hand("cut leader from members", 5.0)
    here.session.cluster.failing = True
    await asyncio.sleep(6.0)
    (fault,) = (await here.status()).faults
    assert (fault.trouble, fault.left_s) == ("it resists", 0.0)
    with pytest.raises(InfrastructureError):
        await here.heal_by_hand("f1")
    here.session.cluster.failing = False
    assert [each.count for each in await here.heal_by_hand("f1")] == [7]


async def test_a_reset_is_over_at_once_and_an_operation_leaves_nothing():
    here = standing()
    broken = await here.break_by_hand("reset leader from members", None)
    assert (broken.healed.count, broken.healed.unit) == (5, "connections")
    done = await here.break_by_hand("do step-down on leader", None)
    assert (done.note, done.healed) == ("asked m2", None)
    assert (await here.status()).faults == ()


async def test_the_only_fault_need_not_be_named():
    here = standing()
    with pytest.raises(UsageError, match="none"):
        await here.heal_by_hand(None)
    await here.break_by_hand("kill node:m1", None)
    await here.break_by_hand("kill node:m3", None)
    with pytest.raises(UsageError, match="f1, f2"):
        await here.heal_by_hand(None)
    with pytest.raises(UsageError, match="f9"):
        await here.heal_by_hand("f9")
    await here.heal_by_hand("f2")
    assert [each.id for each in await here.heal_by_hand(None)] == ["f1"]


async def test_all_is_healed_and_started_whatever_ended_it():
    here = standing()
    await here.break_by_hand("kill node:m1", None)
    await here.break_by_hand("cut node:m2 from others", None)
    here.session.cluster.down.add("t1")  # the node is down, but not because of a fault
    assert [each.id for each in await here.heal_everything()] == ["f1", "f2"]
    assert here.session.cluster.down == set()
    assert ("mend",) in here.session.cluster.calls
    assert (await here.status()).faults == ()


async def test_a_fault_that_cannot_be_healed_blocks_no_other_heal():
    here = standing()
    await here.break_by_hand("cut leader from members", None)
    await here.break_by_hand("kill node:m1", None)
    here.session.cluster.down.add("t1")  # the node has exited on its own
    here.session.cluster.failing = True
    with pytest.raises(InfrastructureError, match="'f1' could not be undone: it resists"):
        await here.heal_everything()
    assert here.session.cluster.down == set()
    assert ("mend",) in here.session.cluster.calls
    report = await here.status()
    assert [[each.id for each in some] for some in (report.faults, report.healed)] == [
        ["f1"],
        ["f2"],
    ]
    here.session.cluster.failing = False
    assert [each.id for each in await here.heal_everything()] == ["f1"]


async def test_nodes_are_started_even_if_nothing_else_can_be_mended():
    class Unmended(Cluster):
        async def mend(self):
            raise InfrastructureError("no engine")

    here = standing(Unmended())
    await here.break_by_hand("kill node:m1", None)
    here.session.cluster.down.add("t1")  # the node has exited on its own
    with pytest.raises(InfrastructureError, match="no engine"):
        await here.heal_everything()
    assert here.session.cluster.down == set()
    assert (await here.status()).faults == ()


async def test_concurrent_heals_get_the_same_answer():
    class Slow(Cluster):
        async def set_links(self, wanted, *, lease_s):
            await asyncio.sleep(1.0)
            return await super().set_links(wanted, lease_s=lease_s)

    here = standing(Slow())
    await here.break_by_hand("cut leader from members", 10.0)  # finding the leader takes a second
    await asyncio.sleep(9.5)
    hand = asyncio.ensure_future(here.heal_by_hand("f1"))
    await asyncio.sleep(0.6)  # by then, the fault's lease has ended
    everything = await here.heal_everything()
    assert [each.count for each in (*await hand, *everything)] == [7, 7]
    assert [each.count for each in (await here.status()).healed] == [7]
    assert [call[0] for call in here.session.cluster.calls].count("set-links") == 2


async def test_draws_differ_from_one_fault_to_the_next():
    here = standing()
    hit = set()
    for _ in range(12):
        hit |= {(await here.break_by_hand("pause one", None)).targets}
    assert len(hit) > 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kill it when event leader", "has a time"),
        ("kill leader every 10s for 4s", "has a time"),
        ("kill leader at 1s for 4s", "has a time"),
        ("explode leader", "explode"),
        ("earthquake", "no nemesis"),
        ("kill node:m9", "no node 'm9'"),
        ("do fly on leader", "no operation"),
        ("shape leader from members loss=5%", "--env"),
        ("cut client:0 from leader", "distinguishes clients"),
        ("clock leader offset=5s", "foreign program"),
        ("disk leader error=5%", "foreign"),
    ],
)
async def test_impossible_requests_are_refused_without_effect(text, why):
    here = standing()
    with pytest.raises(UsageError, match=why):
        await here.break_by_hand(text, None)
    assert (here.session.cluster.calls, (await here.status()).faults) == ([], ())


@pytest.mark.parametrize("for_s", [0.0, -1.0, 0.01, 1e9, float("nan")])
async def test_a_time_must_be_one(for_s):
    with pytest.raises(UsageError, match="--for"):
        await standing().break_by_hand("kill leader", for_s)


async def test_a_fault_without_a_target_is_no_success():
    here = standing()
    await here.break_by_hand("kill leader", None)
    with pytest.raises(TargetError, match="hit no node"):
        await here.break_by_hand("kill node:m2", None)
    assert [each.id for each in (await here.status()).faults] == ["f1"]


async def test_there_is_a_limit(monkeypatch):
    monkeypatch.setattr("harness.up.cluster.ACTIVE_MAX", 2)
    here = standing()
    for node in ("m1", "m2"):
        await here.break_by_hand(f"kill node:{node}", None)
    with pytest.raises(UsageError, match="limit"):
        await here.break_by_hand("kill node:m3", None)


async def test_status_says_who_leads_and_what_is_wanting():
    here = standing()
    await here.break_by_hand("kill node:m1", None)
    report = await here.status()
    assert {node.name: node.state for node in report.nodes} == {
        "m1": "down", "m2": "running", "m3": "running", "t1": "running"
    }  # fmt: skip
    assert report.nodes[1].roles == {"catalog": "leader, term 3"}
    assert (report.leaders, report.ready, report.pending) == (
        {"catalog": "m2"}, False, ("a leader",)
    )  # fmt: skip


async def test_an_unmeasurable_bite_is_none():
    class Blind(Cluster):
        async def set_links(self, wanted, *, lease_s):
            bites = await super().set_links(wanted, lease_s=lease_s)
            return {fault: Bite(None, "packets") for fault in bites}

    here = standing(Blind())
    await here.break_by_hand("cut leader from members", None)
    assert [each.count for each in await here.heal_by_hand(None)] == [None]
