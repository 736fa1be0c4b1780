"""Bad links against a real engine, as the probe of `bench.docker_links` measures them."""

import asyncio
import time

import pytest

from bench.docker_links import CASES, NODES, TCP_RATE, Sending, measure, probe_plan, tcp_kb_s
from harness.cluster import CLIENT, Capability, Link, LinkQuality
from harness.environments.docker import undo
from harness.environments.docker.labels import keeper_name
from harness.errors import UsageError
from tests.docker.support import ask, echo_nodes, plan_of, wait_answering
from tests.waiting import LIMIT_S

pytestmark = [pytest.mark.docker, pytest.mark.slow]

LONG_S = 600.0
LINK = [Link("b", "a")]
FEW = Sending(datagrams=200)
KILL_PROGRAM = (
    "for at in /proc/[0-9]*; do tr '\\0' ' ' <$at/cmdline | grep -q '^python3 -I -S' "
    "&& kill -9 ${at#/proc/}; done 2>/dev/null; true"
)


def execute(environment, engine, main):
    """Run `main(cluster, probe)` where `probe(sending)` gives what arrives at a, and at b."""
    plan = probe_plan()

    async def run(session):
        return await main(
            session.cluster, lambda sending=FEW: measure(engine, plan.run_id, sending)
        )

    return plan.run_id, environment.execute(plan, run)


@pytest.mark.parametrize("name", CASES)
def test_one_direction_is_as_bad_as_asked_and_the_other_whole(environment, engine, name):
    asked = CASES[name]

    async def main(cluster, probe):
        fault = await cluster.shape(LINK, asked.quality, lease_s=LONG_S)
        shaped = await probe(asked.sending)
        bite = await cluster.heal(fault)
        assert await cluster.heal(fault) == bite
        return shaped, bite, await probe(asked.sending)

    _, ((there, back), bite, healed) = execute(environment, engine, main)

    # A crowded host sends with pauses, in which nothing overtakes; `bench` has the exact figures.
    spare = {"delay": 50, "reorder": 3}.get(name, 0.2 * asked.wanted)
    assert asked.shows(there) == pytest.approx(asked.wanted, abs=spare)
    assert bite.unit == "packets"
    assert bite.count >= asked.sending.datagrams
    for whole in (back, *healed):
        # The probe's own socket overflows where its host does not let it read.
        assert whole.got >= 0.95 * asked.sending.datagrams
        assert whole.late == 0
        assert whole.delay_ms < 50


def test_a_rate_holds_for_tcp_whose_offload_makes_super_packets(environment, engine):
    plan = probe_plan()

    async def main(session):
        await session.cluster.shape(LINK, TCP_RATE, lease_s=LONG_S)
        there = await tcp_kb_s(engine, plan.run_id, "b", "a")
        return there, await tcp_kb_s(engine, plan.run_id, "a", "b")

    there, back = environment.execute(plan, main)

    assert there == pytest.approx(64, rel=0.2)
    assert back > 640


def test_faults_on_one_link_add_up_and_heal_one_by_one(environment, engine):
    async def main(cluster, probe):
        slow = await cluster.shape(LINK, LinkQuality(delay_ms=150), lease_s=LONG_S)
        await cluster.shape(Link.between(["a"], ["b"]), LinkQuality(delay_ms=100), lease_s=LONG_S)
        delays = [[flow.delay_ms for flow in await probe()]]
        await cluster.heal(slow)
        delays.append([flow.delay_ms for flow in await probe()])
        await cluster.heal_among(NODES)
        delays.append([flow.delay_ms for flow in await probe()])
        return delays

    _, delays = execute(environment, engine, main)

    for found, wanted in zip(delays, ([250, 100], [100, 100], [0, 0]), strict=True):
        assert found == pytest.approx(wanted, abs=50)


