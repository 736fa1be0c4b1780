"""Features that only the harness's proxy has, such as cuts and counted resets."""

import contextlib
import socket
import threading
import time

import pytest

from harness.environments.toxiproxy.api import TOKEN_VARIABLE
from harness.environments.toxiproxy.client import ToxiproxyClient, ToxiproxyError
from harness.environments.toxiproxy.metrics import CONNECTIONS, SWALLOWED, parse_metrics
from tests.support.waiting import LIMIT_S, wait_until
from tests.toxiproxy.conftest import Passage, ask, echo, is_silent, receive, serving


@pytest.fixture
def server(ours):
    return ours


def counters(server, *families):
    return parse_metrics(server.request("GET", "/metrics")[1], families)


def test_blackhole_swallows_counts_and_resets_connections_that_lost_bytes(server, through):
    passage = through()
    busy, idle = passage.connect(), passage.connect()
    ask(busy, b"x")
    ask(idle, b"x")

    toxic = passage.add("blackhole", "upstream")
    busy.sendall(b"lost")
    assert is_silent(busy, 0.1)
    swallowed = SWALLOWED, passage.name, "upstream"
    wait_until(lambda: counters(server, SWALLOWED).get(swallowed) == 4)
    passage.remove(toxic)
    with pytest.raises(ConnectionResetError):
        busy.recv(1)
    assert ask(idle, b"alive") == b"alive"


def test_blackhole_keeps_the_end_of_a_connection(server, through):
    ended = threading.Event()

    def behave(conn) -> None:
        echo(conn)
        ended.set()

    passage = through(behave)
    conn = passage.connect()
    ask(conn, b"x")
    toxic = passage.add("blackhole", "upstream")
    conn.close()
    assert not ended.wait(0.2)
    passage.remove(toxic)
    assert ended.wait(LIMIT_S)


def test_reset_resets_and_counts(server, through):
    passage = through()
    conns = [passage.connect() for _ in range(3)]
    for conn in conns:
        ask(conn, b"x")
    assert counters(server, CONNECTIONS)[CONNECTIONS, passage.name, ""] == 3

    status, answer, _ = server.request("POST", f"/proxies/{passage.name}/reset")
    assert (status, answer) == (200, {"connections": 3})
    for conn in conns:
        with pytest.raises(ConnectionResetError):
            conn.recv(1)
    assert ask(passage.connect(), b"new") == b"new"


def test_a_seed_repeats_which_connections_are_hit(upstream):
    def hits(seed: int) -> list[bool]:
        with serving("ours", "--seed", str(seed)) as server:
            passage = Passage(server, upstream(echo), name="p")
            passage.add("limit_data", "downstream", toxicity=0.5, bytes=0)
            outcome = []
            for _ in range(12):
                conn = passage.connect()
                conn.sendall(b"x")
                outcome.append(conn.recv(1) == b"")  # closed, not by the timeout
            passage.close()
            return outcome

    first = hits(1)
    assert first == hits(1)
    assert {True, False} == set(first)


def test_bandwidth_of_zero_passes_nothing_until_it_is_more(through):
    passage = through()
    conn = passage.connect()
    ask(conn, b"x")
    toxic = passage.add("bandwidth", rate=0)
    conn.sendall(b"held")
    assert is_silent(conn, 0.1)
    passage.change(toxic, rate=100)
    assert receive(conn, 4) == b"held"
    assert ask(conn, b"on") == b"on"


def test_with_a_token_other_clients_read_and_change_nothing(monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    with serving("ours") as server:
        body = {"name": "p", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:9"}
        right = {"Authorization": "Bearer secret"}
        assert server.request("POST", "/proxies", body, headers=right)[0] == 201
        for method, path in (
            *(("POST", "/reset"), ("GET", "/proxies"), ("DELETE", "/proxies/p")),
            *(("GET", "/metrics"), ("GET", "/version"), ("POST", "/proxies/p/reset")),
        ):
            for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": "secret"}):
                assert server.request(method, path, headers=wrong)[0] == 401
        assert list(server.request("GET", "/proxies", headers=right)[1]) == ["p"]


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:1", 200), ("evil.example", 403), ("[::1]evil.example", 403)],
)
def test_names_that_lead_here_from_elsewhere_are_refused(server, host, status):
    assert server.request("GET", "/version", headers={"Host": host})[0] == status


async def test_client_reports_url_status_and_body(server):
    client = ToxiproxyClient(server.url)
    with pytest.raises(ToxiproxyError) as caught:
        await client.add_toxic("a->b:1", "t", "latency", "upstream", {})
    assert caught.value.status == 404
    assert caught.value.url == f"{server.url}/proxies/a-%3Eb%3A1/toxics"
    assert "proxy not found" in caught.value.body
    await client.close()


async def test_client_times_out_instead_of_hanging(upstream):
    client = ToxiproxyClient(f"http://{upstream(lambda conn: time.sleep(3))}", timeout_s=0.1)
    with pytest.raises(ToxiproxyError, match="TimeoutError"):
        await client.version()
    await client.close()


def share(server, passage, folder, **changes):
    body = {
        "listen": "127.77.0.1:0",
        "callers": str(folder),
        "proxies": {"client": passage.name},
        "hosts": {},
        "otherwise": "client",
        "neutral": "client",
    }
    return server.request("POST", "/addresses", body | changes)


def test_at_a_shared_address_an_unknown_caller_is_the_other(server, through, tmp_path):
    passage = through()
    status, made, _ = share(server, passage, tmp_path)
    assert status == 201
    host, port = made["listen"].split(":")
    assert host == "127.77.0.1"
    with socket.create_connection((host, int(port)), LIMIT_S) as conn:
        assert ask(conn, b"hello") == b"hello"
        assert counters(server, CONNECTIONS)[CONNECTIONS, passage.name, ""] == 1
    server.request("POST", f"/proxies/{passage.name}", {"enabled": False})
    with (
        socket.create_connection((host, int(port)), LIMIT_S) as conn,
        contextlib.suppress(ConnectionResetError),
    ):
        assert conn.recv(1) == b""


def test_a_shared_address_that_cannot_be_is_refused(server, through, tmp_path):
    passage = through()
    for caller in ("otherwise", "neutral"):
        assert share(server, passage, tmp_path, **{caller: "nobody"})[0] == 400
    assert share(server, passage, tmp_path, proxies={"client": "no-such"})[0] == 404
    assert share(server, passage, tmp_path, listen=passage.info["listen"])[0] == 500
