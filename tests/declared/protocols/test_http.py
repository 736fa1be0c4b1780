"""HTTP templates fill in requests, and find the value in the answer."""

import asyncio
import json

import pytest
from hypothesis import given

from harness.errors import UsageError
from harness.support.http1 import Response
from targets.declared.protocols import DeclinedError, MalformedError, protocol_of
from targets.declared.protocols.paths import value_at
from tests.declared.protocols.minis import MiniHttp
from tests.declared.protocols.servers import CLOSE, Caller, Server, run
from tests.declared.protocols.test_values import keys, same, values

HTTP = protocol_of("http", {})


def template(written, answer="value"):
    return HTTP.template("operations.read", written, answer)


def value_of(written, status, body, answer="value"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return template(written, answer).value_of(Response(status, data, ""))


@pytest.mark.parametrize(
    ("more", "status", "body", "expected"),
    [
        ({}, 200, 5, 5),
        ({}, 200, None, None),
        ({}, 201, {"a": 1}, {"a": 1}),
        ({"value": "kvs.0.value"}, 200, {"kvs": [{"value": 5}]}, 5),
        ({"value": "a"}, 200, {"a": None}, None),
        ({"value": "a", "nothing": [404]}, 404, b"not found", None),
        ({"value": "a.b", "optional": True}, 200, {}, None),
        ({"value": "a.b", "optional": True}, 200, {"a": None}, None),
        ({"value": "a.0", "optional": True}, 200, {"a": []}, None),
        ({"value": "a", "decode": "json"}, 200, {"a": '"5"'}, "5"),
        ({"value": "a", "decode": "base64"}, 200, {"a": "NQ=="}, 5),
        ({"decode": "text"}, 200, b"5 or so", "5 or so"),
    ],
)
def test_values(more, status, body, expected):
    assert value_of({"request": "GET /", **more}, status, body) == expected


@pytest.mark.parametrize(
    ("more", "status", "body"),
    [
        ({}, 200, b""),
        ({}, 204, b""),
        ({}, 200, b"<html>"),
        ({}, 404, {"value": 5}),
        ({}, 500, {"value": 5}),
        ({"value": "a"}, 200, {}),
        ({"value": "a"}, 200, []),
        ({"value": "a"}, 200, 5),
        ({"value": "a.b"}, 200, {"a": 5}),
        ({"value": "a.b", "optional": True}, 200, {"a": 5}),
        ({"value": "a.x", "optional": True}, 200, {"a": []}),
        ({"value": "a", "optional": True}, 200, b""),
        ({"value": "a", "decode": "json"}, 200, {"a": 5}),
        ({"value": "a", "decode": "json"}, 200, {"a": ""}),
        ({"value": "a", "decode": "base64"}, 200, {"a": "N"}),
        ({"value": "a", "decode": "base64"}, 200, {"a": "//8="}),
        ({"decode": "text"}, 200, b""),
    ],
)
def test_answers_without_a_value(more, status, body):
    with pytest.raises(ValueError, match=r"."):
        value_of({"request": "GET /", **more}, status, body)


@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_moved_resource_is_a_refusal_and_names_another_node(status):
    with pytest.raises(DeclinedError) as declined:
        value_of("GET /", status, b"")
    assert declined.value.elsewhere


@pytest.mark.parametrize("status", [300, 302, 303, 304])
def test_a_redirect_after_the_work_is_no_refusal_unless_the_file_says_so(status):
    with pytest.raises(MalformedError):
        value_of("POST /", status, b"", "done")
    with pytest.raises(DeclinedError) as declined:
        value_of({"request": "POST /", "refused": [status]}, status, b"", "done")
    assert declined.value.elsewhere


def test_a_refusal():
    written = {"request": "PUT /", "refused": [409]}
    with pytest.raises(DeclinedError) as declined:
        value_of(written, 409, b"", "done")
    assert not declined.value.elsewhere
    assert value_of(written, 409, b"", "whether") is False
    assert value_of(written, 204, b"", "whether") is True
    assert value_of(written, 204, b"", "done") is None
    with pytest.raises(MalformedError):
        value_of(written, 412, b"", "done")


def test_a_cas_may_answer_in_the_body():
    written = {"request": "POST /", "value": "done"}
    assert value_of(written, 200, {"done": True}, "whether") is True
    assert value_of(written, 200, {"done": False}, "whether") is False
    for wrong in ({"done": 1}, {"done": None}, {"done": "true"}, {}):
        with pytest.raises(MalformedError):
            value_of(written, 200, wrong, "whether")


def test_a_change_may_answer_in_the_body():
    written = {"request": "PUT /", "value": "done"}
    for done in (True, None, 5, "yes"):
        assert value_of(written, 200, {"done": done}, "done") is None
    with pytest.raises(DeclinedError):
        value_of(written, 200, {"done": False}, "done")
    with pytest.raises(MalformedError):
        value_of(written, 200, {"error": "no leader"}, "done")


@pytest.mark.parametrize("answer", ["value", "done", "whether"])
def test_accepted_work_is_not_done_unless_the_file_says_so(answer):
    with pytest.raises(MalformedError, match="done = 202"):
        value_of("PUT /", 202, True, answer)
    written = {"request": "PUT /", "value": ".", "done": 202}
    assert value_of(written, 202, True, answer) in {None, True}
    assert value_of("PUT /", 202, b"", "ran") is None
    assert value_of({"request": "POST /", "done": 303}, 303, b"", "done") is None


@pytest.mark.parametrize(
    "body", [{"error": "no leader"}, {"errors": [{"code": 5}]}, {"ok": False}, {"success": False}]
)
def test_an_error_with_a_status_of_success_is_no_success(body):
    for answer in ("value", "done", "whether"):
        with pytest.raises(MalformedError, match="`value`"):
            value_of("PUT /", 200, body, answer)
    with pytest.raises(MalformedError):
        value_of({"request": "GET /", "value": "a", "optional": True}, 200, body)
    with pytest.raises(MalformedError):
        value_of({"request": "GET /", "value": "a"}, 200, {"a": None, **body})
    assert value_of({"request": "GET /", "value": "a"}, 200, {"a": 5, **body}) == 5
    assert value_of("GET /", 200, body, "raw") == body


@pytest.mark.parametrize("body", [{"error": None}, {"errors": []}, {"ok": True}, {"done": False}])
def test_an_answer_without_an_error_is_success(body):
    assert value_of("PUT /", 200, body, "done") is None


def test_a_change_that_found_nothing_is_no_success():
    with pytest.raises(UsageError, match="refused"):
        template({"request": "PUT /", "nothing": 404}, "done")
    assert value_of({"request": "PUT /", "nothing": 404}, 404, b"", "ran") is None


def test_a_probe_takes_any_answer():
    assert value_of("GET /", 200, {"a": 5}, "raw") == {"a": 5}
    assert value_of("GET /", 200, b"leader: yes", "raw") == "leader: yes"
    assert value_of("GET /", 200, b"", "raw") == ""
    assert value_of({"request": "GET /", "value": "a"}, 200, {"a": 5}, "raw") == 5
    with pytest.raises(MalformedError):
        value_of("GET /", 500, b"no", "raw")


def test_a_status_may_be_one_number():
    assert value_of({"request": "GET /", "nothing": 404}, 404, b"") is None
    assert value_of({"request": "GET /", "refused": 409}, 409, b"", "whether") is False


def test_lists_and_tables():
    assert value_of("GET /", 200, [1], "list") == [1]
    assert value_of("GET /", 200, {"0": 1}, "pairs") == {"0": 1}
    for answer, body in (("list", {}), ("list", 5), ("pairs", 5), ("pairs", None)):
        with pytest.raises(MalformedError):
            value_of("GET /", 200, body, answer)


@given(keys, values)
def test_bodies_are_json(key, value):
    arguments = {"key": key, "value": value}
    written = {"request": "PUT /", "body": {"k": "{key}", "v": ["{value}", "x-{key}", 5, None]}}
    for request in (template(written), template('PUT / {"k": {key}, "v": [{value}, 5]}')):
        body = json.loads(request.filled(arguments).body)
        assert body["k"] == key
        assert same(body["v"][0], value)


@given(keys, values)
def test_paths_are_one_word(key, value):
    request = template("GET /a/{key}/b?v={value}&k={key}").filled({"key": key, "value": value})
    assert request.path.isascii()
    assert not any(each.isspace() for each in request.path)
    assert request.path.count("/") == 3
    assert request.path.count("&") == 1


def test_headers_of_requests():
    class Echo(MiniHttp):
        heads = ()

        def answer(self, request):
            self.heads = (*self.heads, request.partition(b"\r\n\r\n")[0].decode())
            return super().answer(request)

        def respond(self, *_):
            return 200, 1

    mini = Echo()

    async def body(call, _):
        await call("read")
        await call("write", {"value": 5})

    run("http", body, mini=mini, settings={"headers": {"X-Api-Key": "k"}, "hello": "/health"})
    hello, get, put = mini.heads
    assert hello.startswith("GET /health ")
    assert "X-Api-Key: k" in get
    assert "Content-Type" not in get
    assert "Content-Type: application/json" in put


def test_a_server_that_closes_each_connection_is_asked_anew():
    class Closing(MiniHttp):
        def answer(self, request):
            return super().answer(request).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)

        def respond(self, *_):
            return 200, {"node": {"value": 5}}

    async def main():
        async with Server(Closing()) as server, Caller("http", server.env) as call:
            return [await call("read"), await call("write", {"value": 5}), len(server.writers)]

    ok = ("ok", {"result": "ok", "value": 5})
    assert asyncio.run(main()) == [ok, ("ok", {"result": "ok"}), 2]


