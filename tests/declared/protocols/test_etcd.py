"""Answers of etcd's gateway that are well-formed JSON and still invalid."""

import json

import pytest

from tests.declared.protocols.servers import run

HEADER = {"revision": "2"}
KV = {"key": "cmVnaXN0ZXI=", "value": "NQ==", "mod_revision": "2"}


def ranged(**more):
    return {"response_range": {"header": HEADER, **more}}


def answered(status, body):
    text = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(text), text)


def outcome(f, value, status, body):
    async def calls(call, _):
        return await call(f, value)

    return run("etcd", calls, spoil=lambda _: [answered(status, body)], after=1)


def test_a_read():
    whole = {"header": HEADER, "succeeded": True, "responses": [ranged(kvs=[KV], count="1")]}
    assert outcome("read", None, 200, whole) == ("ok", {"result": "ok", "value": 5})
    nothing = {**whole, "responses": [ranged()]}
    assert outcome("read", None, 200, nothing) == ("ok", {"result": "ok", "value": None})


@pytest.mark.parametrize(
    "change",
    [
        {"succeeded": False},
        {"succeeded": None},
        {"header": None},
        {"responses": None},
        {"responses": []},
        {"responses": [{}]},
        {"responses": [ranged(), ranged()]},
        {"responses": [{"response_range": {}}]},
        {"responses": [{"response_put": {"header": HEADER}}]},
        {"responses": [ranged(count="1")]},
        {"responses": [ranged(kvs=[], count="1")]},
        {"responses": [ranged(kvs=[KV, KV], count="2")]},
        {"responses": [ranged(kvs=[5], count="1")]},
        {"responses": [ranged(kvs=[{"value": "NQ=="}], count="1")]},
        {"responses": [ranged(kvs=[{"mod_revision": "2"}], count="1")]},
        {"responses": [ranged(kvs=[{**KV, "value": "x"}], count="1")]},
        {"responses": [ranged(kvs=[{**KV, "value": ""}], count="1")]},
    ],
)
def test_malformed_reads(change):
    whole = {"header": HEADER, "succeeded": True, "responses": [ranged(kvs=[KV], count="1")]}
    body = {name: part for name, part in {**whole, **change}.items() if part is not None}
    assert outcome("read", None, 200, body) == ("fail", None)


@pytest.mark.parametrize("body", [None, 5, [], {}, {"error": "x"}, {"succeeded": True}])
def test_no_answer_at_all(body):
    assert outcome("read", None, 200, body) == ("fail", None)
    assert outcome("write", {"value": 5}, 200, body) == ("info", None)


def test_writes():
    written = [{"response_put": {"header": HEADER}}]
    whole = {"header": HEADER, "succeeded": True, "responses": written}
    assert outcome("write", {"value": 5}, 200, whole)[0] == "ok"
    assert outcome("write", {"value": 5}, 200, {**whole, "responses": []}) == ("info", None)
    assert outcome("write", {"value": 5}, 200, {"header": HEADER}) == ("info", None)
    assert outcome("write", {"value": 5}, 200, {**whole, "succeeded": "yes"}) == ("info", None)
    cas = {"old": 1, "new": 5}
    assert outcome("cas", cas, 200, whole)[0] == "ok"
    assert outcome("cas", cas, 200, {"header": HEADER}) == ("fail", {"result": "mismatch"})


@pytest.mark.parametrize(("status", "kind"), [(400, "fail"), (503, "info"), (504, "info")])
def test_errors(status, kind):
    body = {"error": "etcdserver: why", "code": 14}
    assert outcome("write", {"value": 5}, status, body) == (kind, None)
    assert outcome("read", None, status, body) == ("fail", None)
