"""The ledger of active faults undoes overlapping faults one by one."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cluster import (
    CLIENT,
    DRIFT_PPM_MIN,
    Bite,
    DiskQuality,
    Link,
    LinkQuality,
    StreamQuality,
)
from harness.errors import InfrastructureError, UsageError
from harness.faults.door import Door
from harness.faults.ledger import Ledger
from harness.nodes.degradation import DELAY_MS_MAX
from harness.nodes.faults import Aim, Clock, Cpu, Cut, Disk, Kill, Pause, Shape, Stream
from tests.support.cluster import MASTERS, FakeCluster, FakeEnv

NODES = ("m1", "m2", "m3", "t1")
GROUPS = {"catalog": MASTERS}
EIO = Disk(quality=DiskQuality(error=0.5))
FULL = Disk(quality=DiskQuality(full=True))
SLOW = Disk(quality=DiskQuality(delay_ms=20.0))
ROT = Disk(quality=DiskQuality(bitrot=0.25))


def fresh(damage="minority"):
    cluster = FakeCluster()
    return Ledger(cluster, FakeEnv(), damage=damage), cluster


async def hit(ledger, what, *nodes, groups=GROUPS):
    return await ledger.inject(Aim(what=what, targets=nodes), lease_s=9.0, groups=groups)


async def test_a_node_stays_down_while_another_fault_holds_it():
    ledger, cluster = fresh()
    first = await hit(ledger, Kill(), "m1")
    second = await hit(ledger, Kill(), "m1", "m2")
    assert second.targets == ("m2",)
    third = await hit(ledger, Kill(), "m1")
    assert (third.targets, "not running" in third.note) == ((), True)
    assert await ledger.heal(second.id) == Bite(1, "processes")
    assert cluster.down == {"m1"}
    await ledger.heal(first.id)
    assert cluster.down == set()


async def test_a_power_cut_of_a_node_that_is_down_names_the_disk():
    ledger, _ = fresh()
    await hit(ledger, Kill(), "m1")
    missed = await hit(ledger, Kill(power_cut=True, torn=True), "m1")
    assert (missed.targets, missed.disks) == ((), ("m1",))
    assert (await hit(ledger, Kill(), "m1")).disks == ()


async def test_a_fault_is_healed_once_and_returns_the_same_bite_again():
    ledger, cluster = fresh()
    healed = []
    aim = Aim(what=Cut(), targets=("m1",), links=(Link("m1", "m2"),), note="cut")
    injection = await ledger.inject(
        aim,
        lease_s=9.0,
        groups=GROUPS,
        fault_id="planned",
        on_heal=lambda *told: healed.append(told),
    )
    assert injection.id == "planned"
    assert cluster.links == {Link("m1", "m2"): {"planned": None}}
    assert ledger.active == ["planned"]
    bite = Bite(7, "frames")
    assert [await ledger.heal("planned") for _ in range(2)] == [bite] * 2
    assert (cluster.links, ledger.active) == ({Link("m1", "m2"): {}}, [])
    assert healed == [(injection, bite)]
    for call in (
        ledger.heal("unknown"),
        ledger.inject(aim, lease_s=9.0, groups=GROUPS, fault_id="planned"),
    ):
        with pytest.raises(UsageError):
            await call


async def test_a_fault_is_extended_to_another_node_while_it_is_active():
    ledger, cluster = fresh()
    pause = await hit(ledger, Pause(), "m1")
    for node in ("m2", "m2"):
        await ledger.extend(pause.id, node, lease_s=9.0)
    (extended,) = ledger.injections
    assert (extended.targets, extended.note) == (("m1", "m2"), "paused m1, m2")
    assert (await ledger.heal(pause.id)).count == 2
    assert ("resume", "m2") in cluster.calls
    cluster.calls.clear()
    for fault in (pause.id, "unknown"):
        await ledger.extend(fault, "m3", lease_s=9.0)
    assert cluster.calls == []


class Resisting(FakeCluster):
    """A cluster that cannot restore links or processors."""

    error = InfrastructureError("it resists")

    async def set_links(self, wanted, *, lease_s):
        if lease_s == 0.0:
            raise self.error
        return await super().set_links(wanted, lease_s=lease_s)

    async def mend(self):
        await super().mend()
        raise InfrastructureError("no engine")


async def test_a_fault_that_cannot_be_undone_keeps_no_other_from_being_undone():
    cluster = Resisting()
    ledger = Ledger(cluster, FakeEnv())
    cut = Aim(what=Cut(), targets=("m1",), links=(Link("m1", "m2"),))
    first, _, third = [
        await ledger.inject(aim, lease_s=9.0, groups=GROUPS)
        for aim in (cut, Aim(what=Kill(), targets=("m1",)), cut)
    ]
    with pytest.raises(InfrastructureError) as caught:
        await ledger.heal_active()
    assert (cluster.down, ledger.active) == (set(), [first.id, third.id])
    assert str(caught.value).count("it resists") == 2
    with pytest.raises(InfrastructureError, match="no engine") as caught:
        await ledger.heal_all()
    assert [each in str(caught.value) for each in ("'f1'", "'f2'", "'f3'")] == [True, False, True]
    assert len(caught.value.__cause__.exceptions) == 3


async def test_a_defect_in_a_heal_is_no_infrastructure_error():
    cluster = Resisting()
    cluster.error = KeyError("m1")
    ledger = Ledger(cluster, FakeEnv())
    cut = Aim(what=Cut(), targets=("m1",), links=(Link("m1", "m2"),))
    await ledger.inject(cut, lease_s=9.0, groups=GROUPS)
    with pytest.raises(ExceptionGroup) as caught:
        await ledger.heal_all()
    assert [type(each) for each in caught.value.exceptions] == [KeyError, InfrastructureError]


async def test_the_heal_of_one_of_two_faults_leaves_the_other():
    ledger, cluster = fresh()
    there, back = Link("m1", "m2"), Link("m2", "m1")
    first, second = [
        await ledger.inject(
            Aim(what=Cut(), targets=("m1",), links=(link,)), lease_s=9.0, groups=GROUPS
        )
        for link in (there, back)
    ]
    await ledger.heal(second.id)
    assert cluster.links == {there: {first.id: None}, back: {}}


LATE = Shape(quality=LinkQuality(delay_ms=5.0))
PIECES = Stream(quality=StreamQuality(slice_bytes=64))
ENDS = ("m1", "m2", CLIENT)
LINKS = tuple(Link(a, b) for a in ENDS for b in ENDS if a != b)
LINK_FAULTS = st.sampled_from([Cut(), LATE, PIECES])
LINK_STEPS = st.lists(
    st.one_of(
        st.tuples(LINK_FAULTS, st.sets(st.sampled_from(LINKS), min_size=1)),
        st.integers(0, 9),  # the position of the active fault to heal
        st.sampled_from(ENDS[:2]),  # relieve this node
    ),
    max_size=14,
)


@given(LINK_STEPS)
def test_a_link_has_all_faults_that_are_on_it_and_healing_in_parts_adds_up(steps):
    async def main():
        ledger, cluster = fresh()
        on, parts = {}, {}
        for step in steps:
            if isinstance(step, tuple):
                what, links = step
                aim = Aim(what=what, targets=("m1",), links=tuple(links))
                injection = await ledger.inject(aim, lease_s=9.0, groups=GROUPS)
                on[injection.id], parts[injection.id] = (what, set(links)), 0
            elif isinstance(step, str):
                await ledger.relieve([step])
                for name, (_, links) in on.items():
                    inside = links & {Link(step, CLIENT), Link(CLIENT, step)}
                    parts[name] += bool(inside)
                    links.difference_update(inside)
            elif on:
                fault_id = list(on)[step % len(on)]
                parts[fault_id] += bool(on.pop(fault_id)[1])
                assert await ledger.heal(fault_id) == Bite(7 * parts[fault_id], "frames")
            for link in LINKS:
                assert cluster.links.get(link, {}) == {
                    name: getattr(what, "quality", None)
                    for name, (what, links) in on.items()
                    if link in links
                }

    asyncio.run(main())


async def test_a_link_fault_that_did_not_take_is_taken_off_again():
    ledger, cluster = fresh()
    set_links = cluster.set_links

    async def half(wanted, *, lease_s):
        cluster.set_links = set_links
        await set_links(dict([*wanted.items()][:1]), lease_s=lease_s)
        raise InfrastructureError("no")

    cluster.set_links = half
    aim = Aim(what=Cut(), targets=("m1",), links=LINKS)
    with pytest.raises(InfrastructureError):
        await ledger.inject(aim, lease_s=9.0, groups=GROUPS)
    assert not any(cluster.links.values())
    assert ledger.active == []


@pytest.mark.parametrize(
    ("fault", "on"),
    [
        (Cut(), []),
        (Cut(), ["m1"]),
        (Kill(), [Link("m1", "m2")]),
        (Shape(quality=LinkQuality()), [Link("m1", "m2")]),
        (Shape(quality=LinkQuality(drop=1.5)), [Link("m1", "m2")]),
        (Kill(), ["m3"]),  # m3 is already down
    ],
)
async def test_the_public_door_refuses_a_fault_that_cannot_hit(fault, on):
    cluster = FakeCluster(down=("m3",))
    door = Door(cluster, Ledger(cluster, FakeEnv()))
    with pytest.raises(UsageError):
        await door.inject(fault, on, lease_s=9.0)
    assert not any(cluster.links.values())


async def test_the_public_door_breaks_nodes_and_links():
    cluster = FakeCluster()
    door = Door(cluster, Ledger(cluster, FakeEnv()))
    kill = await door.inject(Kill(), ["m1"], lease_s=9.0)
    cut = await door.inject(Cut(), [Link("m1", CLIENT)], lease_s=9.0)
    assert (cluster.down, cluster.links) == ({"m1"}, {Link("m1", CLIENT): {cut: None}})
    assert [await door.heal(kill), await door.heal(cut)] == [
        Bite(1, "processes"),
        Bite(7, "frames"),
    ]
    assert cluster.down == set()


CONDITIONS = st.sampled_from(
    [
        EIO,
        FULL,
        SLOW,
        ROT,
        Clock(offset_ms=5.0),
        Clock(offset_ms=-2.0, drift_ppm=300),
        Cpu(factor=3.0),
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(CONDITIONS, st.sets(st.sampled_from(NODES), min_size=1)),
        st.integers(0, 9),  # the position of the active fault to heal
        st.sampled_from(NODES),  # relieve this node
    ),
    max_size=14,
)


def expected(on, node):
    """Return the node's clock, processor and disk under all faults that are active on it."""
    faults = [what for what, nodes in on.values() if node in nodes]
    clocks = [what for what in faults if isinstance(what, Clock)]
    disks = [what.quality for what in faults if isinstance(what, Disk)]
    return (
        sum(clock.offset_ms for clock in clocks),
        sum(clock.drift_ppm for clock in clocks),
        math.prod(what.factor for what in faults if isinstance(what, Cpu)),
        1 - math.prod(1 - disk.error for disk in disks),
        any(disk.full for disk in disks),
        sum(disk.delay_ms for disk in disks),
        1 - math.prod(1 - disk.bitrot for disk in disks),
    )


