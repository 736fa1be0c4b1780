"""A freeze during the start of nodes pauses every node, whenever it started."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from harness.cluster import ClusterEvent
from harness.run.freeze import Freezer, Violation
from tests.support.cluster import FakeCluster, FakeEnv, FakeSystem, conductor_of

VIOLATION = Violation(checker="c", rule="r", reason="why", ops=3)


class Starting(FakeCluster):
    """A cluster that pauses and thaws nodes on request; each start is an event."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.paused = set()
        self.at_pause = lambda: None

    async def start(self, node, variant=None):
        await super().start(node, variant)
        for callback in self.callbacks:
            callback(ClusterEvent(0, node, "node-started", {"boot": 1}, by_driver=True))
        return True

    async def pause(self, node, *, lease_s):
        await super().pause(node, lease_s=lease_s)
        self.paused.add(node)
        self.at_pause()
        return True

    async def resume(self, node):
        self.paused.discard(node)
        return True


class System(FakeSystem):
    async def snapshot(self):
        return {}


def running(cluster, faults):
    """Build a run in its chaos phase, in which the coroutine `faults` injects the faults."""
    conductor, recorder = conductor_of("kill leader", cluster)

    async def phases(*, ends):
        await asyncio.Event().wait()

    return SimpleNamespace(
        conductor=conductor, ledger=conductor.ledger, cluster=cluster, env=FakeEnv(),
        recorder=recorder, system=System(), phase="chaos", phases=phases,
        faults=asyncio.ensure_future(faults),
        session=SimpleNamespace(cluster=cluster, interrupted=asyncio.Event()),
    )  # fmt: skip


async def frozen(run, folder):
    freezer = Freezer(run, folder)
    freezer.ask(VIOLATION)
    _, frozen = await freezer.phases()
    assert json.loads((folder / "frozen" / "states.json").read_text())["nodes"] == [*frozen.nodes]
    return frozen


async def test_a_node_that_starts_while_the_others_are_paused_is_paused(tmp_path):
    cluster = Starting(down={"m3"})
    starts = []

    def start_m3():
        if not starts:
            starts.append(asyncio.ensure_future(cluster.start("m3")))

    cluster.at_pause = start_m3
    run = running(cluster, asyncio.sleep(0))
    found = await frozen(run, tmp_path)
    assert sorted(found.nodes) == sorted(cluster.nodes) == sorted(cluster.paused)
    await cluster.kill("m1")  # restarted by hand, m1 is paused again until the freeze is healed
    cluster.paused.discard("m1")
    await cluster.start("m1")
    await asyncio.sleep(0)
    assert "m1" in cluster.paused
    assert (await run.ledger.heal(found.pause)).count == len(cluster.nodes)
    assert cluster.paused == set()
    await cluster.start("m1")
    await asyncio.sleep(0)
    assert cluster.paused == set()


async def test_an_operation_that_takes_long_restarts_no_paused_node(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.run.freeze.FAULTS_END_S", 0.0)
    cluster = Starting()
    gone = asyncio.Event()

    async def rolling_restart():
        try:
            await gone.wait()
        finally:
            gone.set()

    cluster.at_pause = lambda: pytest.fail("too early") if not gone.is_set() else None
    found = await frozen(running(cluster, rolling_restart()), tmp_path)
    assert sorted(found.nodes) == sorted(cluster.paused)
