"""The HTTP API of the link proxy, tested by raw requests."""

import socket

import pytest

from tests.toxiproxy.conftest import Server

UPSTREAM = "127.0.0.1:9"


def make(server: Server, name: str = "p", **fields: object) -> dict:
    body = {"name": name, "listen": "127.0.0.1:0", "upstream": UPSTREAM} | fields
    status, made, content_type = server.request("POST", "/proxies", body)
    assert status == 201, made
    assert content_type.startswith("application/json")
    return made


def connects(listen: str) -> bool:
    host, port = listen.split(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:
        return True  # the proxy accepts and closes at once, because nothing listens behind it
    return True


def assert_error(answer: tuple, status: int, text: str) -> None:
    assert status == answer[0]
    assert {"error": answer[1]["error"], "status": status} == answer[1]
    assert text in answer[1]["error"]
    # Go's http.Error writes this; clients must still be able to parse it
    assert answer[2].startswith("text/plain")


def test_create_shows_the_real_port(server):
    made = make(server)

    assert {"name", "listen", "upstream", "enabled", "toxics"} <= set(made)
    assert (made["name"], made["upstream"]) == ("p", UPSTREAM)
    assert (made["enabled"], made["toxics"]) == (True, [])
    assert not made["listen"].endswith(":0")
    assert connects(made["listen"])
    assert (200, made) == server.request("GET", "/proxies/p")[:2]
    assert {"p": made} == server.request("GET", "/proxies")[1]


def test_create_disabled_does_not_listen(server):
    made = make(server, enabled=False)

    assert made["enabled"] is False
    assert made["listen"] == "127.0.0.1:0"


NO_PROXY = [
    *(("GET", ""), ("POST", ""), ("DELETE", ""), ("GET", "/toxics"), ("POST", "/toxics")),
    *(("GET", "/toxics/t"), ("POST", "/toxics/t"), ("DELETE", "/toxics/t")),
]
REFUSED = [
    ("/proxies", {"listen": "127.0.0.1:0", "upstream": UPSTREAM}, 400, "required field: name"),
    ("/proxies", {"name": "q", "listen": "127.0.0.1:0"}, 400, "missing required field: upstream"),
    ("/proxies", {"name": 1}, 400, "bad request body"),
    ("/proxies", b"{", 400, "bad request body: "),
    ("/proxies", {"name": "p", "upstream": UPSTREAM}, 409, "proxy already exists"),
    ("/proxies/p/toxics", {"type": "rabies"}, 400, "invalid toxic type"),
    ("/proxies/p/toxics", {"type": ""}, 400, "invalid toxic type"),
    ("/proxies/p/toxics", {"type": "latency", "stream": "sideways"}, 400, "can be either upstream"),
    *(
        ("/proxies/p/toxics", {"type": "latency", "attributes": {"latency": each}}, 400, "bad req")
        for each in ("soon", 1.5)
    ),
    ("/proxies/p/toxics", {"name": "t", "type": "timeout"}, 409, "toxic already exists"),
    ("/proxies/p/toxics/t", b"[", 400, "bad request body"),
]


@pytest.mark.parametrize(("path", "body", "status", "text"), REFUSED)
def test_refused_requests_change_nothing(server, path, body, status, text):
    make(server)
    server.request("POST", "/proxies/p/toxics", {"name": "t", "type": "latency"})
    before = server.request("GET", "/proxies")
    raw = body if isinstance(body, bytes) else None
    assert_error(server.request("POST", path, body, raw=raw), status, text)
    assert server.request("GET", "/proxies") == before


@pytest.mark.parametrize(("method", "path"), NO_PROXY)
def test_unknown_proxy(server, method, path):
    assert_error(server.request(method, f"/proxies/none{path}", {}), 404, "proxy not found")


def test_create_on_a_taken_port_is_a_server_error_and_leaves_nothing(server):
    taken = make(server)["listen"]

    body = {"name": "q", "listen": taken, "upstream": UPSTREAM}
    assert_error(server.request("POST", "/proxies", body), 500, f"listen tcp {taken}")
    assert_error(server.request("GET", "/proxies/q"), 404, "proxy not found")


def test_names_are_quoted_in_paths(server):
    make(server, name="run-1-a->b:7051")

    status, proxy, _ = server.request("GET", "/proxies/run-1-a-%3Eb%3A7051")
    assert (status, proxy["name"]) == (200, "run-1-a->b:7051")
    assert server.request("DELETE", "/proxies/run-1-a-%3Eb%3A7051")[0] == 204


def test_disable_and_enable_keep_the_port(server):
    made = make(server)

    status, proxy, _ = server.request("POST", "/proxies/p", {"enabled": False})
    assert (200, False, made["listen"]) == (status, proxy["enabled"], proxy["listen"])
    assert not connects(made["listen"])

    status, proxy, _ = server.request("POST", "/proxies/p", {"enabled": True})
    assert (200, made) == (status, proxy)
    assert connects(made["listen"])


def test_update_of_upstream_restarts(server):
    made = make(server)

    status, proxy, _ = server.request("POST", "/proxies/p", {"upstream": "127.0.0.1:10"})
    assert (200, made | {"upstream": "127.0.0.1:10"}) == (status, proxy)


def test_delete(server):
    made = make(server)

    assert server.request("DELETE", "/proxies/p")[:2] == (204, "")
    assert not connects(made["listen"])
    assert_error(server.request("DELETE", "/proxies/p"), 404, "proxy not found")


def test_toxic_defaults(server):
    make(server)

    body = {"type": "latency", "attributes": {"latency": 5}}
    status, made, _ = server.request("POST", "/proxies/p/toxics", body)
    expected = {
        "name": "latency_downstream",
        "type": "latency",
        "stream": "downstream",
        "toxicity": 1,
        "attributes": {"latency": 5, "jitter": 0},
    }
    assert (200, expected) == (status, made)
    assert expected == server.request("GET", "/proxies/p/toxics/latency_downstream")[1]
    assert [expected] == server.request("GET", "/proxies/p/toxics")[1]
    assert [expected] == server.request("GET", "/proxies/p")[1]["toxics"]


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("latency", {"latency": 1, "jitter": 2}),
        ("bandwidth", {"rate": 3}),
        ("slow_close", {"delay": 4}),
        ("timeout", {"timeout": 5}),
        ("reset_peer", {"timeout": 6}),
        ("slicer", {"average_size": 7, "size_variation": 2, "delay": 8}),
        ("limit_data", {"bytes": 9}),
    ],
)
def test_every_toxic_keeps_its_attributes(server, kind, attributes):
    make(server)

    body = {"name": "t", "type": kind, "stream": "upstream", "attributes": attributes}
    assert server.request("POST", "/proxies/p/toxics", body)[0] == 200
    toxic = server.request("GET", "/proxies/p/toxics/t")[1]
    expected = {"name": "t", "type": kind, "stream": "upstream", "attributes": attributes}
    assert toxic == expected | {"toxicity": 1}


