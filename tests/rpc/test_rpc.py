"""The RPC layer in the simulation, and what its errors mean under each kind of link fault."""

import asyncio
import time

import msgspec
import pytest

from harness.cluster import CLIENT, Link, LinkQuality
from harness.env import Address
from harness.plugins import Session
from targets.kudu.rpc import (
    RpcBusyError,
    RpcClient,
    RpcConnectionError,
    RpcRemoteError,
    RpcServer,
    RpcTimeoutError,
    parse_address,
)
from targets.kudu.rpc.wire import ERROR, FRAME_DECODER, request_frame
from tests.async_tests import on
from tests.faults.door import door
from tests.rpc.nodes import (
    PORT,
    BreakDown,
    Count,
    Echo,
    Nothing,
    Odd,
    Pong,
    Refuse,
    Slow,
    SlowRequest,
    simulate,
    spec,
)

ODD_FRAMES = [
    b"",
    # a request in place of an answer
    msgspec.msgpack.encode((0, 2, "Test.Echo", ())),
    msgspec.msgpack.encode((7, 2, "", ("Busy", "odd"))),
    msgspec.msgpack.encode((1, 2, "", {"number": "x"})),
    msgspec.msgpack.encode((1, 2, "", ("x",))),
    msgspec.msgpack.encode((2, 2, "", ())),
    msgspec.msgpack.encode((2, 2, "", ("a", 1))),
    msgspec.msgpack.encode((2, 2, "", None)),
    b"\xc1",
]
BOTH = (Link(CLIENT, "n1"), Link("n1", CLIENT))
WHERE = f"n1:{PORT}"


async def echo(client: RpcClient, number: int = 1, *, timeout_s: float = 2.0) -> Pong:
    return await client.call(WHERE, Echo(number), timeout_s=timeout_s)


async def slow(client: RpcClient, wait_s: float, *, service: str = "Test") -> Pong:
    request = Slow(1, wait_s) if service == "Test" else SlowRequest(1, wait_s)
    return await client.call(WHERE, request, timeout_s=20.0)


async def connected(session: Session) -> RpcClient:
    client = RpcClient(session.env)
    await echo(client)
    return client


@on(simulate)
async def test_a_call_is_answered(session):
    assert await echo(RpcClient(session.env), 7) == Pong(7, "n1 to client")


@on(simulate)
async def test_calls_overtake_each_other_on_one_connection(session):
    client = RpcClient(session.env)
    done: list[str] = []

    async def one(name: str, wait_s: float) -> None:
        await slow(client, wait_s)
        done.append(name)

    await asyncio.gather(one("slow", 0.5), one("quick", 0.1))
    assert len(client._links) == 1
    assert done == ["quick", "slow"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Nothing(1), "unknown method 'Test.Nothing'"),
        (Refuse(1), "no, thank you"),
        (Odd("x"), "bad request of Test.Echo"),
    ],
)
@on(simulate)
async def test_a_refusal_by_the_server_is_a_remote_error(session, request_, message):
    with pytest.raises(RpcRemoteError) as caught:
        await RpcClient(session.env).call(WHERE, request_, timeout_s=2.0)
    assert message in caught.value.message


@pytest.mark.parametrize("answer", ODD_FRAMES)
def test_an_invalid_answer_breaks_the_connection(answer):
    async def body(session: Session) -> None:
        client = RpcClient(session.env)
        await echo(client)
        with pytest.raises(RpcConnectionError) as caught:
            await echo(client)
        assert caught.value.sent
        assert not client._links
        assert await echo(client) == Pong(1)  # this call uses a new connection

    simulate(body, spec("n1", "parrot", answer=answer.hex()))


@on(simulate)
async def test_a_bug_in_a_handler_is_the_end_of_the_node(session):
    with pytest.raises(RpcConnectionError) as caught:
        await RpcClient(session.env).call(WHERE, BreakDown(1), timeout_s=2.0)
    log = await session.cluster.logs("n1")
    sent, log = caught.value.sent, "\n".join(log)
    assert sent
    assert "KeyError: 'a bug'" in log