def found(cluster, node):
    offset_ns, drift_ppm = cluster.clocks.get(node, (0, 0))
    disk = cluster.disks.get(node, DiskQuality())
    factor = cluster.factors.get(node, 1.0)
    clock = (offset_ns / 1e6, drift_ppm)
    return (*clock, factor, disk.error, disk.full, disk.delay_ms, disk.bitrot)


@given(STEPS)
def test_what_a_node_feels_is_what_all_faults_on_it_make(steps):
    async def main():
        ledger, cluster = fresh(damage="majority")
        on = {}
        for step in steps:
            if isinstance(step, tuple):
                what, nodes = step
                injection = await hit(ledger, what, *sorted(nodes))
                on[injection.id] = (what, set(nodes))
            elif isinstance(step, str):
                await ledger.relieve([step])
                for _, nodes in on.values():
                    nodes.discard(step)
            elif on:
                fault_id = list(on)[step % len(on)]
                await ledger.heal(fault_id)
                del on[fault_id]
            for node in NODES:
                assert found(cluster, node) == pytest.approx(expected(on, node))

    asyncio.run(main())


async def test_a_node_that_runs_starts_again_on_a_disk_that_rots():
    ledger, cluster = fresh(damage="majority")
    await hit(ledger, SLOW, "m1")
    await hit(ledger, ROT, "m1")
    assert cluster.calls == [("kill", "m1", False, False), ("start", "m1")]
    assert cluster.disks["m1"] == DiskQuality(delay_ms=20.0, bitrot=0.25)
    cluster.down.add("t1")
    await hit(ledger, ROT, "t1")
    assert cluster.down == {"t1"}
    assert len(cluster.calls) == 2
    assert cluster.disks["t1"].bitrot == 0.25