def test_toxic_update_changes_attributes_and_toxicity_only(server):
    make(server)
    body = {"name": "t", "type": "latency", "attributes": {"latency": 1, "jitter": 2}}
    server.request("POST", "/proxies/p/toxics", body)

    change = {"attributes": {"latency": 9}, "toxicity": 0.5, "stream": "upstream", "name": "u"}
    status, toxic, _ = server.request("POST", "/proxies/p/toxics/t", change)
    assert status == 200
    assert toxic == {
        "name": "t",
        "type": "latency",
        "stream": "downstream",
        "toxicity": 0.5,
        "attributes": {"latency": 9, "jitter": 2},
    }


def test_toxic_delete(server):
    make(server)
    server.request("POST", "/proxies/p/toxics", {"name": "t", "type": "latency"})

    assert server.request("DELETE", "/proxies/p/toxics/t")[:2] == (204, "")
    assert_error(server.request("DELETE", "/proxies/p/toxics/t"), 404, "toxic not found")
    assert_error(server.request("GET", "/proxies/p/toxics/t"), 404, "toxic not found")
    assert_error(server.request("POST", "/proxies/p/toxics/t", {}), 404, "toxic not found")


def test_populate_makes_keeps_and_replaces(server):
    kept = make(server, name="kept")
    moved = make(server, name="moved")
    server.request("POST", "/proxies/kept/toxics", {"name": "t", "type": "latency"})

    body = [
        {"name": "kept", "listen": kept["listen"], "upstream": UPSTREAM},
        {"name": "moved", "listen": moved["listen"], "upstream": "127.0.0.1:10"},
        {"name": "new", "listen": "127.0.0.1:0", "upstream": UPSTREAM},
        {"name": "off", "listen": "127.0.0.1:0", "upstream": UPSTREAM, "enabled": False},
    ]
    status, answer, content_type = server.request("POST", "/populate", body)
    assert status == 201
    assert [proxy["name"] for proxy in answer["proxies"]] == ["kept", "moved", "new", "off"]
    assert content_type.startswith("application/json")
    proxies = server.request("GET", "/proxies")[1]
    assert [toxic["name"] for toxic in proxies["kept"]["toxics"]] == ["t"]
    assert proxies["moved"]["upstream"] == "127.0.0.1:10"
    assert [name for name, proxy in proxies.items() if not proxy["enabled"]] == ["off"]


