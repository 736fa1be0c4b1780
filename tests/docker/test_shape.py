"""Degraded links on a real engine, measured by a probe in the containers."""

import pytest

from harness.cluster import Capability, Link, LinkQuality
from harness.environments.docker import undo
from harness.environments.docker.engine.labels import Part, container_name
from harness.errors import UsageError
from tests.docker.probes import (
    LINK_CASES,
    TCP_RATE,
    Sending,
    measure_link,
    probe_plan,
    tcp_kb_s,
)
from tests.faults.door import door

pytestmark = [pytest.mark.docker, pytest.mark.slow]

LONG_S = 600.0
LINK = [Link("b", "a")]
FEW = Sending(datagrams=200)
WHOLE = Sending(datagrams=250, size=250, pause_s=0.002)
"""Datagrams at twice the rate of the link; the buffer of a slow reader holds all of them."""
# With 2500 datagrams, a share's standard deviation is at most 0.8 %, a fifth of the tolerance.
SENT = {"delay": 200, "drop": 2500, "duplicate": 2500, "reorder": 2500, "rate": 750}
KILL_PROGRAM = (
    "for at in /proc/[0-9]*; do tr '\\0' ' ' <$at/cmdline | grep -q '^python3 -I -S' "
    "&& kill -9 ${at#/proc/}; done 2>/dev/null; true"
)


class Probe:
    """A cluster of two nodes, and the datagrams that each receives from the other."""

    def __init__(self, engine, run_id, session):
        self.engine, self.run_id, self.session = engine, run_id, session
        self.cluster = session.cluster

    async def __call__(self, sending=FEW):
        return await measure_link(self.engine, self.run_id, sending)


async def one_direction_is_as_bad_as_asked_and_the_other_whole(probe):
    for name, asked in LINK_CASES.items():
        sending = asked.sending._replace(datagrams=SENT[name])
        fault = await door(probe).shape(LINK, asked.quality)
        there, back = await probe(sending)
        bite = await door(probe).heal(fault)
        assert await door(probe).heal(fault) == bite

        # Large tolerances: a busy host sends with pauses, during which no packet overtakes another.
        spare = {"delay": 50, "reorder": 3}.get(name, 0.2 * asked.wanted)
        assert asked.shows(there) == pytest.approx(asked.wanted, abs=spare), name
        assert bite.unit == "packets"
        assert bite.count >= sending.datagrams
        for whole in (back, *await probe(WHOLE)):
            # `back` has a larger tolerance: on a busy host, the probe's socket buffer overflows.
            assert 0.95 * whole.sent <= whole.got <= whole.sent, name
            assert whole.late == 0, name
            assert whole.delay_ms < 50, name


async def a_rate_holds_for_tcp_whose_offload_makes_super_packets(probe):
    await door(probe).shape(LINK, TCP_RATE)
    assert await tcp_kb_s(probe.engine, probe.run_id, "b", "a") == pytest.approx(64, rel=0.2)
    assert await tcp_kb_s(probe.engine, probe.run_id, "a", "b") > 640


async def the_warden_makes_links_whole_again(probe):
    fault = await door(probe).shape(LINK, LinkQuality(drop=0.5))
    keeper = container_name(probe.run_id, "a", Part.KEEPER)
    assert undo.main(["heal", "SHAPE", fault, keeper]) == 0  # as the warden does
    by_warden, _ = await probe()
    assert by_warden.got == FEW.datagrams
    # Before the warden healed the fault, it may have hit a packet of another program.
    assert (await door(probe).heal(fault)).count < FEW.datagrams // 4


async def a_program_that_is_killed_leaves_whole_links_and_is_told_of(probe):
    cluster, events = probe.cluster, []
    cluster.subscribe(lambda event: events.append((event.node, event.kind, event.data)))
    fault = await door(probe).shape(LINK, LinkQuality(delay_ms=300))
    before, _ = await probe()
    assert before.delay_ms > 250
    probe.engine.exec(container_name(probe.run_id, "a", Part.KEEPER), ["sh", "-c", KILL_PROGRAM])
    after, _ = await probe()
    assert after.delay_ms < 50
    assert after.got == FEW.datagrams
    await door(probe).heal(fault)
    again = await door(probe).shape(LINK, LinkQuality(delay_ms=300))
    last, _ = await probe()
    assert last.delay_ms > 250
    await door(probe).heal(again)
    reports = [(node, data["what"]) for node, kind, data in events if kind == "infrastructure"]
    assert [node for node, what in reports if "had already ended" in what] == ["a"]


def test_links_are_as_bad_as_asked_and_whole_again(environment, engine):
    plan = probe_plan()

    async def main(session):
        probe = Probe(engine, plan.run_id, session)
        for check in (
            one_direction_is_as_bad_as_asked_and_the_other_whole,
            a_rate_holds_for_tcp_whose_offload_makes_super_packets,
            the_warden_makes_links_whole_again,
            a_program_that_is_killed_leaves_whole_links_and_is_told_of,
        ):
            await door(session).heal_all()
            await check(probe)

    environment.execute(plan, main)


def test_an_engine_without_packet_queues_is_found_out_before_a_fault(environment, monkeypatch):
    command = ["sh", "-c", "echo no NFQUEUE here; exit 3"]
    monkeypatch.setattr("harness.environments.docker.network.rules.probe_command", lambda: command)

    async def main(session):
        assert Capability.DELAY not in session.cluster.capabilities
        assert Capability.PARTITION in session.cluster.capabilities
        with pytest.raises(UsageError, match=r"lacks packet queues .no NFQUEUE here.; load"):
            await door(session).shape(LINK, LinkQuality(delay_ms=1), lease_s=1)

    environment.execute(probe_plan(), main)
