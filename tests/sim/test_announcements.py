"""A forbidden announcement by a simulated node ends the run before anything else is blamed."""

import asyncio

import pytest

from harness.cluster import CLIENT
from harness.errors import TargetError
from tests.sim.toy import forever, run, specs


async def announcer(env, config):
    env.event(config["kind"], **config["data"])
    await forever()


def announced(kind, **data):
    nodes = specs("a", entry="tests.sim.test_announcements:announcer", kind=kind, data=data)
    events = []

    async def main(session):
        session.cluster.subscribe(events.append)
        await asyncio.sleep(1)
        await session.cluster.kill("a")
        await session.cluster.start("a")
        session.env.event("config-forced", group="g")
        await asyncio.sleep(1)
        return [(event.node, event.kind, event.by_driver) for event in events]

    return run(main, nodes)


@pytest.mark.parametrize("kind", ["node-exited", "infrastructure", "config-forced"])
def test_events_reserved_for_the_driver(kind):
    with pytest.raises(TargetError, match=f"node 'a' announced the event '{kind}'"):
        announced(kind, code=0)


def test_a_term_that_is_no_number():
    with pytest.raises(TargetError, match="term='third'"):
        announced("leader", term="third")


def test_events_carry_their_source():
    assert announced("mine") == [
        ("a", "mine", False),
        ("a", "node-exited", True),
        ("a", "node-started", True),
        (CLIENT, "config-forced", True),
        ("a", "mine", False),
    ]