def test_a_lease_and_the_warden_make_links_whole_again(environment, engine):
    async def main(cluster, probe):
        fault = await cluster.shape(LINK, LinkQuality(drop=0.5), lease_s=LONG_S)
        (owner,) = cluster._links.keepers(fault)
        assert undo.main(["heal", fault, owner]) == 0  # as the warden has it done
        by_warden, _ = await probe()
        assert by_warden.got == FEW.datagrams
        assert (await cluster.heal(fault)).count == 0
        started_s = time.monotonic()
        await cluster.shape(LINK, LinkQuality(drop=1.0), lease_s=20.0)
        await asyncio.sleep(max(0.0, started_s + 22 - time.monotonic()))
        return await probe()

    _, (there, _) = execute(environment, engine, main)

    assert there.got == FEW.datagrams


def test_a_program_that_is_killed_leaves_whole_links_and_is_told_of(environment, engine):
    events = []

    async def main(cluster, probe):
        cluster.subscribe(lambda event: events.append((event.node, event.kind, event.data)))
        fault = await cluster.shape(LINK, LinkQuality(delay_ms=300), lease_s=LONG_S)
        before, _ = await probe()
        engine.exec(keeper_name(run_id, "a"), ["sh", "-c", KILL_PROGRAM])
        after, _ = await probe()
        await cluster.heal(fault)
        again = await cluster.shape(LINK, LinkQuality(delay_ms=300), lease_s=LONG_S)
        last, _ = await probe()
        await cluster.heal(again)
        return before, after, last

    plan = probe_plan()
    run_id = plan.run_id

    async def run(session):
        return await main(session.cluster, lambda: measure(engine, run_id, FEW))

    before, after, last = environment.execute(plan, run)

    assert before.delay_ms > 250
    assert after.delay_ms < 50
    assert after.got == FEW.datagrams
    assert last.delay_ms > 250
    told = [(node, data["what"]) for node, kind, data in events if kind == "infrastructure"]
    assert [node for node, what in told if "had ended" in what] == ["a"]


def test_clients_have_links_too_and_a_stall_ends_with_what_it_held(environment):
    async def main(session):
        cluster = session.cluster
        await wait_answering(session, "n1", "n2")
        took_s = {}
        for link in (Link("n1", CLIENT), Link(CLIENT, "n1")):
            fault = await cluster.shape([link], LinkQuality(delay_ms=400), lease_s=LONG_S)
            for node in ("n1", "n2"):
                started_s = time.monotonic()
                await ask(session, node, "who")
                took_s[link, node] = time.monotonic() - started_s
            await cluster.heal(fault)
        fault = await cluster.shape([Link("n1", CLIENT)], LinkQuality(stall=True), lease_s=LONG_S)
        asking = asyncio.create_task(ask(session, "n1", "who", timeout_s=LIMIT_S))
        done, _ = await asyncio.wait([asking], timeout=1.0)
        await cluster.heal_all()
        return took_s, done, (await asking)["name"], await cluster.heal(fault)

    took_s, answered_in_a_stall, name, bite = environment.execute(plan_of(echo_nodes(2)), main)

    for (_, node), time_s in took_s.items():
        # Of the connection and of the request one packet each goes this way.
        assert (time_s >= 0.4) == (node == "n1"), took_s
    assert not answered_in_a_stall
    assert name == "n1"
    assert bite.count > 0


def test_an_engine_without_packet_queues_is_found_out_before_a_fault(environment, monkeypatch):
    command = ["sh", "-c", "echo no NFQUEUE here; exit 3"]
    monkeypatch.setattr("harness.environments.docker.rules.probe_command", lambda: command)

    async def main(session):
        assert Capability.DELAY not in session.cluster.capabilities
        assert Capability.PARTITION in session.cluster.capabilities
        with pytest.raises(UsageError, match=r"lacks packet queues .no NFQUEUE here.; load"):
            await session.cluster.shape(LINK, LinkQuality(delay_ms=1), lease_s=1)

    environment.execute(probe_plan(), main)
