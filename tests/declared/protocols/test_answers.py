"""A complete answer yields a value. An incomplete or wrong answer never does."""

import asyncio
import random

import pytest

from targets.declared.protocols import FAILURES, protocol_of
from tests.declared.protocols.servers import (
    CLOSE,
    NODE,
    SILENT,
    WORLDS,
    Caller,
    Server,
    env_at,
    first,
    run,
)

GREETINGS = {
    "http": 0,
    "redis": 1,
    "etcd": 1,
    "zookeeper": 1,
    "memcached": 1,
    "postgres": 2,
    "mysql": 3,
}
# protocols whose driver does not show whether the server has closed the connection
DRIVEN = {"postgres", "mysql"}
CALLS = {
    "read": {},
    "write": {"value": 5},
    "cas": {"old": None, "new": 6},
}
names = pytest.mark.parametrize("name", WORLDS)
ours = pytest.mark.parametrize("name", [name for name in WORLDS if name not in DRIVEN])
calls = pytest.mark.parametrize("f", CALLS)


@names
def test_a_register_keeps_what_is_written(name):
    async def body(call, _):
        assert await call("read") == ("ok", {"result": "ok", "value": None})
        assert await call("write", {"value": 5}) == ("ok", {"result": "ok"})
        assert await call("read") == ("ok", {"result": "ok", "value": 5})
        assert await call("cas", {"old": 4, "new": 6}) == ("fail", {"result": "mismatch"})
        assert await call("cas", {"old": 5, "new": 6}) == ("ok", {"result": "ok"})
        assert await call("write", {"value": 7}) == ("ok", {"result": "ok"})
        assert await call("cas", {"old": 7, "new": [8]}) == ("ok", {"result": "ok"})
        assert await call("read") == ("ok", {"result": "ok", "value": [8]})

    run(name, body)


@names
def test_registers_are_apart(name):
    async def body(call, _):
        await call("write", {"key": "a", "value": 1})
        await call("write", {"key": "b", "value": 2})
        assert (await call("read", {"key": "a"}))[1]["value"] == 1
        assert (await call("read", {"key": "b"}))[1]["value"] == 2

    run(name, body, vocabulary="registers")


@ours  # not for SQL, whose first statement affects no row
def test_a_cas_of_an_absent_register_may_expect_null(name):
    async def body(call, _):
        assert await call("cas", {"old": None, "new": 6}) == ("ok", {"result": "ok"})
        assert await call("cas", {"old": None, "new": 7}) == ("fail", {"result": "mismatch"})
        assert (await call("read"))[1]["value"] == 6

    run(name, body)


def expected(f):
    return ("fail" if f == "read" else "info"), None


def last_request(name, f):
    reads_first = f == "cas" and name in {"etcd", "zookeeper", "memcached"}
    creates = f == "write" and name == "zookeeper"
    return GREETINGS[name] + (1 if reads_first or creates else 0)


@names
@calls
def test_no_part_of_an_answer_is_an_answer(name, f):
    async def calls(call, _):
        return await call(f, CALLS[f])

    unspoiled, count = run(name, calls), 0
    while True:
        sizes = []

        def cut(answer, count=count, sizes=sizes):
            sizes.append(len(answer))
            return first(count)(answer)

        outcome = run(name, calls, spoil=cut, after=last_request(name, f))
        if count >= sizes[0]:
            assert outcome == unspoiled
            break
        assert outcome == expected(f), count
        count += 7 if name in {"etcd", *DRIVEN} else 1


@names
@calls
def test_garbage_is_never_a_value(name, f):
    rng = random.Random(f"{name} {f}")
    for _ in range(12):
        garbage = rng.randbytes(rng.randrange(1, 300))

        async def body(call, _):
            return await call(f, CALLS[f])

        def spoil(_, garbage=garbage):
            return [garbage, CLOSE]

        outcome = run(name, body, spoil=spoil, after=last_request(name, f))
        assert outcome == expected(f), garbage


@names
@calls
def test_a_changed_byte_breaks_no_client(name, f):
    rng = random.Random(f"{name} {f}")

    def spoil(answer):
        at = rng.randrange(len(answer))
        return [answer[:at] + rng.randbytes(1) + answer[at + 1 :], CLOSE]

    async def body(call, _):
        return (await call(f, CALLS[f]))[0]

    for _ in range(12):
        outcome = run(name, body, spoil=spoil, after=last_request(name, f))
        assert outcome in {"ok", "fail", "info"}


@names
@calls
def test_without_an_answer_a_change_is_unknown(name, f):
    async def body(call, server):
        asked = asyncio.ensure_future(call(f, CALLS[f]))
        await server.arrived.wait()
        asked.cancel()
        await asyncio.wait([asked])
        attempts = call.session.attempts
        assert attempts[-1].outcome == "not answered"
        return call.session.may_have_changed

    spoil = last_request(name, f)
    assert run(name, body, spoil=lambda _: [SILENT], after=spoil) == (f != "read")


@ours
@calls
def test_a_connection_that_was_closed_before_sends_nothing(name, f):
    async def main():
        async with Server(WORLDS[name][0]()) as server, Caller(name, server.env) as call:
            for writer in server.writers:
                writer.close()
            server.server.close()
            await stream_of(call.session).read()
            asked = len(server.asked)
            assert (await call(f, CALLS[f]))[0] == "fail"
            assert len(server.asked) == asked

    asyncio.run(main())


@ours
def test_an_answer_to_no_request_is_not_the_next_answer(name):
    async def main():
        answers = []

        def noted(answer):
            answers.append(answer)
            return [answer]

        async with Server(WORLDS[name][0](), noted) as server, Caller(name, server.env) as call:
            await call("write", {"value": 5})
            await call("read")
            stray = answers[-1]
            await call("write", {"value": 6})
            reader = stream_of(call.session)
            server.writers[-1].write(stray)
            while not reader._buffer:  # noqa: ASYNC110 - nothing else tells that it arrived
                await asyncio.sleep(0)
            outcome = await call("read")
            connections = len(server.writers)
        # HTTP connects again by itself; the other sessions are closed by the client
        again = name in {"http", "etcd"}
        assert outcome == (("ok", {"result": "ok", "value": 6}) if again else ("fail", None))
        assert connections == 1 + again

    asyncio.run(main())


def stream_of(session):
    http = getattr(session, "_http", session)
    return http._streams[0] if hasattr(http, "_streams") else session._stream._reader


@names
def test_no_listener_is_an_error_of_opening(name):
    async def main():
        async with Server(WORLDS[name][0]()) as server:
            port = server.port
        with pytest.raises(FAILURES):
            await protocol_of(name, {}).open(env_at(port), NODE)

    asyncio.run(main())


@pytest.mark.parametrize("name", [name for name in WORLDS if GREETINGS[name]])
@pytest.mark.parametrize("spoil", [lambda _: [CLOSE], lambda _: [b"\x00nonsense\r\n\r\n", CLOSE]])
def test_a_connection_counts_only_after_a_greeting(name, spoil):
    async def main():
        async with Server(WORLDS[name][0](), spoil) as server:
            with pytest.raises(FAILURES):
                await protocol_of(name, {}).open(server.env, NODE)

    asyncio.run(main())


@names
def test_each_request_is_an_attempt(name):
    async def body(call, server):
        before = len(server.asked)
        for f, value in CALLS.items():
            await call(f, value)
            outcomes = [attempt.outcome for attempt in call.session.attempts]
            assert outcomes == ["ok"] * (len(server.asked) - before)
            assert {attempt.node for attempt in call.session.attempts} == {"n1"}
            before = len(server.asked)

    run(name, body)
