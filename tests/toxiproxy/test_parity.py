"""The harness's proxy and the real Toxiproxy answer the same API calls in the same way."""

import contextlib
import json
import random
import re
import socket
import urllib.parse

import pytest

from tests.toxiproxy.conftest import Server

UPSTREAM = "127.0.0.1:9"


def lasting_port() -> int:
    """Return a free port below the range of ephemeral ports."""
    while True:
        port = random.randrange(12_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


PORT = lasting_port()  # the port of a listener, which the two servers use in turn

Call = tuple[str, str, object]


def shown(text: str) -> object:
    """Remove permitted differences from a body: the system's ports, and messages of libraries."""
    try:
        body = json.loads(text)
    except ValueError:
        return text

    def clean(value: object) -> object:
        if isinstance(value, list):
            return [clean(each) for each in value]
        if isinstance(value, dict):
            kept = {key: clean(each) for key, each in value.items() if key != "version"}
            if "error" in kept:
                reason = re.sub(
                    r"^(bad request body).*", r"\1", str(kept["error"]), flags=re.DOTALL
                )
                kept["error"] = "of the system" if kept["status"] == 500 else reason
            if "listen" in kept:
                kept["listen"] = re.sub(r":[1-9]\d*$", ":PORT", str(kept["listen"]))
            return kept
        return value

    return clean(body)


def answers(server: Server, calls: list[Call]) -> list[tuple[str, str, object, int, object, str]]:
    """Return the answers of a server without proxies to these calls."""
    for name in server.request("GET", "/proxies")[1]:
        server.request("DELETE", f"/proxies/{urllib.parse.quote(name)}")
    results = []
    for method, path, body in calls:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, answer, kind = server.request(method, path, raw=raw)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        kind = kind if text else ""
        results.append((method, path, body, status, shown(text), kind.replace("; ", ";")))
    return results


def proxy(**fields: object) -> dict[str, object]:
    return {"name": "p", "listen": "127.0.0.1:0", "upstream": UPSTREAM} | fields


def toxic(**fields: object) -> dict[str, object]:
    return {"type": "latency"} | fields


CALLS: dict[str, list[Call]] = {
    "keys in capitals": [
        ("POST", "/proxies", {"NAME": "p", "Listen": "127.0.0.1:0", "upStream": UPSTREAM}),
        ("POST", "/proxies/p", {"ENABLED": False}),
        ("PATCH", "/proxies/p", {"Enabled": True, "unknown": [1]}),
        (
            "POST",
            "/proxies/p/toxics",
            {"Name": "BW", "Stream": "upstream", "Type": "bandwidth", "Attributes": {"Rate": 100}},
        ),
        ("PATCH", "/proxies/p/toxics/BW", {"TOXICITY": 0.5, "Attributes": {"RATE": 7}}),
        ("POST", "/populate", [{"Name": "q", "LISTEN": "127.0.0.1:0", "Upstream": UPSTREAM}]),
    ],
    "attributes": [
        ("POST", "/proxies", proxy()),
        *(
            ("POST", "/proxies/p/toxics", {"name": f"t{number}", "type": kind} | fields)
            for number, (kind, fields) in enumerate(
                [
                    ("bandwidth", {"rate": 100}),
                    ("latency", {"attributes": {"latencyy": 100}}),
                    ("latency", {"attributes": {"latency": 100.0}}),
                    ("latency", {"attributes": {"latency": 1e2}}),
                    ("latency", {"attributes": {"latency": "100"}}),
                    ("latency", {"attributes": {"latency": True}}),
                    ("latency", {"attributes": {"latency": -100}}),
                    ("latency", {"attributes": {"latency": None, "jitter": 3}}),
                    ("latency", {"attributes": {"latency": 2**63}}),
                    ("latency", {"attributes": {"latency": 2**63 - 1}}),
                    ("latency", {"attributes": None}),
                    ("latency", {"attributes": []}),
                    ("latency", {"attributes": 5}),
                    ("latency", {"toxicity": 2}),
                    ("latency", {"toxicity": -1}),
                    ("latency", {"toxicity": None}),
                    ("latency", {"toxicity": "1"}),
                    ("latency", {"toxicity": 1e39}),
                    ("latency", {"stream": None}),
                    ("latency", {"stream": ""}),
                    ("latency", {"stream": "UpStream"}),
                    ("latency", {"name": "", "stream": "UPSTREAM"}),
                    ("latency", {"name": None}),
                    ("Latency", {}),
                    ("noop", {}),
                    ("noop", {"attributes": {"x": 1}}),
                    ("", {}),
                    ("limit_data", {"attributes": {"bytes": 0}}),
                    ("slicer", {"attributes": {"average_size": 7, "delay": -1}}),
                ]
            )
        ),
        ("GET", "/proxies/p/toxics", b""),
        ("POST", "/proxies/p/toxics/t9", {"attributes": {"jitter": None, "latency": 4}}),
        ("POST", "/proxies/p/toxics/t9", {"attributes": None, "toxicity": None}),
        ("POST", "/proxies/p/toxics/t9", {"attributes": []}),
        ("POST", "/proxies/p/toxics/t9", b"null"),
        ("POST", "/proxies/p/toxics/t9", b""),
        ("POST", "/proxies/p/toxics/t9", {"toxicity": "x"}),
        # A refused call has no effect, and a conflict is noticed before the attributes are checked.
        ("POST", "/proxies/p/toxics", toxic(name="t9", attributes={"latency": ""})),
        ("POST", "/proxies/p/toxics", {"name": "t9", "type": "rabies"}),
        ("GET", "/proxies", b""),
    ],
    "bodies": [
        *(
            (method, path, body)
            for method, path in (
                ("POST", "/proxies"),
                ("POST", "/populate"),
                ("POST", "/proxies/none"),
                ("POST", "/proxies/none/toxics"),
                ("POST", "/reset"),
            )
            for body in (
                *(b"", b" ", b"{", b"[", b"null", b"{}", b"[]", b"[null]", b"[{}]", b"5", b'"x"'),
                *(b"{} x", b"nonsense", b"[1]", b'{"name": "a"', b'{"a": NaN}', b"\xff"),
                b'{"name": 5}',
            )
        ),
        ("POST", "/proxies", b'{"name": "a", "upstream": "127.0.0.1:9", "listen": ":0"} x'),
        ("POST", "/proxies", b'{"name": "b", "name": "c", "upstream": "u", "enabled": false}'),
        ("POST", "/proxies", proxy(name="d", enabled=None)),
        ("POST", "/proxies", proxy(name="e", enabled="yes")),
        ("POST", "/proxies", proxy(name="f", enabled=0)),
        ("POST", "/proxies", proxy(name="g", toxics=[{"type": "latency"}])),
        ("PATCH", "/proxies/a", b"null"),
        ("PATCH", "/proxies/a", b"[]"),
        ("PATCH", "/proxies/a", {"name": "z", "upstream": None}),
        ("PATCH", "/proxies/a", {"upstream": 5}),
        ("PATCH", "/proxies/a", {"name": 5}),
        ("GET", "/proxies", b""),
    ],
    "listeners": [
        ("POST", "/proxies", {"name": "any", "upstream": UPSTREAM}),
        ("POST", "/proxies", proxy(name="empty", listen="")),
        ("POST", "/proxies", proxy(name="all", listen=":0")),
        ("POST", "/proxies", proxy(name="named", listen="localhost:0")),
        ("POST", "/proxies", proxy(name="none", listen="127.0.0.1:")),
        ("POST", "/proxies", proxy(name="six", listen="[::1]:0")),
        ("POST", "/proxies", proxy(name="off", listen="nowhere", enabled=False)),
        *(
            ("POST", "/proxies", proxy(name="bad", listen=listen))
            for listen in ("nowhere", "127.0.0.1", "127.0.0.1:99999", "256.1.1.1:0", "1.2.3.4:5")
        ),
        ("POST", "/proxies/off", {"enabled": True}),
        ("POST", "/proxies/any", {"listen": "nowhere"}),
        ("POST", "/proxies/any", {"listen": ""}),
        ("GET", "/proxies", b""),
        ("POST", "/reset", b""),
    ],
    "populate": [
        ("POST", "/populate", [proxy(listen=f"localhost:{PORT}")]),
        ("POST", "/proxies/p/toxics", {"type": "latency"}),
        ("POST", "/populate", [proxy(listen=f"localhost:{PORT}")]),
        ("POST", "/populate", [proxy(listen=f"127.0.0.1:{PORT}")]),
        ("POST", "/proxies/p", {"listen": f"localhost:{PORT}"}),
        ("GET", "/proxies/p", b""),
        ("POST", "/populate", [proxy(listen=f"localhost:{PORT}", enabled=False)]),
        ("POST", "/populate", [proxy(listen=f"localhost:{PORT}", upstream="127.0.0.1:10")]),
        ("POST", "/populate", [proxy(name="x"), proxy(name="y", listen="bad"), proxy(name="z")]),
        ("POST", "/populate", [proxy(name="x", listen="nowhere")]),
        ("POST", "/populate", [proxy(name="v"), {"name": "w"}]),
        ("POST", "/populate", [proxy(name="u"), proxy(name="u"), proxy(name="u", enabled=False)]),
        ("POST", "/populate", proxy()),
        ("GET", "/proxies", b""),
    ],
    "routes": [
        ("POST", "/proxies", proxy(name="a b")),
        ("GET", "/proxies/a%20b", b""),
        ("GET", "/proxies/c%2Fd", b""),
        ("POST", "/proxies/a%20b/toxics", {"name": "s/t", "type": "latency"}),
        ("DELETE", "/proxies/a%20b/toxics/s%2Ft", b""),
        *(
            (method, path, b"")
            for path in (
                *("/", "/proxies/", "/proxies", "/proxies/x", "/proxies/x/toxics", "/nothing"),
                *("/reset", "/populate", "/version", "/proxies/x/toxics/y"),
            )
            for method in ("PUT", "OPTIONS", "DELETE")
        ),
        ("GET", "/version", b""),
        ("PATCH", "/proxies/none/toxics/t", {}),
        ("DELETE", "/proxies/a%20b", b""),
        ("DELETE", "/proxies/a%20b", b""),
    ],
}


def made_up(rng: random.Random) -> list[Call]:
    def fields(names: dict[str, list[object]]) -> dict[str, object]:
        odd = [None, 1, 2.5, "", "x", [], {}, True]
        picked = {}
        for name, usual in names.items():
            if rng.random() < 0.8:
                case = rng.choice([str, str, str.upper, str.title])
                picked[case(name)] = rng.choice(usual if rng.random() < 0.9 else odd)
        return picked

    def some_proxy() -> dict[str, object]:
        listens: list[object] = ["127.0.0.1:0", f"localhost:{PORT}", f"127.0.0.1:{PORT}"]
        upstreams: list[object] = [UPSTREAM, "127.0.0.1:10"]
        return fields({"name": ["a", "b"], "listen": listens, "upstream": upstreams,
                       "enabled": [True, False]})  # fmt: skip

    def some_toxic() -> dict[str, object]:
        kinds: list[object] = ["latency", "bandwidth", "timeout", "slicer", "noop", "limit_data"]
        numbers: list[object] = [0, 5, -1]
        made = fields({"name": ["s", "t"], "type": kinds, "stream": ["upstream", "Downstream"],
                       "toxicity": [0, 0.5, 1]})  # fmt: skip
        attributes = fields(
            dict.fromkeys(("latency", "jitter", "rate", "timeout", "delay"), numbers)
        )
        return made | {rng.choice(["attributes", "Attributes"]): attributes}

    def one() -> Call:
        name, toxic = rng.choice("abc"), rng.choice("stu")
        post = rng.choice(["POST", "PATCH"])
        change = {"attributes": {rng.choice(["latency", "Rate"]): rng.choice([3, None])}}
        return rng.choice(
            [
                ("POST", "/proxies", some_proxy()),
                ("POST", "/populate", [some_proxy() for _ in range(rng.randrange(3))]),
                (post, f"/proxies/{name}", some_proxy()),
                ("POST", f"/proxies/{name}/toxics", some_toxic()),
                ("POST", f"/proxies/{name}/toxics", some_toxic()),
                (post, f"/proxies/{name}/toxics/{toxic}", change | fields({"toxicity": [0, 1]})),
                ("DELETE", f"/proxies/{name}/toxics/{toxic}", b""),
                ("DELETE", f"/proxies/{name}", b""),
                ("GET", f"/proxies/{name}", b""),
                ("GET", "/proxies", b""),
                ("POST", "/reset", b""),
            ]
        )

    return [one() for _ in range(20)]


def assert_alike(both_servers, calls: list[Call]) -> None:
    real = answers(both_servers("real"), calls)
    answers(both_servers("real"), [])  # frees the ports for the other server
    ours = answers(both_servers("ours"), calls)
    answers(both_servers("ours"), [])
    for at_real, at_ours in zip(real, ours, strict=True):
        assert at_real == at_ours
        if at_real[1] == "/reset" and at_real[3] == 500:
            return  # the real server visits proxies in random order, and stops at the first error


@pytest.mark.toxiproxy
@pytest.mark.parametrize("kind", CALLS)
def test_answers_are_those_of_the_real_one(both_servers, kind):
    assert_alike(both_servers, CALLS[kind])


@pytest.mark.toxiproxy
@pytest.mark.parametrize("seed", range(40))
def test_made_up_calls_are_answered_as_by_the_real_one(both_servers, seed):
    assert_alike(both_servers, made_up(random.Random(seed)))
