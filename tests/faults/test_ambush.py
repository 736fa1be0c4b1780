"""A fault that waits for an event strikes once. At the end it is healed, or recorded as missed."""

import asyncio

from harness.case import Fault
from harness.cluster import ClusterEvent
from tests.support.cluster import FakeCluster, conductor_of

TEXT = "kill it when event leader term=4"


class Trapping(FakeCluster):
    def __init__(self):
        super().__init__()
        self.springs = {}

    def trap(self, kind, spring):
        self.springs.setdefault(kind, []).append(spring)
        return lambda: self.springs[kind].remove(spring)

    async def happen(self, node, kind, **data):
        for spring in tuple(self.springs.get(kind, ())):
            await spring(ClusterEvent(0, node, kind, data))


def play(script, text=TEXT):
    """Run `script(cluster, conductor)` with one fault; return the ops of the nemesis."""

    async def main():
        cluster = Trapping()
        conductor, recorder = conductor_of(text, cluster)
        fault = Fault("f", text, at_ns=0, duration_ns=1)
        chaos = asyncio.ensure_future(conductor.run((fault,)))
        while not cluster.springs:  # noqa: ASYNC110 - a turn of the loop
            await asyncio.sleep(0)
        await script(cluster, conductor)
        await chaos
        await conductor.ledger.heal_active()
        assert not any(cluster.springs.values())
        return cluster, [op.value for op in recorder.history()]

    return asyncio.run(main())


def test_it_strikes_the_node_of_the_event_once():
    async def script(cluster, conductor):
        await cluster.happen("m1", "leader", term=3)
        for _ in range(2):
            await cluster.happen("m3", "leader", term=4)

    cluster, ops = play(script)
    assert [call[:2] for call in cluster.calls] == [("kill", "m3"), ("start", "m3")]
    assert [(op["action"], op["targets"]) for op in ops] == [
        ("inject", ["m3"]),
        ("heal", ["m3"]),
    ]


def test_the_leader_is_the_last_to_announce_itself():
    async def script(cluster, conductor):
        await cluster.happen("m1", "leader", term=9)
        await cluster.happen("t1", "tablet-report")

    cluster, _ = play(script, "kill leader when event tablet-report")
    assert cluster.calls[0][:2] == ("kill", "m1")


def test_active_faults_are_healed_when_the_chaos_ends():
    async def script(cluster, conductor):
        kill = cluster.kill

        async def slowly(node, **named):
            conductor.end()
            for _ in range(5):
                await asyncio.sleep(0)
            return await kill(node, **named)

        cluster.kill = slowly
        await cluster.happen("m3", "leader", term=4)

    cluster, ops = play(script)
    assert [op["action"] for op in ops] == ["inject", "heal"]
    assert cluster.down == set()


def test_an_event_that_does_not_come_is_a_miss():
    async def script(cluster, conductor):
        await cluster.happen("m1", "leader", term=3)
        conductor.end()

    cluster, (op,) = play(script)
    assert (op["targets"], "missed" in op["note"], cluster.calls) == ([], True, [])


def test_it_strikes_a_little_after_the_event_and_does_not_hold_the_node():
    async def script(cluster, conductor):
        await cluster.happen("m3", "leader", term=4)
        assert cluster.calls == []  # the node continues without waiting

    cluster, ops = play(script, "kill it when event leader term=4 after=1ms")
    assert cluster.calls[0][:2] == ("kill", "m3")
    assert [op["action"] for op in ops] == ["inject", "heal"]


def test_it_does_not_strike_after_the_end_of_the_chaos():
    async def script(cluster, conductor):
        await cluster.happen("m3", "leader", term=4)
        conductor.end()

    cluster, (op,) = play(script, "kill it when event leader term=4 after=60s")
    assert (op["targets"], cluster.calls) == ([], [])
