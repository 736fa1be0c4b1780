"""RPCs that are sent and answered without a task (`RpcClient.start` and `Answer`)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cluster import CLIENT, Link
from harness.plugins import Session
from targets.kudu.rpc import (
    Answer,
    RpcClient,
    RpcConnectionError,
    RpcError,
    RpcRemoteError,
    RpcTimeoutError,
)
from targets.kudu.rpc.server import _SEEN_CALLS_MAX, _SeenCalls
from targets.kudu.rpc.wire import answer_frame
from tests.async_tests import on
from tests.faults.door import door
from tests.rpc.nodes import PORT, Count, Echo, Later, Ping, Pong, Refuse, Slow, simulate, spec
from tests.rpc.test_rpc import ODD_FRAMES

WHERE = f"n1:{PORT}"


class Told:
    """A record of the results that a call passed to its callback, with times."""

    def __init__(self, client: RpcClient) -> None:
        self.client = client
        self.outcomes: list[Pong | RpcError] = []
        self.started = False

    def start(self, request: Ping[Pong], *, timeout_s: float = 2.0) -> None:
        self.started = False
        self.client.start(WHERE, request, self._done, timeout_s=timeout_s)
        self.started = True

    def _done(self, outcome: Pong | RpcError) -> None:
        assert self.started, "the callback ran before `start` returned"
        self.outcomes.append(outcome)


@on(simulate)
async def test_an_answer_is_told_on_a_new_connection_and_on_an_old_one(session):
    told = Told(RpcClient(session.env))
    for number in (1, 2):
        told.start(Echo(number))
        await asyncio.sleep(1)
    assert told.outcomes == [Pong(1, "n1 to client"), Pong(2, "n1 to client")]


@pytest.mark.parametrize("answer", ODD_FRAMES)
def test_what_is_no_answer_is_told_as_a_broken_connection(answer):
    async def body(session: Session) -> None:
        told = Told(RpcClient(session.env))
        await told.client.call(WHERE, Echo(1), timeout_s=2.0)
        told.start(Echo(2))
        await asyncio.sleep(1)
        (outcome,) = told.outcomes
        assert isinstance(outcome, RpcConnectionError)
        assert outcome.sent
        assert not told.client._links

    simulate(body, spec("n1", "parrot", answer=answer.hex()))


@pytest.mark.parametrize("connected", [False, True])
@on(simulate)
async def test_a_cut_is_reported_as_one_timeout(session, connected):
    told = Told(RpcClient(session.env))
    if connected:
        await told.client.call(WHERE, Echo(1), timeout_s=2.0)
    await door(session).cut([Link(CLIENT, "n1")])
    told.start(Echo(2))
    await asyncio.sleep(30)
    (outcome,) = told.outcomes
    assert isinstance(outcome, RpcTimeoutError)
    assert outcome.sent is connected


@on(simulate)
async def test_a_broken_connection_is_reported(session):
    told = Told(RpcClient(session.env))
    await told.client.call(WHERE, Echo(1), timeout_s=2.0)
    told.start(Slow(1, 1.0))
    await asyncio.sleep(0.1)
    await session.cluster.kill("n1")
    await asyncio.sleep(0.1)
    told.start(Echo(2))  # there is no listener now
    await asyncio.sleep(1)
    first, second = told.outcomes
    assert isinstance(first, RpcConnectionError)
    assert isinstance(second, RpcConnectionError)
    assert (first.sent, second.sent) == (True, False)


@on(simulate)
async def test_refusals_are_reported(session):
    told = Told(RpcClient(session.env))
    for _ in range(2):
        told.start(Refuse(1))
        await asyncio.sleep(1)
    outcomes = told.outcomes
    assert [str(outcome) for outcome in outcomes] == ["no, thank you"] * 2
    assert all(isinstance(outcome, RpcRemoteError) for outcome in outcomes)


@on(simulate)
async def test_closing_the_client_is_reported(session):
    told = Told(RpcClient(session.env))
    await told.client.call(WHERE, Echo(1), timeout_s=2.0)
    told.start(Slow(1, 1.0))
    told.client.close()
    await asyncio.sleep(1)
    (outcome,) = told.outcomes
    assert isinstance(outcome, RpcConnectionError)
    assert outcome.sent


@on(simulate)
async def test_a_request_that_back_pressure_holds_times_out_and_is_never_sent(session):
    client = RpcClient(session.env)
    told = Told(client)
    await client.call(WHERE, Echo(1), timeout_s=2.0)
    await session.cluster.pause("n1", lease_s=60)
    # a pending call keeps the connection open
    other = asyncio.create_task(client.call(WHERE, Slow(1, 10.0), timeout_s=60.0))
    await asyncio.sleep(0)
    link = next(iter(client._links.values()))
    ignored = answer_frame(1, Pong(0, "x" * 1_000_000))  # a server ignores frames that are answers
    while link._conn.try_send(ignored):
        pass
    told.start(Echo(5))
    await asyncio.sleep(3)
    assert [type(outcome) for outcome in told.outcomes] == [RpcTimeoutError]
    await session.cluster.resume("n1")
    await other
    assert await client.call(WHERE, Count(5), timeout_s=5.0) == Pong(0)


@pytest.mark.parametrize("wait_s", [0.0, 0.5])
@pytest.mark.parametrize("number", [1, -1])
def test_an_answer_may_be_set_at_once_or_later_and_the_first_wins(wait_s, number):
    async def main(session: Session) -> Pong | str:
        client = RpcClient(session.env)
        try:
            return await client.call(WHERE, Later(number, wait_s), timeout_s=2.0)
        except RpcRemoteError as error:
            return error.message

    assert simulate(main) == (Pong(1) if number == 1 else "no, thank you")


def test_the_first_answer_wins():
    answer, sent = Answer(), list[Pong]()
    answer.when_set(sent.append)
    answer.set(Pong(1))
    answer.set(Pong(2))

    assert sent == [Pong(1)] == [answer.response]


@given(st.lists(st.integers(1, 40)), st.integers(0, 3))
def test_a_call_id_is_new_once(call_ids, windows):
    """The oracle: an id is new if it has not been seen and lies within the window."""
    seen, everything, highest = _SeenCalls(), set[int](), 0
    for position, small_id in enumerate(call_ids):
        call_id = small_id + (position % (windows + 1)) * (_SEEN_CALLS_MAX - 20)
        is_new = call_id not in everything and call_id > highest - _SEEN_CALLS_MAX
        assert seen.add(call_id) is is_new
        everything.add(call_id)
        highest = max(highest, call_id)
    assert len(seen._skipped) < _SEEN_CALLS_MAX
