"""Simulated nodes start in their declared order, and may restart as another variant."""

import asyncio
import re

import pytest

from harness.cluster import BASE, NodeSpec, Variant
from harness.environments.sim import SimEnvironment
from harness.errors import UsageError
from harness.plugins import DeploymentPlan


async def first(env, config):
    env.event("is", what="first", config=config)
    await asyncio.Event().wait()


async def second(env, config):
    env.event("is", what="second", config=config)
    await asyncio.Event().wait()


def node(name, **fields):
    entry = f"{__name__}:first"
    return NodeSpec(**({"role": "r", "ports": (), "entry": entry} | fields), name=name)


def run(main, nodes):
    plan = DeploymentPlan(run_id="x", nodes=tuple(nodes), seed=1, knobs={}, folder=None)
    return SimEnvironment().execute(plan, main)


def events_of(run_nodes, *steps):
    """Run `steps` on a cluster; return all events as (node, kind, data)."""
    events = []

    async def main(session):
        session.cluster.subscribe(lambda event: events.append((event.node, event.kind, event.data)))
        for step in steps:
            await step(session.cluster)
            await asyncio.sleep(1.0)

    run(main, run_nodes)
    return events


def test_nodes_start_after_those_they_name(tmp_path):
    async def main(session):
        await asyncio.sleep(1.0)
        ready = await session.cluster.wait_ready("a")
        await session.cluster.kill("a")
        return ready, await session.cluster.wait_ready("a")

    order = [node("a", after=("b", "c")), node("b", after=("c",)), node("c")]
    trace = tmp_path / "trace"
    plan = DeploymentPlan(
        run_id="x", nodes=tuple(order), seed=1, knobs={"trace": str(trace)}, folder=None
    )

    assert SimEnvironment().execute(plan, main) == (None, "node 'a' is down")
    lines = [line for line in trace.read_text().splitlines() if "node-started" in line]
    assert [re.search(r"\b[abc]\b", line)[0] for line in lines] == ["c", "b", "a"]


def test_a_node_stays_the_variant_that_it_was_started_as():
    spec = node(
        "n",
        config={"x": 1, "y": 1},
        variants={"new": Variant(entry=f"{__name__}:second", config={"y": 2})},
    )

    def again(variant):
        async def step(cluster):
            await cluster.kill("n")
            assert await cluster.start("n", variant)
            assert not await cluster.start("n", BASE)  # a running node keeps its variant

        return step

    events = events_of([spec], again("new"), again(None), again(BASE))
    started = [data["variant"] for _, kind, data in events if kind == "node-started"]
    reported = [(data["what"], data["config"]) for _, kind, data in events if kind == "is"]
    assert started[-3:] == ["new", "new", BASE]
    new = ("second", {"x": 1, "y": 2})
    assert reported[-3:] == [new, new, ("first", {"x": 1, "y": 1})]


def test_a_node_without_variants_serializes_as_before():
    async def again(cluster):
        await cluster.kill("n")
        await cluster.start("n")
        with pytest.raises(UsageError, match="no variant 'v'; it has: base"):
            await cluster.start("n", "v")

    events = events_of([node("n")], again)
    assert [data for _, kind, data in events if kind == "node-started"][-1] == {"boot": 1}


def test_an_entry_that_does_not_load_is_refused_before_the_start():
    broken = node("n", variants={"v": Variant(entry="tests.sim.absent:main")})
    with pytest.raises(UsageError, match="does not load"):
        run(lambda session: asyncio.sleep(0), [broken])