@pytest.mark.parametrize(
    ("body", "read", "write"),
    [
        (b"12", "fail", "info"),
        (b"", "fail", "info"),
        (b'{"node": {"value": 5}}', "ok", "ok"),
        (b'{"node": {"value": 5}', "fail", "info"),
    ],
)
def test_an_answer_that_ends_with_the_connection_may_be_cut(body, read, write):
    class Old(MiniHttp):
        def answer(self, request):
            del request
            return b"HTTP/1.0 200 OK\r\n\r\n" + body

    async def calls(call, _):
        return [(await call("read"))[0], (await call("write", {"value": 5}))[0]]

    assert run("http", calls, mini=Old(), spoil=lambda answer: [answer, CLOSE]) == [read, write]


@pytest.mark.parametrize("body", [b"5", b"5 or so", b'"5"', b"[5]", b"{}"])
def test_an_unframed_text_is_no_value_but_serves_a_probe(body):
    response = Response(200, body, framed=False)
    with pytest.raises(MalformedError):
        template({"request": "GET /", "decode": "text"}).value_of(response)
    assert template("GET /", "raw").value_of(response) is not None


def test_a_new_connection_that_does_not_answer_was_sent_nothing():
    """The server closes the connection, and the next connection reaches only a proxy without a
    server.
    """

    class Closing(MiniHttp):
        count = 0

        def answer(self, request):
            self.count += 1
            return super().answer(request).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)

        def respond(self, *_):
            return (200 if self.count < 3 else 502), {}

    async def body(call, _):
        return [(await call("write", {"value": 5}))[0] for _ in range(2)]

    assert run("http", body, mini=Closing(), settings={"hello": "/"}) == ["ok", "fail"]
    assert run("http", body, mini=Closing()) == ["ok", "ok"]


