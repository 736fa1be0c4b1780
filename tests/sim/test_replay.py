"""A seed gives exactly the same run, in fresh interpreters and with every hash seed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import CLIENT, Link, LinkQuality
from harness.env import Address, Conn, Env
from harness.environments.sim import first_divergence
from harness.environments.sim.trace import TraceWriter
from tests.faults.door import door
from tests.sim.toy import LEASE_S, PORT, call, run, specs, within
from tests.support.programs import python

ROOT = Path(__file__).parents[2]


async def gossip(env: Env, config: dict[str, Any]) -> None:
    """Run a node that forwards, stores and announces what it receives."""
    heard: dict[str, int] = {}
    file = await env.disk.open("heard")

    async def serve(conn: Conn) -> None:
        while (frame := await conn.recv()) is not None:
            name = frame.decode()
            heard[name] = heard.get(name, 0) + 1
            await file.append(frame)
            await file.sync()
            await conn.send(str(heard[name]).encode())
        conn.close()

    await env.net.listen(PORT, serve)
    peers = [peer for peer in config["peers"] if peer != env.name]
    while True:
        await asyncio.sleep(0.05 + 0.1 * env.random.random())
        # The planted bug: the order of a set of strings depends on the hash seed.
        for peer in set(peers) if config["planted"] else peers:
            answer = await within(0.3, _tell(env, peer))
            env.event("told", peer=peer, answer=str(answer), wall=env.clock.wall_ns())


async def _tell(env: Env, peer: str) -> str:
    try:
        conn = await env.net.connect(Address(peer, PORT))
        await conn.send(env.name.encode())
        answer = await conn.recv()
        conn.close()
    except ConnectionError as error:
        return type(error).__name__
    return "end" if answer is None else answer.decode()


async def chaos(session: Any) -> str:
    cluster, faults = session.cluster, door(session)
    for node in ("a", "b", "c"):
        await asyncio.sleep(0.5)
        await within(1, call(session.env, node, b"client"))
        cut = await faults.cut(Link.between([node], ["a", "b", "c"]), lease_s=LEASE_S)
        await cluster.pause(node, lease_s=LEASE_S)
        await asyncio.sleep(0.4)
        await cluster.resume(node)
        await asyncio.sleep(0.3)
        await faults.heal(cut)
        await asyncio.sleep(0.3)
        quality = LinkQuality(drop=0.1, duplicate=0.1, reorder=0.1, jitter_ms=20.0)
        await faults.shape([Link(node, CLIENT), Link("a", "b")], quality, lease_s=LEASE_S)
        await cluster.kill(node, lose_unsynced=True, torn=True)
        await cluster.skew(node, offset_ns=10**9, drift_ppm=50_000)
        await asyncio.sleep(0.5)
        await cluster.start(node)
        await cluster.slow(node, factor=20.0)
    await faults.heal_all()
    await asyncio.sleep(1)
    return session.trace_digest()


def gossip_run(seed: int, *, planted: bool = False, **knobs: Any) -> str:
    nodes = specs("a", "b", "c", entry="tests.sim.test_replay:gossip", planted=planted)
    return run(chaos, nodes, seed=seed, latency="tail", **knobs)


CODE = """
import os, sys
from tests.sim.test_replay import gossip_run
print([gossip_run(seed) for seed in range(3)])
print(gossip_run(1, planted=True, trace=os.path.join(sys.argv[1], os.environ["PYTHONHASHSEED"])))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> tuple[list[list[str]], Path]:
    """Return results and traces for four hash seeds, with different memory layouts."""
    traces = tmp_path_factory.mktemp("traces")
    outputs = []
    for hash_seed in range(4):
        variables = {
            "PYTHONHASHSEED": str(hash_seed),
            "PADDING": "x" * 997 * hash_seed,
            "PYTHONPATH": str(ROOT),
        }
        outputs.append(python(CODE, traces, timeout_s=60, **variables).splitlines())
    return outputs, traces


def test_a_seed_replays_and_another_does_not():
    assert gossip_run(1) == gossip_run(1)
    assert gossip_run(1) != gossip_run(2)


@pytest.mark.slow
def test_four_hash_seeds_give_one_digest(told):
    assert len({digests for digests, _ in told[0]}) == 1


@pytest.mark.slow
def test_a_planted_set_is_noticed_and_the_first_different_event_is_shown(told):
    outputs, traces = told
    digests = [planted for _, planted in outputs]
    assert len(set(digests)) > 1
    other = next(i for i, digest in enumerate(digests) if digest != digests[0])
    divergence = first_divergence(traces / "0", traces / str(other))
    assert divergence is not None
    # the runs first differ in the node that is called first; the digest includes its answer
    time_s, node = divergence.first.split()[:2]
    assert float(time_s) < 0.5
    assert node in "abc"
    assert divergence.first != divergence.second
    assert f"event {divergence.line}" in str(divergence)


def test_recording_does_not_change_the_run(tmp_path):
    assert gossip_run(3) == gossip_run(3, trace=str(tmp_path / "t" / "x"))
    assert gossip_run(3) == gossip_run(3, trace=str(tmp_path / "t" / "y"))
    assert first_divergence(tmp_path / "t" / "x", tmp_path / "t" / "y") is None


def test_first_divergence_of_traces_of_different_length(tmp_path):
    for name, count in (("x", 3), ("y", 4)):
        writer = TraceWriter(tmp_path / name)
        for i in range(count):
            writer.noted(i * 10**9, "a", f"event {i}", b"")
        writer.close()
    divergence = first_divergence(tmp_path / "x", tmp_path / "y")
    assert divergence is not None
    assert divergence.line == 4
    assert divergence.first == "(the trace ends here)"
    assert divergence.second == "3.000000000 a event 3"
    assert divergence.before[-1] == "2.000000000 a event 2"


def test_a_trace_is_bounded_and_says_so(tmp_path):
    writer = TraceWriter(tmp_path / "x", lines_max=2)
    for i in range(5):
        writer.noted(i, "a", "x", b"")
    writer.close()
    lines = (tmp_path / "x").read_text().splitlines()
    assert len(lines) == 3
    assert lines[-1] == "... the trace was cut after 2 lines"


def test_deleting_a_fault_keeps_the_streams_of_other_parts():
    async def draws(s):
        env = s.cluster._machines["a"].incarnation.env
        return [env.random.random() for _ in range(3)], s.env.random.random()

    async def with_fault(s):
        await door(s).cut([Link("a", "b")])
        return await draws(s)

    assert run(draws, specs("a", "b")) == run(with_fault, specs("a", "b"))