def test_populate_checks_all_before_it_makes_any(server):
    body = [{"name": "a", "listen": "127.0.0.1:0", "upstream": UPSTREAM}, {"name": "b"}]

    status, answer, _ = server.request("POST", "/populate", body)
    assert status == 400
    assert answer["error"] == "missing required field: upstream at proxy 2"
    assert server.request("GET", "/proxies")[1] == {}


def test_a_failed_populate_lists_the_created_proxies(server):
    taken = make(server, name="taken")["listen"]

    body = [
        {"name": "a", "listen": "127.0.0.1:0", "upstream": UPSTREAM},
        {"name": "b", "listen": taken, "upstream": UPSTREAM},
    ]
    status, answer, _ = server.request("POST", "/populate", body)
    assert (status, answer["status"]) == (500, 500)
    assert [proxy["name"] for proxy in answer["proxies"]] == ["a"]
    assert f"listen tcp {taken}" in answer["error"]


def test_reset_enables_all_and_removes_toxics(server):
    off = make(server, name="off")
    make(server, name="sick")
    server.request("POST", "/proxies/off", {"enabled": False})
    server.request("POST", "/proxies/sick/toxics", {"type": "timeout"})
    server.request("POST", "/proxies/sick/toxics", {"type": "latency", "stream": "upstream"})

    assert server.request("POST", "/reset")[:2] == (204, "")
    proxies = server.request("GET", "/proxies")[1]
    assert (proxies["off"]["enabled"], proxies["sick"]["toxics"]) == (True, [])
    assert connects(off["listen"])


def test_browsers_are_turned_away(server):
    headers = {"User-Agent": "Mozilla/5.0 (X11)"}
    status, text, content_type = server.request("GET", "/version", headers=headers)

    assert (status, text) == (403, "User agent not allowed\n")
    assert content_type.startswith("text/plain")


@pytest.mark.parametrize("path", ["/", "/nothing", "/proxies/p/other/x", "/proxies/p/toxics/t/u"])
def test_unknown_paths(server, path):
    assert server.request("GET", path)[:2] == (404, "404 page not found\n")


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", "/proxies"), ("GET", "/reset"), ("GET", "/populate")]
)
def test_wrong_methods(server, method, path):
    assert server.request(method, path)[0] == 405


def test_patch_updates(server):
    make(server)
    server.request("POST", "/proxies/p/toxics", {"name": "t", "type": "latency"})

    status, answer, _ = server.request("PATCH", "/proxies/p", {"enabled": False})
    assert (status, answer["enabled"]) == (200, False)
    change = {"attributes": {"latency": 7}}
    status, answer, _ = server.request("PATCH", "/proxies/p/toxics/t", change)
    assert (status, answer["attributes"]["latency"]) == (200, 7)


def test_oversized_and_malformed_requests_are_refused(ours):
    def say(raw: bytes) -> bytes:
        with socket.create_connection((ours.host, ours.port), 10) as conn:
            conn.sendall(raw)
            conn.shutdown(socket.SHUT_WR)
            return conn.recv(65536)

    assert say(b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000).startswith(b"HTTP/1.1 431 ")
    assert say(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert say(b"GET / HTTP/1.1\r\nbroken\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    too_big = b"POST /populate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n"
    assert say(too_big).startswith(b"HTTP/1.1 413 ")
    assert ours.request("GET", "/version")[0] == 200
