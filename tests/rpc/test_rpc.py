"""The RPC layer in the simulation: what callers may conclude, under every fault of a link."""

from __future__ import annotations

import asyncio
import time

import pytest

from harness.cluster import CLIENT, Link, LinkQuality
from harness.env import Address
from harness.plugins import Session
from targets.kudu.rpc import (
    RpcBusyError,
    RpcClient,
    RpcConnectionError,
    RpcError,
    RpcRemoteError,
    RpcTimeoutError,
    parse_address,
)
from tests.rpc.nodes import PORT, Ping, Pong, simulate, spec

BOTH = (Link(CLIENT, "n1"), Link("n1", CLIENT))
WHERE = f"n1:{PORT}"


async def echo(client: RpcClient, number: int = 1, *, timeout_s: float = 2.0) -> Pong:
    return await client.call(WHERE, "Test.Echo", Ping(number), Pong, timeout_s=timeout_s)


async def slow(client: RpcClient, wait_s: float, *, service: str = "Test") -> Pong:
    request = Ping(1, wait_s)
    return await client.call(WHERE, f"{service}.Slow", request, Pong, timeout_s=20.0)


def test_a_call_is_answered() -> None:
    async def main(session: Session) -> Pong:
        return await echo(RpcClient(session.env), 7)

    assert simulate(main) == Pong(7, "n1 to client")


def test_calls_overtake_each_other_on_one_connection() -> None:
    async def main(session: Session) -> list[str]:
        client = RpcClient(session.env)
        done: list[str] = []

        async def one(name: str, wait_s: float) -> None:
            await slow(client, wait_s)
            done.append(name)

        await asyncio.gather(one("slow", 0.5), one("quick", 0.1))
        assert len(client._links) == 1
        return done

    assert simulate(main) == ["quick", "slow"]


@pytest.mark.parametrize(
    ("method", "message"),
    [("Test.Nothing", "unknown method 'Test.Nothing'"), ("Test.Refuse", "no, thank you")],
)
def test_a_refusal_by_the_server_is_a_remote_error(method: str, message: str) -> None:
    async def main(session: Session) -> str:
        with pytest.raises(RpcRemoteError) as caught:
            await RpcClient(session.env).call(WHERE, method, Ping(1), Pong, timeout_s=2.0)
        return caught.value.message

    assert simulate(main) == message


def test_an_unreadable_request_is_a_remote_error() -> None:
    async def main(session: Session) -> str:
        with pytest.raises(RpcRemoteError) as caught:
            await RpcClient(session.env).call(WHERE, "Test.Echo", Pong(1, "x"), Pong, timeout_s=2.0)
        return caught.value.message

    assert "bad request of Test.Echo" in simulate(main)


def test_a_bug_in_a_handler_is_the_end_of_the_node() -> None:
    async def main(session: Session) -> tuple[bool, str]:
        with pytest.raises(RpcConnectionError) as caught:
            await RpcClient(session.env).call(WHERE, "Test.BreakDown", Ping(1), Pong, timeout_s=2.0)
        log = await session.cluster.logs("n1")
        return caught.value.sent, "\n".join(log)

    sent, log = simulate(main)
    assert sent
    assert "KeyError: 'a bug'" in log


def test_nobody_listening_means_not_sent() -> None:
    async def main(session: Session) -> RpcError:
        await session.cluster.kill("n1")
        with pytest.raises(RpcConnectionError) as caught:
            await echo(RpcClient(session.env))
        return caught.value

    assert not simulate(main).sent


def test_no_connection_within_the_deadline_means_not_sent() -> None:
    async def main(session: Session) -> tuple[RpcError, float]:
        await session.cluster.cut(BOTH, lease_s=60)
        start_s = asyncio.get_running_loop().time()
        with pytest.raises(RpcTimeoutError) as caught:
            await echo(RpcClient(session.env), timeout_s=3.0)
        return caught.value, asyncio.get_running_loop().time() - start_s

    error, took_s = simulate(main)
    assert not error.sent
    assert took_s == pytest.approx(3.0, abs=0.01)


def test_a_lost_answer_means_perhaps() -> None:
    async def main(session: Session) -> tuple[RpcError, Pong]:
        client = RpcClient(session.env)
        await echo(client, 1)
        fault = await session.cluster.cut((Link("n1", CLIENT),), lease_s=60)
        with pytest.raises(RpcTimeoutError) as caught:
            await echo(client, 2)
        await session.cluster.heal(fault)
        again = RpcClient(session.env)
        return caught.value, await again.call(WHERE, "Test.Count", Ping(2), Pong, timeout_s=5.0)

    error, count = simulate(main)
    assert error.sent
    assert count.number == 1  # it was processed indeed


