"""The client for JSON over HTTP gets answers of every form, and tries other nodes."""

import asyncio
import json
import time
from types import SimpleNamespace

import pytest

from harness import webclient
from harness.env import Address
from harness.ops import OpType
from harness.plugins import Convergence, Request
from harness.webclient import DeclinedError, WebClient, agreement, ask_each
from tests.support.waiting import LIMIT_S

A, B = Address("a", 1), Address("b", 1)
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\n[1, \r\n3\r\n2]\n\r\n0\r\n\r\n"
)


def plain(body, status=200, extra=""):
    text = json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\n{extra}Content-Length: {len(text)}\r\n\r\n".encode() + text


class Server:
    """A server that answers with `answer(path)`: bytes, `None` for silence, or "" to hang up."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[:2]

    async def __aexit__(self, *_):
        self.server.close()

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                size = int(head.lower().split("content-length: ")[1].split()[0])
                self.asked.append((head.split(" ")[1], await reader.readexactly(size)))
                answer = self.answer(head.split(" ")[1])
                if answer == "":
                    break
                writer.write(answer or b"")
                if answer and answer.startswith(b"HTTP/1.0"):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def env_of(**places):
    clock = SimpleNamespace(monotonic_ns=time.monotonic_ns)
    return SimpleNamespace(clock=clock, endpoint=lambda address: places[address.node])


def free_place():
    return ("127.0.0.1", 1)


async def put(web, request):
    seen = await web.ask("GET", "/seen")
    if request.f == "no":
        raise DeclinedError({"seen": seen})
    answer = await web.ask("POST", "/put", {"value": request.value}, changes=True)
    if request.f == "again":
        web.had_no_effect()
        await web.ask("GET", "/again")
    return answer


def invoke(answer, *requests, timeout_s=LIMIT_S, hello=None, pinned=False, process=0):
    """Send requests in turn to a server `a` and a missing `b`; return the completions."""

    async def body():
        server = Server(answer)
        async with server as place:
            env = env_of(a=place, b=free_place())
            client = WebClient(env, process, [A, B], put, hello=hello, pinned=pinned)
            found = [await client.invoke(request, timeout_s=timeout_s) for request in requests]
            await client.close()
            return found, server.asked

    return asyncio.run(body())


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(webclient, "BACK_OFF_S", 0.0)


def test_an_operation_is_answered_on_one_connection():
    (first, second), asked = invoke(plain, Request("w", 7), Request("no"))
    assert (first.type, first.value, first.error, first.node) == (OpType.OK, "/put", None, "a")
    assert [(attempt.node, attempt.outcome) for attempt in first.attempts] == [("a", "ok")] * 2
    assert (second.type, second.value, second.node) == (OpType.FAIL, {"seen": "/seen"}, "a")
    assert len(second.attempts) == 1
    assert asked == [("/seen", b""), ("/put", b'{"value": 7}'), ("/seen", b"")]


@pytest.mark.parametrize(
    ("bad", "kind", "error"),
    [
        ("/seen", OpType.FAIL, "status 503"),
        ("/put", OpType.INFO, "status 503"),
        ("/again", OpType.FAIL, "status 503"),
    ],
)
def test_operations_that_may_have_had_an_effect_are_info(bad, kind, error):
    f = "again" if bad == "/again" else "w"
    (done,), _ = invoke(lambda path: plain("no", 503 if path == bad else 200), Request(f, 1))
    assert (done.type, done.value, done.node) == (kind, None, None)
    assert error in done.error
    assert error in done.attempts[-1].outcome


@pytest.mark.parametrize("silence", [None, ""])
def test_silence_and_hanging_up_after_a_change_are_info(silence):
    (done,), _ = invoke(
        lambda path: silence if path == "/put" else plain(1), Request("w", 1), timeout_s=0.3
    )
    assert done.type is OpType.INFO
    assert [attempt.outcome == "ok" for attempt in done.attempts] == [True, False]


@pytest.mark.parametrize("body", [b"", b"12"])
def test_an_answer_that_may_be_cut_is_info(body):
    def answer(path):
        return b"HTTP/1.0 200 OK\r\n\r\n" + body if path == "/put" else plain(1)

    (done,), _ = invoke(answer, Request("w", 1))
    assert (done.type, done.value) == (OpType.INFO, None)
    assert "may be cut" in done.error


def test_after_a_failure_the_next_node_is_asked_unless_pinned():
    requests = [Request("w", 1)] * 3
    found, _ = invoke(lambda path: plain(1), *requests, process=1)
    assert [done.type for done in found] == [OpType.FAIL, OpType.OK, OpType.OK]
    assert [done.attempts[0].node for done in found] == ["b", "a", "a"]
    found, _ = invoke(lambda path: plain(1), *requests, process=3, pinned=True)
    assert {attempt.node for done in found for attempt in done.attempts} == {"b"}


def test_a_node_that_does_not_greet_was_never_asked():
    (done,), asked = invoke(lambda path: "", Request("w", 1), hello="/hello")
    assert done.type is OpType.FAIL
    assert [path for path, _ in asked] == ["/hello"]


def test_a_connection_that_the_server_gives_up_is_opened_anew():
    closing = "Connection: close\r\n"
    (done,), asked = invoke(lambda path: plain(1, extra=closing), Request("w", 1))
    assert done.type is OpType.OK
    assert len(asked) == 2


def test_all_are_asked_at_once_and_silent_ones_left_out():
    async def body():
        async with (
            Server(lambda path: plain(None if path == "/nothing" else {"path": path})) as here,
            Server(lambda path: None) as mute,
        ):
            env = env_of(a=here, b=free_place(), c=mute)
            nodes = [A, B, Address("c", 1)]
            return [
                await ask_each(env, nodes, "POST", path, {}, within_s=0.2)
                for path in ("/state", "/nothing")
            ]

    assert asyncio.run(body()) == [{"a": {"path": "/state"}}, {"a": None}]


def test_agreement():
    same = {"a": {"term": 1, "x": []}, "b": {"term": 1, "x": []}}
    assert agreement(same, "ab", "term", "x") == Convergence(ok=True)
    missing = agreement(same, "abc", "term")
    assert (missing.ok, missing.pending) == (False, ("c does not answer",))
    assert (
        "disagree on term"
        in agreement({"a": {"term": 1}, "b": {"term": 2}}, "ab", "term").pending[0]
    )
    assert not agreement({"a": {}}, "a", "term").ok