@on(simulate)
async def test_a_missing_listener_means_not_sent(session):
    await session.cluster.kill("n1")
    with pytest.raises(RpcConnectionError) as caught:
        await echo(RpcClient(session.env))
    assert not caught.value.sent


@on(simulate)
async def test_no_connection_within_the_deadline_means_not_sent(session):
    await door(session).cut(BOTH)
    start_s = asyncio.get_running_loop().time()
    with pytest.raises(RpcTimeoutError) as caught:
        await echo(RpcClient(session.env), timeout_s=3.0)
    error, took_s = caught.value, asyncio.get_running_loop().time() - start_s
    assert not error.sent
    assert took_s == pytest.approx(3.0, abs=0.01)


@on(simulate)
async def test_a_lost_answer_means_perhaps(session):
    client = RpcClient(session.env)
    await echo(client, 1)
    fault = await door(session).cut((Link("n1", CLIENT),))
    with pytest.raises(RpcTimeoutError) as caught:
        await echo(client, 2)
    await door(session).heal(fault)
    again = RpcClient(session.env)
    error, count = caught.value, await again.call(WHERE, Count(2), timeout_s=5.0)
    assert error.sent
    assert count.number == 1  # the call was processed


@pytest.mark.parametrize("retransmit", [0.0, 1.0])
def test_a_cut_does_not_poison_later_calls(retransmit):
    async def main(session: Session) -> float:
        client = RpcClient(session.env)
        await echo(client)
        fault = await door(session).cut(BOTH)
        with pytest.raises(RpcTimeoutError):
            await echo(client)
        await door(session).heal(fault)
        start_s = asyncio.get_running_loop().time()
        await echo(client, timeout_s=10.0)
        return asyncio.get_running_loop().time() - start_s

    assert simulate(main, retransmit=retransmit) < 1.5


@on(simulate)
async def test_a_connect_that_began_behind_a_cut_does_not_outlive_it(session):
    fault = await door(session).cut(BOTH)
    client = RpcClient(session.env)
    call = asyncio.create_task(echo(client, timeout_s=20.0))
    await asyncio.sleep(2.5)
    await door(session).heal(fault)
    start_s = asyncio.get_running_loop().time()
    await call
    assert asyncio.get_running_loop().time() - start_s < 2.5


@on(simulate)
async def test_a_slow_call_keeps_its_connection_while_others_are_answered(session):
    client = await connected(session)
    (link,) = client._links.values()
    call = asyncio.create_task(client.call(WHERE, Slow(1, 60.0), timeout_s=2.0))
    await asyncio.sleep(1.0)
    await echo(client)
    with pytest.raises(RpcTimeoutError):
        await call
    assert client._links[Address("n1", PORT)] is link


@on(simulate)
async def test_doubled_and_reordered_frames_run_a_call_once(session):
    quality = LinkQuality(duplicate=0.5, reorder=0.5)
    await door(session).shape(BOTH, quality)
    client = RpcClient(session.env)
    calls = [echo(client, number, timeout_s=30.0) for number in range(200)]
    answers = await asyncio.gather(*calls)
    assert [answer.number for answer in answers] == list(range(200))
    counts = []
    for number in range(200):
        answer = await client.call(WHERE, Count(number), timeout_s=30.0)
        counts.append(answer.number)
    assert counts == [1] * 200


@on(simulate, spec("n1", calls_in_flight_max=5))
async def test_a_busy_service_refuses_unread_and_others_go_on(session):
    client = RpcClient(session.env)
    calls = [slow(client, 1.0) for _ in range(8)]
    outcomes = await asyncio.gather(
        *calls, slow(client, 0.1, service="Other"), return_exceptions=True
    )
    busy = [outcome for outcome in outcomes if isinstance(outcome, RpcBusyError)]
    assert not any(error.sent for error in busy)
    assert outcomes[-1] == Pong(1)
    assert (len(busy), await slow(client, 0.0)) == (3, Pong(1))


