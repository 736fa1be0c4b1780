"""The Redis protocol of declared systems, also with Sentinels."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from harness.errors import UsageError
from targets.declared.protocols import DeclinedError, protocol_of
from tests.declared.protocols.minis import MiniRedis, array
from tests.declared.protocols.servers import NODE, Server, run
from tests.support.env import Clock

READ = [["r", "x", None]]
APPEND = [["append", "x", 1], ["r", "x", None]]


def outcome(f, value, reply, *, vocabulary="register", settings=None):
    async def body(call, _):
        request = SimpleNamespace(f=f, value=value)
        try:
            await call.speaker.perform(call.session, request, process=0)
        except DeclinedError as declined:
            return "declined", declined.elsewhere
        except ValueError:
            return "error", call.session.may_have_changed
        return "ok", None

    spoil = {"spoil": lambda _: [reply], "after": 1}
    return run("redis", body, vocabulary=vocabulary, settings=settings, **spoil)


@pytest.mark.parametrize("code", ["MOVED 3999 h:1", "READONLY You", "LOADING", "CLUSTERDOWN"])
def test_a_redirect_is_a_refusal_and_names_another_node(code):
    reply = f"-{code}\r\n".encode()
    assert outcome("write", {"value": 5}, reply) == ("declined", True)
    assert outcome("cas", {"old": 1, "new": 5}, reply) == ("declined", True)
    assert outcome("read", None, reply) == ("declined", True)


@pytest.mark.parametrize("code", ["NOREPLICAS", "MISCONF", "NOAUTH"])
def test_a_refusal_before_the_command(code):
    reply = f"-{code} why\r\n".encode()
    assert outcome("write", {"value": 5}, reply) == ("declined", False)
    assert outcome("cas", {"old": 1, "new": 5}, reply) == ("declined", False)


def test_an_error_of_a_script_may_follow_a_write():
    reply = b"-ERR user_script:1: why\r\n"
    assert outcome("cas", {"old": 1, "new": 5}, reply) == ("error", True)
    assert outcome("write", {"value": 5}, reply) == ("declined", False)


@pytest.mark.parametrize(
    "text",
    [
        "ERR Connection timed out",
        "ERR Server nearly full",
        "ERR handle response, backend conn reset",
        "upstream failure",
        "TIMEOUT",
        "BROKEN",
    ],
)
def test_an_error_of_a_proxy_may_follow_a_write(text):
    reply = f"-{text}\r\n".encode()
    assert outcome("write", {"value": 5}, reply) == ("error", True)
    assert outcome("read", None, reply) == ("error", False)


@pytest.mark.parametrize("text", ["ERR syntax error", "WRONGTYPE Operation", "OOM command"])
def test_an_error_of_the_server_is_a_refusal(text):
    assert outcome("write", {"value": 5}, f"-{text}\r\n".encode()) == ("declined", False)


@pytest.mark.parametrize("reply", [b"+OK\r\n", b"$0\r\n\r\n", b"$2\r\nOK\r\n", b"*1\r\n$-1\r\n"])
def test_what_is_no_value(reply):
    kind = outcome("read", None, reply)[0]
    assert kind == ("ok" if reply.startswith(b"*") else "error")


@pytest.mark.parametrize("reply", [b"$2\r\n55\r\n", b":2\r\n", b"*0\r\n"])
def test_a_cas_is_answered_by_yes_or_no(reply):
    assert outcome("cas", {"old": 1, "new": 5}, reply) == ("error", True)


def test_a_nil_to_a_write_means_that_it_did_nothing():
    assert outcome("write", {"value": 5}, b"$-1\r\n") == ("declined", False)


def txn(mops, *replies):
    data = b"".join(reply + b"\r\n" for reply in replies)
    return outcome("txn", mops, data, vocabulary="list-append")


def test_transactions_that_certainly_did_not_run():
    no = b"-READONLY you"
    queued, aborted = b"+QUEUED", b"-EXECABORT discarded"
    assert txn(APPEND, b"+OK", no, queued, aborted) == ("declined", True)
    assert txn(APPEND, b"+OK", queued, queued, no) == ("declined", True)
    assert txn(APPEND, no, no, no, b"-ERR EXEC without MULTI") == ("declined", True)


def test_a_command_may_have_run_on_its_own_if_multi_was_refused():
    busy, alone = b"-LOADING", (b":1", b"*0")
    assert txn(APPEND, busy, *alone, b"-ERR EXEC without MULTI") == ("error", True)
    assert txn(APPEND, busy, busy, alone[1], b"-ERR EXEC without MULTI") == ("error", True)
    assert txn(APPEND, busy, *alone, b"-READONLY you") == ("error", True)


@pytest.mark.parametrize(
    "ran",
    [b"*-1", b"*0", b"*2\r\n:1\r\n-WRONGTYPE", b"*2\r\n$-1\r\n*0", b"*2\r\n:1\r\n$1\r\n5", b":2"],
)
def test_transactions_with_a_wrong_answer_are_unknown(ran):
    assert txn(APPEND, b"+OK", b"+QUEUED", b"+QUEUED", ran) == ("error", True)


def test_a_transaction_that_only_reads_changes_nothing():
    assert txn(READ, b"+OK", b"+QUEUED", b"*-1") == ("error", False)


@pytest.mark.parametrize(("count", "expected"), [(0, "error"), (1, "ok"), (2, "ok")])
def test_wait_counts_replicas(count, expected):
    reply = b"+OK\r\n:%d\r\n" % count
    assert outcome("write", {"value": 5}, reply, settings={"wait": 1})[0] == expected


def sentinel(*, old, new=None, epoch=4):
    """Build a Sentinel. With `new`, that replica is replacing the primary with run id `old`."""

    def node(run_id, ip):
        return [b"ip", ip, b"port", b"6379", b"runid", run_id, b"config-epoch", b"%d" % epoch]

    replicas = [node(b"third", b"10.0.0.3")] + ([node(new, b"10.0.0.2")] if new else [])
    return MiniRedis(
        sentinel={
            "GET-MASTER-ADDR-BY-NAME": array([b"10.0.0.2" if new else b"10.0.0.1", b"6379"]),
            "MASTER": array(node(old, b"10.0.0.1")),
            "REPLICAS": b"*%d\r\n" % len(replicas) + b"".join(map(array, replicas)),
        }
    )


def with_session(body, mini, settings, *others, observes=False):
    """Return the result of `body(session)` for a node with Sentinels s1, s2, ...

    The Sentinel s9 is down.
    """

    async def main():
        async with contextlib.AsyncExitStack() as stack:
            server, *more = [
                await stack.enter_async_context(Server(each)) for each in (mini, *others)
            ]
            ports = {f"s{number}": each.port for number, each in enumerate(more, start=1)}
            ports |= {NODE.node: server.port, "s9": 1}
            env = SimpleNamespace(
                clock=Clock(), endpoint=lambda address: ("127.0.0.1", ports[address.node])
            )
            session = await protocol_of("redis", settings).open(env, NODE, observes=observes)
            try:
                return await body(session)
            finally:
                await session.close()

    return asyncio.run(main())


def leadership(mini, settings, *others):
    return with_session(
        lambda session: session.leadership(), mini, settings, *others, observes=True
    )


def opened(mini, settings, *others):
    async def nothing(_):
        return None

    try:
        return with_session(nothing, mini, settings, *others)
    except DeclinedError as declined:
        return declined.elsewhere


def test_clients_use_primaries_unless_the_file_says_otherwise():
    assert opened(MiniRedis(b"slave"), {}) is True
    assert opened(MiniRedis(b"slave"), {"primary": False}) is None
    assert opened(MiniRedis(), {}) is None


def test_a_sentinel_decides_who_is_primary():
    settings = {"sentinels": ["s9", "s1:26379"]}
    assert opened(MiniRedis(), settings, sentinel(old=b"mine")) is None
    assert opened(MiniRedis(), settings, sentinel(old=b"other")) is True
    assert opened(MiniRedis(), {"sentinels": ["s9"]}) is True


def test_during_a_failover_the_new_primary_counts_and_not_the_old_one():
    settings = {"sentinels": ["s1"]}
    assert opened(MiniRedis(), settings, sentinel(old=b"mine", new=b"other")) is True
    assert opened(MiniRedis(), settings, sentinel(old=b"other", new=b"mine")) is None


def test_a_primary_leads_in_the_highest_epoch_in_which_a_sentinel_names_it():
    settings = {"sentinels": ["s1", "s9", "s2", "s3"]}

    def led(role, *others):
        return leadership(MiniRedis(role), settings, *others)

    old, new = sentinel(old=b"mine", epoch=2), sentinel(old=b"x", new=b"mine", epoch=3)
    elsewhere = sentinel(old=b"mine", new=b"x", epoch=7)
    assert led(b"master", old, new, elsewhere) == (True, 4)
    assert led(b"master", elsewhere, elsewhere, elsewhere) == (True, 0)
    assert led(b"slave", old, new, elsewhere) == (False, 0)


def test_an_observer_may_have_any_node():
    assert leadership(MiniRedis(b"slave"), {}) == (False, 0)


@pytest.mark.parametrize("written", ["", "SET 'x", [], ["SET", 5], 5, {"a": 1}])
def test_wrong_templates_name_their_place(written):
    with pytest.raises(UsageError, match=r"^operations\.read"):
        protocol_of("redis", {}).template("operations.read", written, "value")


@pytest.mark.parametrize(
    "settings", [{"wait": -1}, {"sentinels": [":1"]}, {"sentinels": ["s1:x"]}, {"passwort": "x"}]
)
def test_wrong_settings_name_their_place(settings):
    with pytest.raises(UsageError, match=r"^client"):
        protocol_of("redis", settings)