async def test_a_node_starts_on_rot_only_when_no_other_fault_would_end_it_at_once():
    ledger, cluster = fresh()
    eio = await hit(ledger, EIO, "m1")
    rot = await hit(ledger, ROT, "m1")
    assert cluster.down == {"m1"}
    await ledger.heal(eio.id)
    assert cluster.down == {"m1"}  # bit rot may also have ended the node, and it is still active
    await ledger.heal(rot.id)
    assert cluster.down == set()


async def test_a_node_that_lived_with_a_wrong_clock_starts_on_rot():
    ledger, cluster = fresh()
    await hit(ledger, Clock(offset_ms=5.0), "m1")
    await hit(ledger, ROT, "m1")
    assert cluster.down == set()


async def test_a_node_ended_by_bit_rot_starts_after_the_heal():
    ledger, cluster = fresh()
    fault = await hit(ledger, ROT, "m1")
    cluster.requests = 2
    cluster.end("m1")
    assert await ledger.heal(fault.id) == Bite(2, "requests")
    assert cluster.down == set()
    assert cluster.disks["m1"] == DiskQuality()


async def test_a_disk_counts_the_requests_of_its_time():
    ledger, cluster = fresh()
    cluster.requests = 3
    first = await hit(ledger, SLOW, "m1")
    second = await hit(ledger, EIO, "m1")
    assert await ledger.heal(first.id) == Bite(6, "requests")
    assert await ledger.heal(second.id) == Bite(6, "requests")