@pytest.mark.parametrize("retransmit", [0.0, 1.0])
def test_a_cut_does_not_poison_later_calls(retransmit: float) -> None:
    async def main(session: Session) -> float:
        client = RpcClient(session.env)
        await echo(client)
        fault = await session.cluster.cut(BOTH, lease_s=60)
        with pytest.raises(RpcTimeoutError):
            await echo(client)
        await session.cluster.heal(fault)
        start_s = asyncio.get_running_loop().time()
        await echo(client, timeout_s=10.0)
        return asyncio.get_running_loop().time() - start_s

    assert simulate(main, retransmit=retransmit) < 1.5


def test_a_connect_that_began_behind_a_cut_does_not_outlive_it() -> None:
    async def main(session: Session) -> float:
        fault = await session.cluster.cut(BOTH, lease_s=60)
        client = RpcClient(session.env)
        call = asyncio.create_task(echo(client, timeout_s=20.0))
        await asyncio.sleep(2.5)
        await session.cluster.heal(fault)
        start_s = asyncio.get_running_loop().time()
        await call
        return asyncio.get_running_loop().time() - start_s

    assert simulate(main) < 2.5


def test_a_slow_call_keeps_its_connection_while_others_are_answered() -> None:
    async def main(session: Session) -> bool:
        client = RpcClient(session.env)
        await echo(client)
        (link,) = client._links.values()
        call = asyncio.create_task(
            client.call(WHERE, "Test.Slow", Ping(1, 60.0), Pong, timeout_s=2.0)
        )
        await asyncio.sleep(1.0)
        await echo(client)
        with pytest.raises(RpcTimeoutError):
            await call
        return client._links[Address("n1", PORT)] is link

    assert simulate(main)


def test_doubled_and_reordered_frames_run_a_call_once() -> None:
    async def main(session: Session) -> list[int]:
        quality = LinkQuality(duplicate=0.5, reorder=0.5)
        await session.cluster.shape(BOTH, quality, lease_s=600)
        client = RpcClient(session.env)
        calls = [echo(client, number, timeout_s=30.0) for number in range(200)]
        answers = await asyncio.gather(*calls)
        assert [answer.number for answer in answers] == list(range(200))
        counts = []
        for number in range(200):
            answer = await client.call(WHERE, "Test.Count", Ping(number), Pong, timeout_s=30.0)
            counts.append(answer.number)
        return counts

    assert simulate(main) == [1] * 200


def test_a_busy_service_refuses_unread_and_others_go_on() -> None:
    async def main(session: Session) -> tuple[int, Pong]:
        client = RpcClient(session.env)
        calls = [slow(client, 1.0) for _ in range(8)]
        outcomes = await asyncio.gather(
            *calls, slow(client, 0.1, service="Other"), return_exceptions=True
        )
        busy = [outcome for outcome in outcomes if isinstance(outcome, RpcBusyError)]
        assert not any(error.sent for error in busy)
        assert outcomes[-1] == Pong(1)
        return len(busy), await slow(client, 0.0)

    assert simulate(main, spec("n1", calls_in_flight_max=5)) == (3, Pong(1))


def test_a_restarted_server_is_reached_again() -> None:
    async def main(session: Session) -> Pong:
        client = RpcClient(session.env)
        await echo(client)
        await session.cluster.kill("n1")
        await session.cluster.start("n1")
        await asyncio.sleep(0.1)
        return await echo(client)

    assert simulate(main).number == 1


def test_a_cancelled_call_leaves_nothing_behind() -> None:
    async def main(session: Session) -> Pong:
        client = RpcClient(session.env)
        await echo(client)
        call = asyncio.create_task(slow(client, 1.0))
        await asyncio.sleep(0.5)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        (link,) = client._links.values()
        assert link._calls == {}
        await asyncio.sleep(1.0)
        return await echo(client)

    assert simulate(main).number == 1


def test_a_closed_client_fails_its_calls() -> None:
    async def main(session: Session) -> list[bool]:
        client = RpcClient(session.env)
        await echo(client)
        call = asyncio.create_task(slow(client, 1.0))
        await asyncio.sleep(0.1)
        client.close()
        (outcome,) = await asyncio.gather(call, return_exceptions=True)
        assert isinstance(outcome, RpcConnectionError)
        with pytest.raises(RpcConnectionError) as caught:
            await echo(client)
        return [outcome.sent, caught.value.sent]

    assert simulate(main) == [True, False]


def test_a_stranger_is_given_up() -> None:
    async def main(session: Session) -> None:
        with pytest.raises(RpcConnectionError):
            await echo(RpcClient(session.env))

    simulate(main, spec("n1", "stranger"))


def test_a_bad_address_is_quoted() -> None:
    assert parse_address("m1:7051") == Address("m1", 7051)
    with pytest.raises(ValueError, match="'m1' is not NODE:PORT"):
        parse_address("m1")


def test_sequential_calls_are_cheap() -> None:
    """A regression guard with a wide margin; the figure itself is 40 to 60 us on an idle core."""
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
