"""Every fault ends with its lease, in virtual time, whoever else heals it meanwhile or fails to."""

import asyncio
import math

import pytest

from harness.cluster import Bite, DiskQuality, Link, LinkQuality
from harness.errors import InfrastructureError, UsageError
from harness.faults.kinds import Aim, Clock, Cpu, Cut, Disk, Kill, Pause, Restart, Shape
from harness.faults.ledger import Ledger
from tests.faults.cluster import FakeCluster
from tests.sim.toy import run

FULL = Disk(quality=DiskQuality(full=True))
LATE = Shape(quality=LinkQuality(delay_ms=1.0))
UNDO = {"start", "resume", "heal"}


def go(body):
    """Run `body(inject, cluster, ledger)` in virtual time; returns names of tasks it spawned."""
    spawned = []

    async def main(session):
        cluster, spawn = FakeCluster(), session.env.spawn

        def noted(coro, *, name):
            spawned.append(name)
            return spawn(coro, name=name)

        session.env.spawn = noted
        ledger = Ledger(cluster, session.env)

        async def inject(what, lease_s):
            aim = Aim(what=what, targets=("m1",), links=(Link("m1", "m2"),))
            return (await ledger.inject(aim, lease_s=lease_s, groups={})).id

        await body(inject, cluster, ledger)

    run(main)
    return spawned


def undone(cluster):
    """How often something was undone."""
    good = [
        cluster.clocks.get("m1") == (0, 0),
        cluster.factors.get("m1") == 1.0,
        cluster.disks.get("m1") == DiskQuality(),
    ]
    return sum(good) + sum(call[0] in UNDO for call in cluster.calls)


@pytest.mark.parametrize(
    "what",
    [Kill(), Restart(), Pause(), Cut(), LATE, Clock(offset_ms=5.0), Cpu(factor=2.0), FULL],
    ids=lambda what: what.word,
)
def test_a_fault_that_nobody_heals_ends_with_its_lease(what):
    async def body(inject, cluster, ledger):
        await inject(what, 5.0)
        await asyncio.sleep(4.9)
        assert undone(cluster) == 0
        await asyncio.sleep(0.2)
        assert undone(cluster) == 1

    assert go(body) == ["lease-fault-1"]


def test_the_lease_of_a_fault_that_is_healed_is_over():
    async def body(inject, cluster, ledger):
        await ledger.heal(await inject(Pause(), 2.0))
        await inject(Pause(), 10.0)
        await asyncio.sleep(9.9)
        assert undone(cluster) == 1

    assert go(body) == []


def test_a_lease_that_ends_while_somebody_heals_undoes_nothing_twice():
    async def body(inject, cluster, ledger):
        heal = cluster.heal

        async def slowly(fault):
            await asyncio.sleep(2)
            return await heal(fault)

        cluster.heal = slowly
        fault = await inject(Cut(), 1.0)
        await asyncio.sleep(1.5)
        assert await ledger.heal(fault) == Bite(7, "frames")
        assert undone(cluster) == 1

    assert go(body) == ["lease-fault-1"]


@pytest.mark.parametrize("lasts_s", [0.0, 5.05], ids=["before", "meanwhile"])
@pytest.mark.parametrize(
    ("what", "verb"), [(Pause(), "resume"), (FULL, "worsen_disk")], ids=["pause", "disk"]
)
def test_what_could_not_be_healed_is_tried_again_when_its_lease_ends(what, verb, lasts_s):
    async def body(inject, cluster, ledger):
        fault = await inject(what, 5.0)
        undo = getattr(cluster, verb)

        async def fail(*args):
            setattr(cluster, verb, undo)
            await asyncio.sleep(lasts_s)
            raise InfrastructureError("no")

        setattr(cluster, verb, fail)
        with pytest.raises(InfrastructureError):
            await ledger.heal(fault)
        assert undone(cluster) == 0
        await asyncio.sleep(5.1)
        assert undone(cluster) == 1
        assert await ledger.heal(fault) is not None

    assert go(body) == ["lease-fault-1"]


def test_what_cannot_be_undone_when_its_lease_ends_ends_the_run():
    async def body(inject, cluster, ledger):
        async def fail(fault):
            raise InfrastructureError("no")

        cluster.heal = fail
        await inject(Cut(), 1.0)
        await asyncio.sleep(2)

    with pytest.raises(InfrastructureError):
        go(body)


@pytest.mark.parametrize("lease_s", [0.0, -1.0, math.inf, math.nan])
def test_a_lease_that_is_none_is_refused_before_anything_breaks(lease_s):
    async def body(inject, cluster, ledger):
        with pytest.raises(UsageError):
            await inject(Cut(), lease_s)
        assert cluster.calls == []

    go(body)