async def test_a_clock_counts_the_ms_by_which_it_jumped():
    ledger, cluster = fresh()
    fault = await hit(ledger, Clock(offset_ms=40.0), "m1", "m2")
    # the clocks of both nodes jumped 40 ms forward and 40 ms back
    assert await ledger.heal(fault.id) == Bite(160, "ms")
    assert set(cluster.clocks.values()) == {(0, 0)}


async def test_a_strobe_goes_on_and_off_until_it_is_healed():
    ledger, cluster = fresh()
    seen = []
    skew = cluster.skew

    async def record(node, *, offset_ns, drift_ppm=0):
        seen.append(offset_ns)
        await skew(node, offset_ns=offset_ns, drift_ppm=drift_ppm)
        if len(seen) == 5:
            flashed.set()

    flashed = asyncio.Event()
    cluster.skew = record
    fault = await hit(ledger, Clock(offset_ms=7.0, strobe_ms=1.0), "m1")
    await flashed.wait()
    bite = await ledger.heal(fault.id)
    assert seen[:5] == [7_000_000, 0, 7_000_000, 0, 7_000_000]
    assert cluster.clocks["m1"] == (0, 0)
    assert bite.count >= 7 * 5


async def test_a_node_ended_by_a_bad_disk_starts_when_no_fault_keeps_it_down():
    ledger, cluster = fresh()
    one, two = await hit(ledger, EIO, "m1", "m2"), await hit(ledger, FULL, "m1")
    killed = await hit(ledger, Kill(), "m2")
    cluster.down.add("m1")
    await ledger.heal(one.id)
    assert cluster.down == {"m1", "m2"}
    await ledger.heal(two.id)
    assert cluster.down == {"m2"}
    await ledger.heal(killed.id)
    assert cluster.down == set()