@pytest.mark.parametrize("path", ["", "a..b", "a.-1"])
def test_wrong_paths_find_nothing(path):
    with pytest.raises(MalformedError):
        value_at({"a": [1]}, path, optional=False)


@pytest.mark.parametrize(
    "written",
    [
        5,
        [],
        {},
        "GET",
        "GET kv",
        "get /",
        {"request": 5},
        {"request": "PUT / 5", "body": 5},
        {"request": "GET /", "nothing": [404], "refused": [404]},
        {"request": "GET /", "nothing": [100]},
        {"request": "GET /", "refused": 409, "done": 409},
        {"request": "GET /", "nothing": "404"},
        {"request": "GET /", "nothing": [200]},
        {"request": "GET /", "nothing": [500]},
        {"request": "GET /", "refused": [201]},
        {"request": "GET /", "refused": [409, 504]},
        {"request": "GET /", "value": ""},
        {"request": "GET /", "value": "$.node.value"},
        {"request": "GET /", "value": "/node/value"},
        {"request": "GET /", "value": "kvs[0].value"},
        {"request": "GET /", "value": "node..value"},
        {"request": "GET /", "headers": {"Host": "x"}},
        {"request": "GET /", "headers": {"a b": "x"}},
        {"request": "GET /", "headers": {"A": "x\r\nB: y"}},
        {"request": "GET /", "decode": "xml"},
        {"request": "GET /", "decode": "text", "value": "a"},
    ],
)
def test_wrong_templates_name_their_place(written):
    with pytest.raises(UsageError, match=r"^operations\.read"):
        template(written)


@pytest.mark.parametrize(
    "settings", [{"hello": "health"}, {"headers": {"Host": "x"}}, {"hallo": 1}]
)
def test_wrong_settings_name_their_place(settings):
    with pytest.raises(UsageError, match=r"^client"):
        protocol_of("http", settings)
