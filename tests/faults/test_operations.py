"""Operations of administrators have a time limit, and their start and end are recorded."""

import asyncio

import pytest

from harness.case import Fault
from harness.run.operations import restore
from tests.support.cluster import FakeCluster, FakeSystem, conductor_of


def do(text, *, down=(), system=None):
    """Run an operation; return the calls to the cluster, and the ops of the nemesis."""

    async def main():
        cluster = FakeCluster(down)
        conductor, recorder = conductor_of(text, cluster, system)
        injection = await conductor.strike(Fault("f", text, at_ns=0, duration_ns=1))
        assert await conductor.heal("f") is None  # there is nothing to undo
        ops = [op.value for op in recorder.history()]
        assert bool(injection.targets) is bool(ops[-1]["bite"]["count"])
        return cluster.calls, ops

    return asyncio.run(main())


def test_an_operation_is_recorded_from_begin_to_end():
    calls, (begin, end) = do("do step-down on leader")
    assert calls == []
    assert (begin["action"], begin["kind"], begin["targets"]) == ("inject", "operation", ["m2"])
    assert begin["what"] == {"fault": "operation", "name": "step-down", "variant": ""}
    assert (end["action"], end["note"]) == ("heal", "asked m2")
    assert end["bite"] == {"count": 1, "unit": "operations"}


def test_a_restart_as_a_variant_is_undone_at_the_end():
    class Changing(FakeSystem):
        done = ()

        def restarting(self):
            return {"grow": self.grow}

        async def grow(self, nodes, restart):
            self.done = [node for node in nodes if await restart(node, "big")]
            return f"grew {', '.join(self.done)}"

        async def restore(self, restart):
            for node in self.done:
                await restart(node, "small")

    system = Changing()
    calls, (_, end) = do("do grow on members", down=("m2",), system=system)
    assert end["note"] == "grew m1, m3"
    assert calls == [
        ("stop", "m1"), ("start", "m1", "big"), ("stop", "m2"),
        ("stop", "m3"), ("start", "m3", "big"),
    ]  # fmt: skip
    cluster = FakeCluster(("m3",))
    asyncio.run(restore(cluster, system))
    assert cluster.calls == [("stop", "m1"), ("start", "m1", "small"), ("stop", "m3")]
    asyncio.run(restore(cluster, FakeSystem()))  # the system has nothing to restore


def test_an_impossible_operation_does_nothing():
    _, (_, end) = do("do step-down on node:m1")
    assert end["bite"]["count"] == 0


def test_a_rolling_restart_takes_one_node_at_a_time_and_leaves_those_that_are_down():
    calls, (_, end) = do("do rolling-restart on members variant=changed", down=("m2",))
    assert end["note"] == "restarted m1, m3 in turn as changed"
    assert calls == [
        ("stop", "m1"), ("start", "m1", "changed"), ("stop", "m2"),
        ("stop", "m3"), ("start", "m3", "changed"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["hang", "rolling-restart"])
def test_an_operation_and_a_wait_for_readiness_are_bounded(monkeypatch, name):
    monkeypatch.setattr("harness.run.operations.OPERATION_BOUND_S", 0.05)
    monkeypatch.setattr("harness.run.operations.READY_BOUND_S", 0.001)

    class Hanging(FakeSystem):
        def operations(self):
            return {"hang": self.hang}

        async def hang(self, nodes):
            await asyncio.Event().wait()

        async def ready(self):
            await self.hang(())

    _, (_, end) = do(f"do {name} on all", system=Hanging())
    assert end["bite"]["count"] == (name == "rolling-restart")
