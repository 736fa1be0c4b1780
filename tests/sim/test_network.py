"""Frames and connections, and the effects of faults on them."""

import asyncio

import pytest

from harness.cluster import CLIENT, Bite, Link, LinkQuality, client_end
from harness.env import FRAME_BYTES_MAX, Address
from harness.environments.sim.network import BACKLOG_MAX
from harness.errors import UsageError
from harness.nodes.caller import call_as
from tests.async_tests import on
from tests.faults.door import door
from tests.sim.toy import LEASE_S, PORT, call, connect, run, specs, within

TWO = specs("a", "b")
TO_A, FROM_A = Link(CLIENT, "a"), Link("a", CLIENT)
BOTH = [FROM_A, TO_A]
LAN_MAX_S = 0.0011
SLOW = {"latency": "uniform", "latency_ms_min": 5.0, "latency_ms_max": 5.0}


@on(run, TWO, **SLOW)
async def test_a_call_takes_two_latencies_and_some_processor_time(s):
    conn = await connect(s.env, "a")
    start = s.env.clock.monotonic_ns()
    await conn.send(b"x")
    assert await conn.recv() == b"x@a"
    took_ms = (s.env.clock.monotonic_ns() - start) / 1e6
    assert 10.0 < took_ms < 10.2


@pytest.mark.parametrize("law", ["lan", "uniform", "tail"])
def test_latency_laws_stay_within_their_bounds(law):
    async def main(s):
        conn = await connect(s.env, "a")
        took = []
        for _ in range(300):
            start = s.env.clock.monotonic_ns()
            await conn.send(b"x")
            await conn.recv()
            took.append((s.env.clock.monotonic_ns() - start) / 1e6)
        return took

    took = run(main, TWO, latency=law)
    assert min(took) >= 0.4
    if law == "tail":
        assert 100 < max(took) < 4100
    else:
        assert max(took) < 2.2


@on(run, TWO, **SLOW)
async def test_frames_in_flight_are_swallowed_when_a_cut_begins(s):
    conn = await connect(s.env, "a")
    await conn.send(b"x")  # arrives after 5 ms
    fault = await door(s).cut([TO_A])
    assert await within(1, conn.recv()) == "timeout"
    bite = await door(s).heal(fault)
    assert bite == Bite(1, "frames")


@on(run, TWO, **SLOW, retransmit=0.0)
async def test_a_frame_sent_during_a_cut_is_swallowed_though_it_would_arrive_after_it(s):
    conn = await connect(s.env, "a")
    fault = await door(s).cut([TO_A])
    await conn.send(b"x")
    await door(s).heal(fault)  # the heal takes effect at once, long before 5 ms have passed
    with pytest.raises(ConnectionResetError):
        await conn.recv()


@pytest.mark.parametrize("retransmit", [0.0, 1.0])
def test_after_a_cut_a_connection_delivers_late_in_order_or_is_reset(retransmit):
    async def main(s):
        conn = await connect(s.env, "a")
        fault = await door(s).cut(BOTH)
        for i in range(3):
            await conn.send(b"%d" % i)
        await asyncio.sleep(5)
        healed = s.env.clock.monotonic_ns()
        bite = await door(s).heal(fault)
        assert bite == Bite(3, "frames")
        await conn.send(b"3")
        got = []
        try:
            while len(got) < 4:
                got.append(await conn.recv())
        except ConnectionResetError:
            got.append("reset")
        assert (s.env.clock.monotonic_ns() - healed) / 1e9 <= 1.0 + 5 * LAN_MAX_S
        return got

    expected = [b"0@a", b"1@a", b"2@a", b"3@a"] if retransmit else ["reset"]
    assert run(main, TWO, retransmit=retransmit) == expected


