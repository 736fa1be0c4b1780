"""Every fault ends with its lease, even after a heal that succeeded or failed (in virtual time)."""

import asyncio
import math

import pytest

from harness.cluster import Bite, DiskQuality, Link, LinkQuality
from harness.errors import InfrastructureError, UsageError
from harness.faults.ledger import Ledger
from harness.nodes.faults import Aim, Clock, Cpu, Cut, Disk, Kill, Pause, Restart, Shape
from tests.async_tests import on
from tests.sim.toy import run
from tests.support.cluster import FakeCluster

FULL = Disk(quality=DiskQuality(full=True))
LATE = Shape(quality=LinkQuality(delay_ms=1.0))
UNDO = {"start", "resume"}


def go(body):
    async def main(session):
        await body(Leases(session.env))

    run(main)


class Leases:
    """A ledger (the list of active faults) on a fake cluster, and the names of its tasks."""

    def __init__(self, env):
        self.spawned, self.cluster = [], FakeCluster()
        self.ledger = Ledger(self.cluster, env)
        spawn = env.spawn

        def noted(coro, *, name):
            self.spawned.append(name)
            return spawn(coro, name=name)

        env.spawn = noted

    async def inject(self, what, lease_s):
        aim = Aim(what=what, targets=("m1",), links=(Link("m1", "m2"),))
        return (await self.ledger.inject(aim, lease_s=lease_s, groups={})).id


def undone(cluster):
    good = [
        cluster.clocks.get("m1") == (0, 0),
        cluster.factors.get("m1") == 1.0,
        cluster.disks.get("m1") == DiskQuality(),
    ]
    whole = [not state for state in cluster.links.values()]
    return sum(good) + sum(whole) + sum(call[0] in UNDO for call in cluster.calls)


@pytest.mark.parametrize(
    "what",
    [Kill(), Restart(), Pause(), Cut(), LATE, Clock(offset_ms=5.0), Cpu(factor=2.0), FULL],
    ids=lambda what: what.word,
)
@on(go)
async def test_an_unhealed_fault_ends_with_its_lease(leases, what):
    await leases.inject(what, 5.0)
    await asyncio.sleep(4.9)
    assert undone(leases.cluster) == 0
    await asyncio.sleep(0.2)
    assert undone(leases.cluster) == 1
    assert leases.spawned == ["lease-f1"]


@on(go)
async def test_the_lease_of_a_fault_that_is_healed_is_over(leases):
    await leases.ledger.heal(await leases.inject(Pause(), 2.0))
    await leases.inject(Pause(), 10.0)
    await asyncio.sleep(9.9)
    assert undone(leases.cluster) == 1
    assert leases.spawned == []


@on(go)
async def test_a_lease_that_ends_during_a_heal_undoes_nothing_twice(leases):
    set_links = leases.cluster.set_links

    async def slowly(wanted, *, lease_s):
        await asyncio.sleep(2)
        return await set_links(wanted, lease_s=lease_s)

    fault = await leases.inject(Cut(), 1.0)
    leases.cluster.set_links = slowly
    await asyncio.sleep(1.5)
    assert await leases.ledger.heal(fault) == Bite(7, "frames")
    assert undone(leases.cluster) == 1
    assert leases.spawned == ["lease-f1"]


@pytest.mark.parametrize("lasts_s", [0.0, 5.05], ids=["before", "meanwhile"])
@pytest.mark.parametrize(
    ("what", "verb"), [(Pause(), "resume"), (FULL, "worsen_disk")], ids=["pause", "disk"]
)
@on(go)
async def test_a_failed_heal_is_retried_when_the_lease_ends(leases, what, verb, lasts_s):
    fault = await leases.inject(what, 5.0)
    undo = getattr(leases.cluster, verb)

    async def fail(*args):
        setattr(leases.cluster, verb, undo)
        await asyncio.sleep(lasts_s)
        raise InfrastructureError("no")

    setattr(leases.cluster, verb, fail)
    with pytest.raises(InfrastructureError):
        await leases.ledger.heal(fault)
    assert undone(leases.cluster) == 0
    await asyncio.sleep(5.1)
    assert undone(leases.cluster) == 1
    assert await leases.ledger.heal(fault) is not None
    assert leases.spawned == ["lease-f1"]


def test_a_failed_undo_at_the_end_of_a_lease_ends_the_run():
    async def body(leases):
        async def fail(wanted, *, lease_s):
            raise InfrastructureError("no")

        await leases.inject(Cut(), 1.0)
        leases.cluster.set_links = fail
        await asyncio.sleep(2)

    with pytest.raises(InfrastructureError):
        go(body)


@pytest.mark.parametrize("lease_s", [0.0, -1.0, math.inf, math.nan])
@on(go)
async def test_an_invalid_lease_is_refused_before_any_fault(leases, lease_s):
    with pytest.raises(UsageError):
        await leases.inject(Cut(), lease_s)
    assert leases.cluster.calls == []
