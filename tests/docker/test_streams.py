"""Degraded streams on a real engine, measured by a probe in the containers."""

import asyncio
import time

import pytest

from harness.cluster import STREAMS, Capability
from harness.environments.docker import undo
from harness.environments.docker.engine.labels import Part, container_name
from harness.errors import UsageError
from tests.docker.probes import LINK, NODES, STREAM_CASES, measure_stream, probe_plan
from tests.faults.door import door
from tests.toxiproxy.conftest import build_real_server

pytestmark = [pytest.mark.docker, pytest.mark.slow]

LONG_S = 600.0
TRIES = 3
SLICES = STREAM_CASES["slice"].quality
RESET = STREAM_CASES["reset-after"].quality
ADDRESS = "import socket; print(socket.gethostbyname(socket.gethostname()))"
LEFT = ["sh", "-c", "iptables-save -t nat | grep -c -- '-A [^h].*harness:' || :"]


class Probe:
    """A cluster of two nodes, and how data arrive between them."""

    def __init__(self, engine, run_id, session):
        self.engine, self.run_id, self.session = engine, run_id, session
        self.cluster = session.cluster

    async def shape(self, quality, lease_s=LONG_S):
        return await door(self).shape([LINK], quality, lease_s=lease_s)

    async def __call__(self, holds, sender="b", openers="b"):
        """Send data over one connection per opener, and return the measurements.

        A busy host pauses, so the measurement is repeated until `holds` is true of all connections.
        """
        for _ in range(TRIES):
            ways = [await measure_stream(self.engine, self.run_id, o, sender) for o in openers]
            if all(map(holds, ways)):
                return ways
        raise AssertionError(f"not {holds.__name__}: {ways}")

    def at_keeper(self, node, command):
        return self.engine.exec(
            container_name(self.run_id, node, Part.KEEPER), command
        ).output.strip()

    def rules_left(self):
        return [self.at_keeper(node, LEFT) for node in NODES]


def is_sliced(way):
    return way.is_whole and all(
        STREAM_CASES[name].shows(way) == pytest.approx(STREAM_CASES[name].wanted, rel=0.2)
        for name in ("slice", "gap")
    )


def is_reset(way):
    return way.came == 0 and way.reset_ms == pytest.approx(500, rel=0.2)


def is_as_sent(way):
    return way.is_whole and way.piece_bytes > 1000


async def one_direction_is_sliced_whoever_connects_and_the_other_whole(probe):
    fault = await probe.shape(SLICES)
    there = await probe(is_sliced, openers=NODES)
    await probe(is_as_sent, sender="a", openers=NODES)
    bite = await door(probe).heal(fault)

    assert bite.unit == "connections"
    assert bite.count in range(4, 4 * TRIES, 2)
    assert await door(probe).heal(fault) == bite
    await probe(is_as_sent)
    addresses = [probe.at_keeper(node, ["python3", "-c", ADDRESS]) for node in NODES]
    # the node sees the opener's address, as it would without a proxy
    assert [way.met for way in there] == addresses


async def one_direction_is_reset_whoever_connects_and_the_other_not(probe):
    fault = await probe.shape(RESET)
    await probe(is_reset, openers=NODES)
    await probe(is_as_sent, sender="a", openers=NODES)
    assert (await door(probe).heal(fault)).count >= 4
    await probe(is_as_sent)


async def faults_on_one_link_overlap_and_heal_one_by_one(probe):
    reset, _ = await probe.shape(RESET), await probe.shape(SLICES)
    await probe(is_reset)
    await door(probe).heal(reset)
    await probe(is_sliced)
    await door(probe).heal_among(NODES)
    await probe(is_as_sent)
    assert probe.rules_left() == ["0", "0"]


async def a_lease_and_the_warden_make_streams_whole_again(probe):
    fault = await probe.shape(RESET)
    keepers = [container_name(probe.run_id, node, Part.KEEPER) for node in NODES]
    words = ["heal", "STREAM", fault, *keepers]  # as the warden does it
    assert await asyncio.to_thread(undo.main, words) == 0
    await probe(is_as_sent)
    assert probe.rules_left() == ["0", "0"]
    started_s = time.monotonic()
    await probe.shape(SLICES, lease_s=5.0)
    await asyncio.sleep(max(0.0, started_s + 7 - time.monotonic()))
    await probe(is_as_sent)


async def a_proxy_that_is_killed_is_told_of_and_comes_back(probe):
    reports = []
    probe.cluster.subscribe(lambda e: e.kind == "infrastructure" and reports.append(e.node))
    fault = await probe.shape(RESET)
    await asyncio.to_thread(probe.engine.kill, container_name(probe.run_id, "b", Part.PROXY))
    await door(probe).heal(fault)
    assert set(reports) == {"b"}
    await probe(is_as_sent)
    await probe.shape(SLICES)
    await probe(is_sliced)


CHECKS = (
    one_direction_is_sliced_whoever_connects_and_the_other_whole,
    one_direction_is_reset_whoever_connects_and_the_other_not,
    faults_on_one_link_overlap_and_heal_one_by_one,
    a_lease_and_the_warden_make_streams_whole_again,
    a_proxy_that_is_killed_is_told_of_and_comes_back,
)
OURS_AND_REAL = [
    pytest.param(False, id="ours"),
    pytest.param(True, id="real", marks=[pytest.mark.toxiproxy, pytest.mark.nightly]),
]


@pytest.mark.parametrize("real", OURS_AND_REAL)
def test_streams_are_as_bad_as_asked_and_whole_again(environment, engine, real):
    plan = probe_plan(str(build_real_server()) if real else None)

    async def main(session):
        probe = Probe(engine, plan.run_id, session)
        for check in CHECKS:
            await door(session).heal_all()
            try:
                await check(probe)
            except BaseException as error:
                error.add_note(f"in {check.__name__}")
                raise

    environment.execute(plan, main)


def test_an_engine_that_cannot_redirect_is_found_out_before_a_fault(environment, monkeypatch):
    command = ["sh", "-c", "echo no REDIRECT here; exit 3"]
    monkeypatch.setattr(
        "harness.environments.docker.network.streams.probe_command", lambda: command
    )

    async def main(session):
        assert STREAMS.isdisjoint(session.cluster.capabilities)
        assert Capability.DELAY in session.cluster.capabilities
        with pytest.raises(UsageError, match=r"does not redirect .* .no REDIRECT here.; load"):
            await door(session).shape([LINK], RESET, lease_s=1)

    environment.execute(probe_plan(), main)