@on(run, TWO, tcp_timeout_s=7.0)
async def test_a_sender_that_gets_nothing_through_is_reset_in_the_end(s):
    conn = await connect(s.env, "a")
    await door(s).cut([TO_A])
    start = s.env.clock.monotonic_ns()
    await conn.send(b"x")
    with pytest.raises(ConnectionResetError):
        await conn.recv()
    assert 7.0 <= (s.env.clock.monotonic_ns() - start) / 1e9 < 7.1


@on(run, TWO)
async def test_connecting_across_a_cut_is_silence_and_succeeds_after_the_heal(s):
    fault = await door(s).cut([TO_A])
    assert await within(3, connect(s.env, "a")) == "timeout"
    task = asyncio.create_task(call(s.env, "a", b"x", timeout_s=60))
    await asyncio.sleep(1.5)
    assert (await door(s).heal(fault)).count >= 2
    start = s.env.clock.monotonic_ns()
    assert await task == b"x@a"
    # the opening packet is sent again 1 s and 3 s after the first, the last time after the heal
    assert 1.0 < (s.env.clock.monotonic_ns() - start) / 1e9 < 2.0


@on(run, TWO)
async def test_the_kernel_gives_up_connecting_after_two_minutes(s):
    await door(s).cut([TO_A])
    start = s.env.clock.monotonic_ns()
    with pytest.raises(TimeoutError, match="a:7000"):
        await connect(s.env, "a")
    assert 126 < (s.env.clock.monotonic_ns() - start) / 1e9 < 128


@on(run, TWO)
async def test_a_kill_is_seen_by_peers_unless_a_cut_hides_it(s):
    conn = await connect(s.env, "a")
    await s.cluster.kill("a")
    with pytest.raises(ConnectionResetError):
        await conn.recv()
    with pytest.raises(ConnectionRefusedError):
        await connect(s.env, "a")
    hidden = await connect(s.env, "b")
    fault = await door(s).cut(Link.between([CLIENT], ["b"]))
    await s.cluster.kill("b")
    assert await within(100, hidden.recv()) == "timeout"
    await door(s).heal(fault)
    await s.cluster.start("b")
    assert await within(100, hidden.recv()) == "timeout"  # the close has not become visible yet
    await hidden.send(b"x")
    with pytest.raises(ConnectionResetError):
        await hidden.recv()


@pytest.mark.parametrize("cut_first", [True, False])
def test_a_cut_swallows_a_reset_when_it_is_sent_and_when_it_arrives(cut_first):
    async def main(s):
        conn = await connect(s.env, "a")
        if cut_first:
            fault = await door(s).cut([FROM_A])
            await s.cluster.kill("a")
        else:
            await s.cluster.kill("a")
            fault = await door(s).cut([FROM_A])
            await asyncio.sleep(1)
        await door(s).heal(fault)
        return await within(100, conn.recv())

    assert run(main, TWO, **SLOW) == "timeout"


@on(run, TWO, retransmit=1.0)
async def test_the_dead_retransmit_nothing(s):
    served = asyncio.Event()
    s.cluster.subscribe(lambda e: served.set() if e.kind == "served" else None)
    conn = await connect(s.env, "a")
    await conn.send(b"x")
    await served.wait()  # the answer is in flight
    fault = await door(s).cut([FROM_A])
    await s.cluster.kill("a")
    await asyncio.sleep(1)
    await door(s).heal(fault)
    assert await within(100, conn.recv()) == "timeout"


@on(run, TWO)
async def test_a_full_backlog_is_silence(s):
    await call(s.env, "a", b"up?")
    await s.cluster.pause("a", lease_s=LEASE_S)
    waiting = [within(0.5, connect(s.env, "a")) for _ in range(BACKLOG_MAX + 3)]
    assert (await asyncio.gather(*waiting)).count("timeout") == 3


async def filled(conn):
    """Send until the receiver's kernel accepts no more; return the number of frames sent."""
    sent = 0
    while await within(1, conn.send(b"x" * 1_000_000)) is None:
        sent += 1
    return sent