@pytest.mark.parametrize("relieved", [True, False])
async def test_a_node_ended_late_by_a_bad_disk_starts_as_soon_as_it_ends(relieved):
    ledger, cluster = fresh()
    fault = await hit(ledger, EIO, "m1")
    await (ledger.relieve(["m1"]) if relieved else ledger.heal(fault.id))
    for node in ("m1", "m2"):
        cluster.end(node)
    await asyncio.sleep(0)
    assert cluster.down == {"m2"}


async def test_a_slow_disk_starts_no_node_that_was_down():
    ledger, cluster = fresh()
    slow = await hit(ledger, SLOW, "m1")
    cluster.down.add("m1")
    await ledger.heal(slow.id)
    assert cluster.down == {"m1"}


async def test_a_pause_without_a_running_node_is_a_miss():
    ledger, cluster = fresh()

    async def refuse(node, *, lease_s):
        return False

    cluster.pause = refuse
    missed = await hit(ledger, Pause(), "m1")
    assert (missed.targets, missed.what) == ((), None)


async def test_faults_injected_at_the_same_time_have_distinct_ids():
    ledger, cluster = fresh()
    kill = cluster.kill

    async def slowly(node, **named):
        await asyncio.sleep(0.001)
        return await kill(node, **named)

    cluster.kill = slowly
    first, second, third = await asyncio.gather(
        hit(ledger, Kill(), "m1"), hit(ledger, Pause(), "m2"), hit(ledger, Kill(), "m3")
    )
    assert len({first.id, second.id, third.id}) == 3
    for injection in (third, first, second):
        assert await ledger.heal(injection.id) == Bite(1, "processes")
    assert cluster.calls[-3:] == [("start", "m3"), ("start", "m1"), ("resume", "m2")]


async def test_faults_that_are_too_much_together_are_as_much_as_there_may_be():
    ledger, cluster = fresh()
    slow = Disk(quality=DiskQuality(delay_ms=40_000.0))
    faults = [await hit(ledger, slow, "m1") for _ in range(2)]
    assert cluster.disks["m1"].delay_ms == DELAY_MS_MAX
    await hit(ledger, Clock(drift_ppm=-500_000), "m1")
    await hit(ledger, Clock(drift_ppm=-500_000), "m1")
    assert cluster.clocks["m1"] == (0, DRIFT_PPM_MIN)
    await ledger.heal(faults[0].id)
    assert cluster.disks["m1"].delay_ms == 40_000.0


async def test_a_fault_that_did_not_take_is_not_felt_by_others():
    ledger, cluster = fresh()
    cluster.worsen_disk, worsen = refusing, cluster.worsen_disk
    with pytest.raises(InfrastructureError):
        await hit(ledger, FULL, "m1")
    cluster.worsen_disk = worsen
    await hit(ledger, SLOW, "m1")
    assert cluster.disks["m1"] == SLOW.quality


async def refusing(node, quality=None):
    raise InfrastructureError(f"{node} does not answer")


async def test_a_node_that_is_being_killed_is_not_started():
    ledger, cluster = fresh()
    wrong = await hit(ledger, Clock(offset_ms=5.0), "m1")
    going, killed = asyncio.Event(), cluster.kill

    async def slowly(node, **how):
        found = await killed(node, **how)
        await going.wait()
        return found

    cluster.kill = slowly
    kill = asyncio.create_task(hit(ledger, Kill(), "m1"))
    await asyncio.sleep(0)
    await ledger.heal(wrong.id)
    going.set()
    await kill
    assert cluster.down == {"m1"}


async def test_a_heal_retries_a_start_that_failed():
    ledger, cluster = fresh()
    broken = await hit(ledger, EIO, "m1")
    cluster.down.add("m1")
    cluster.start, start = refusing, cluster.start
    with pytest.raises(InfrastructureError):
        await ledger.heal(broken.id)
    cluster.start = start
    assert await ledger.heal(broken.id) == Bite(0, "requests")
    assert cluster.down == set()