def test_calls_that_a_busy_server_refuses_count_as_put_off():
    server = RpcServer(None, PORT, calls_in_flight_max=0)
    server.serve(lambda _request, _peer: Pong(1), Echo)
    request = FRAME_DECODER.decode(request_frame(1, Echo(1)))
    error = FRAME_DECODER.decode(server._dispatch(request, None))
    assert error.kind == ERROR
    assert (server.calls, server.put_off) == ({Echo.method: 1}, {Echo.method: 1})


@on(simulate)
async def test_a_restarted_server_is_reached_again(session):
    client = await connected(session)
    await session.cluster.kill("n1")
    await session.cluster.start("n1")
    await asyncio.sleep(0.1)
    assert (await echo(client)).number == 1


@on(simulate)
async def test_a_cancelled_call_leaves_nothing_behind(session):
    client = await connected(session)
    call = asyncio.create_task(slow(client, 1.0))
    await asyncio.sleep(0.5)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    (link,) = client._links.values()
    assert link._calls == {}
    await asyncio.sleep(1.0)
    assert (await echo(client)).number == 1


@on(simulate)
async def test_a_closed_client_fails_its_calls(session):
    client = await connected(session)
    call = asyncio.create_task(slow(client, 1.0))
    await asyncio.sleep(0.1)
    client.close()
    (outcome,) = await asyncio.gather(call, return_exceptions=True)
    assert isinstance(outcome, RpcConnectionError)
    with pytest.raises(RpcConnectionError) as caught:
        await echo(client)
    assert [outcome.sent, caught.value.sent] == [True, False]


@on(simulate, spec("n1", "stranger"))
async def test_a_stranger_is_given_up(session):
    with pytest.raises(RpcConnectionError):
        await echo(RpcClient(session.env))


def test_a_bad_address_is_quoted():
    assert parse_address("m1:7051") == Address("m1", 7051)
    with pytest.raises(ValueError, match="'m1' is not NODE:PORT"):
        parse_address("m1")


def test_sequential_calls_are_cheap():
    """The limit is generous: the real cost is 40 to 60 us on an idle core."""
    count = 2000

    async def main(session: Session) -> None:
        client = RpcClient(session.env)
        for number in range(count):
            await echo(client, number)

    def cost_s() -> float:
        start_s = time.thread_time()
        simulate(main)
        return (time.thread_time() - start_s) / count

    assert any(cost_s() < 400e-6 for _ in range(5))


@pytest.mark.parametrize("once", [False, True])
def test_a_name_is_resolved_again_after_an_error(once):
    async def main(session: Session) -> None:
        client = RpcClient(session.env, resolve_once=once)
        assert (await echo(client)).text == "n1 to client"
        await session.cluster.alias("n1", "n2")
        # the connection is open, so the client still uses it
        assert (await echo(client)).text == "n1 to client"
        await session.cluster.kill("n1")
        await asyncio.sleep(1)  # virtual time passes, and the connection breaks
        if once:
            with pytest.raises(RpcConnectionError):
                await echo(client)
            assert (await echo(RpcClient(session.env))).text == "n2 to client"
        else:
            assert (await echo(client)).text == "n2 to client"

    simulate(main, spec("n1"), spec("n2"))


@on(simulate)
async def test_a_lost_name_is_found_again_and_open_connections_stay(session):
    old, new = await connected(session), RpcClient(session.env)
    for client in (old, new):
        client.lose_name(WHERE, 5.0)
        assert not client.resolves(WHERE)
        assert client.resolves(f"n2:{PORT}")
    assert await echo(old) == Pong(1, "n1 to client")
    with pytest.raises(RpcConnectionError) as failed:
        await echo(new)
    assert not failed.value.sent
    await asyncio.sleep(5)
    assert new.resolves(WHERE)
    assert await echo(new) == Pong(1, "n1 to client")