@on(run, TWO)
async def test_back_pressure_stops_a_sender_and_a_cancelled_send_sent_nothing(s):
    conn = await connect(s.env, "a")
    await s.cluster.pause("a", lease_s=LEASE_S)
    sent = await filled(conn)
    assert 3 <= sent <= 6
    await s.cluster.resume("a")
    for _ in range(sent):
        assert len(await conn.recv()) == 1_000_002
    assert await within(5, conn.recv()) == "timeout"
    await conn.send(b"end")
    assert await conn.recv() == b"end@a"


@on(run, TWO)
async def test_try_send_stops_where_send_would_wait(s):
    conn = await connect(s.env, "a")
    await s.cluster.pause("a", lease_s=LEASE_S)
    sent = 0
    while conn.try_send(b"x" * 1_000_000):
        sent += 1
    assert 3 <= sent <= 6
    with pytest.raises(ValueError, match="limit"):
        conn.try_send(bytes(FRAME_BYTES_MAX + 1))
    await s.cluster.resume("a")
    for _ in range(sent):
        assert len(await conn.recv()) == 1_000_002
    assert await within(1, conn.recv()) == "timeout"
    conn.close()
    with pytest.raises(ConnectionResetError):
        conn.try_send(b"late")


@on(run, specs("a", entry="sink"))
async def test_back_pressure_ends_when_the_way_back_heals(s):
    conn = await connect(s.env, "a")
    await s.cluster.pause("a", lease_s=LEASE_S)
    await filled(conn)
    blocked = asyncio.create_task(conn.send(b"y"))
    fault = await door(s).cut([FROM_A])
    await s.cluster.resume("a")
    await asyncio.sleep(1)
    assert not blocked.done()
    await door(s).heal(fault)
    assert await within(2, blocked) is None


@on(run, TWO)
async def test_a_reset_wakes_a_sender_that_waits_for_room(s):
    conn = await connect(s.env, "a")
    await s.cluster.pause("a", lease_s=LEASE_S)
    await filled(conn)
    blocked = asyncio.create_task(conn.send(b"y"))
    await asyncio.sleep(1)
    await s.cluster.kill("a")
    with pytest.raises(ConnectionResetError):
        await within(1, blocked)


def test_a_cancelled_connect_leaves_no_connection():
    async def main(s):
        fault = await door(s).cut([FROM_A])
        assert await within(0.5, connect(s.env, "a")) == "timeout"
        await door(s).heal(fault)
        await asyncio.sleep(5)
        fabric = s.cluster._fabric
        return len(fabric._ends), len(fabric._attempts)

    assert [run(main, TWO, retransmit=share) for share in (0.0, 1.0)] == [(0, 0), (0, 0)]


@on(run, TWO)
async def test_an_orderly_end_comes_after_the_frames_before_it(s):
    conn = await connect(s.env, "a")
    await conn.send(b"x")
    conn.close()
    with pytest.raises(ConnectionResetError):
        await conn.send(b"y")
    assert await conn.recv() is None
    await asyncio.sleep(1)
    assert any("served" in line for line in await s.cluster.logs("a"))


@on(run, TWO)
async def test_two_readers_of_one_connection_are_an_error(s):
    conn = await connect(s.env, "a")
    reader = asyncio.create_task(conn.recv())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="two tasks"):
        await conn.recv()
    reader.cancel()


@on(run, TWO)
async def test_reset_counts_the_connections_it_resets(s):
    conns = [await connect(s.env, node) for node in "aab"]
    assert await s.cluster.reset([FROM_A]) == 2
    for conn in conns[:2]:
        with pytest.raises(ConnectionResetError):
            await conn.recv()
    await conns[2].send(b"x")
    assert await conns[2].recv() == b"x@b"
    assert await s.cluster.reset([TO_A]) == 0


