"""A fault at an event strikes before the node affects the world again."""

import asyncio
import time
from typing import Any

import pytest

from harness.cluster import Capability, ClusterEvent, Fidelity, Link, NodeState
from harness.env import Address, Env
from tests.async_tests import on
from tests.faults.door import door
from tests.sim.toy import LEASE_S, PORT, forever, run, specs

EVENT = "about-to-act"


async def actor(env: Env, config: dict[str, Any]) -> None:
    """Run a node that sends and writes in the callback of each event."""
    if env.name == "b":

        async def serve(conn: Any) -> None:
            while (frame := await conn.recv()) is not None:
                env.event("heard", frame=frame.decode())

        await env.net.listen(PORT, serve)
        await forever()
    file = await env.disk.open("log")
    conn = await env.net.connect(Address("b", PORT))
    for number in range(10_000):
        await asyncio.sleep(0.01 * env.random.random())
        env.event(EVENT, number=number)
        await conn.send(str(number).encode())
        await file.append(b"x")


STRIKES = {
    "kill": lambda s: s.cluster.kill("a"),
    "pause": lambda s: s.cluster.pause("a", lease_s=LEASE_S),
    "cut": lambda s: door(s).cut([Link("a", "b")]),
}


def strike_at(number: int, verb: str, *, seed: int) -> tuple[list[int], Any, Any]:
    """Hit node a with the fault `verb` at event `number`; return b's messages before and after it,
    and a's log.
    """

    async def main(session: Any) -> tuple[list[int], Any, Any]:
        cluster = session.cluster
        heard: list[int] = []
        struck = asyncio.get_running_loop().create_future()

        def listen(event: ClusterEvent) -> None:
            if event.kind == "heard":
                heard.append(int(event.data["frame"]))

        async def spring(event: ClusterEvent) -> None:
            if event.data["number"] == number:
                await STRIKES[verb](session)
                struck.set_result(None)

        cluster.subscribe(listen)
        remove = cluster.trap(EVENT, spring)
        await struck
        remove()
        size = len(cluster._machines["a"].disk.files["log"].visible)
        await asyncio.sleep(1)
        before = list(heard)
        await door(session).heal_all()
        await asyncio.sleep(1)
        return before, size, (heard, cluster.state("a"))

    return run(main, specs("a", "b", entry="tests.sim.test_traps:actor"), seed=seed)


@pytest.mark.parametrize("verb", STRIKES)
def test_nothing_is_sent_or_written_between_the_event_and_the_fault(verb):
    for seed in range(14):
        nothing_happens_in_between(verb, seed % 7 + 1, seed)


def nothing_happens_in_between(verb, number, seed):
    heard, size, (later, state) = strike_at(number, verb, seed=seed)
    # a cut may swallow messages that are in flight
    assert heard == list(range(len(heard) if verb == "cut" else number))
    assert len(heard) <= number
    assert size == number + (verb == "cut")  # a node that is cut off keeps writing
    if verb == "kill":
        assert (later, state) == (heard, NodeState.DOWN)
    elif verb == "pause":
        assert later[: number + 1] == list(range(number + 1))  # it continues where it stopped


@on(run, specs("a", "b", entry="tests.sim.test_traps:actor"))
async def test_effects_of_a_spring_are_not_attributed_to_the_node(session):
    struck = asyncio.get_running_loop().create_future()

    async def spring(event: ClusterEvent) -> None:
        if not struck.done():
            # the progress display may call this, but a node may not
            struck.set_result(time.monotonic())

    session.cluster.trap(EVENT, spring)
    assert await struck > 0


def test_a_spring_that_waits_continues_as_a_driver_task():
    async def main(session: Any) -> list[str]:
        done: list[str] = []
        over = asyncio.get_running_loop().create_future()

        async def spring(event: ClusterEvent) -> None:
            if not over.done():
                await session.cluster.stop("a")
                await asyncio.sleep(1)
                done.append(session.cluster.state("a").value)
                over.set_result(None)

        session.cluster.trap(EVENT, spring)
        await over
        return done

    nodes = specs("a", "b", entry="tests.sim.test_traps:actor")
    assert run(main, nodes) == ["down"]


@on(run)
async def test_the_simulation_aims_at_events_exactly(session):
    assert session.cluster.capabilities[Capability.AIM_AT_EVENTS] is Fidelity.EXACT