@on(run, TWO, retransmit=0.0)
async def test_stalled_links_hold_everything_until_healed(s):
    conn = await connect(s.env, "a")
    fault = await door(s).shape([TO_A], LinkQuality(stall=True))
    await conn.send(b"x")
    assert await within(5, conn.recv()) == "timeout"
    assert await door(s).heal(fault) == Bite(1, "frames")
    assert await within(2, conn.recv()) == b"x@a"


async def _burst(s, quality: LinkQuality, count: int = 200) -> tuple[list[bytes], float, Bite]:
    conn = await connect(s.env, "a")
    fault = await door(s).shape([TO_A], quality)
    start = s.env.clock.monotonic_ns()
    for i in range(count):
        await conn.send(b"%03d" % i)
    got = []
    last = start
    while (frame := await within(5, conn.recv())) != "timeout":
        got.append(frame[:3])
        last = s.env.clock.monotonic_ns()
    return got, (last - start) / 1e9, await door(s).heal(fault)


@pytest.mark.parametrize(
    ("quality", "least", "most", "distinct", "ordered"),
    [
        (LinkQuality(drop=0.5), 61, 139, None, True),
        (LinkQuality(duplicate=0.5), 261, 339, 200, None),
        (LinkQuality(reorder=0.2), 200, 200, 200, False),
    ],
)
def test_a_quality_acts_on_single_frames(quality, least, most, distinct, ordered):
    got, _, bite = run(lambda s: _burst(s, quality), TWO)
    assert least <= len(got) <= most
    assert len(set(got)) == (distinct or len(got))
    assert ordered is None or (got == sorted(got)) is ordered
    assert bite.unit == "frames"
    assert bite.count == 200 or not quality.drop


@on(run, TWO)
async def test_delay_throttle_and_two_shapes_at_once(s):
    _, took_s, _ = run(lambda s: _burst(s, LinkQuality(delay_ms=300.0)), TWO)
    assert 0.3 < took_s < 0.32
    _, took_s, _ = run(lambda s: _burst(s, LinkQuality(rate_kb_s=1)), TWO)
    assert 0.6 < took_s < 0.62  # 200 frames of 3 bytes, at 1,000 bytes per second
    await door(s).shape([TO_A], LinkQuality(delay_ms=100.0))
    _, took_s, _ = await _burst(s, LinkQuality(delay_ms=300.0))
    assert 0.4 < took_s < 0.42


@on(run, TWO)
async def test_bad_faults_are_usage_errors(s):
    cluster = s.cluster
    for work, message in [
        (door(s).cut([Link("a", "zz")]), "no node is named 'zz'; the nodes are a, b"),
        (door(s).cut([Link("a", "a")]), "both ends at one node"),
        (cluster.kill(CLIENT), "no node is named 'client'"),
        (cluster.wipe("a"), "cannot wipe"),
        (cluster.slow("a", factor=0), "factor is 0"),
        (cluster.skew("a", offset_ns=0, drift_ppm=-1_000_000), "drift_ppm is"),
    ]:
        with pytest.raises(UsageError, match=message):
            await work


@on(run, TWO)
async def test_closed_connections_are_forgotten(s):
    for _ in range(20):
        await call(s.env, "a", b"x")
    await asyncio.sleep(1)
    fabric = s.cluster._fabric
    machine = s.cluster._machines["a"]
    assert (len(fabric._ends), len(fabric._attempts), len(machine.incarnation.ends)) == (0, 0, 0)


def test_a_client_that_hears_nothing_is_not_refused_either():
    async def main(s):
        await s.cluster.stop("a")
        await door(s).cut([Link("a", client_end(1))])

        async def dial(number):
            call_as(number)
            try:
                return await within(1, s.env.net.connect(Address("a", PORT)))
            except ConnectionRefusedError:
                return "refused"

        return [await asyncio.create_task(dial(number)) for number in range(2)]

    ends = (CLIENT, client_end(0), client_end(1))
    assert run(main, TWO, ends=ends) == ["refused", "timeout"]
