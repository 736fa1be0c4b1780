"""Bytes pass through the proxy, with each toxic and without, within fixed bounds of time."""

import contextlib
import random
import socket
import threading
import time

import pytest

from tests.support.waiting import LIMIT_S, wait_until
from tests.toxiproxy.conftest import ask, is_silent, receive, receive_all

BIG = random.Random(7).randbytes(3_000_000)


def timed(call):
    start_s = time.monotonic()
    result = call()
    return result, time.monotonic() - start_s


def takes(call, low_s: float, high_s: float) -> bool:
    """Whether a call never takes less than `low_s`, and at least once at most `high_s`.

    Only one call must be fast, because busy machines are slow.
    """
    for _ in range(20):
        took_s = timed(call)[1]
        assert took_s > low_s
        if took_s < high_s:
            return True
    return False


def exchange(conn: socket.socket, data: bytes) -> bytes:
    """Send and receive concurrently, since both directions may be limited."""
    sender = threading.Thread(target=conn.sendall, args=(data,), daemon=True)
    sender.start()
    answer = receive(conn, len(data))
    sender.join()
    return answer


def source(data: bytes):
    """Return a function that plays an upstream: it sends `data` and closes."""

    def behave(conn: socket.socket) -> None:
        conn.sendall(data)

    return behave


def silent_source(conn: socket.socket) -> None:
    conn.recv(1)


def test_bytes_pass_unchanged_both_ways(through):
    assert exchange(through().connect(), BIG) == BIG


def test_the_end_of_upstream_reaches_the_client(through):
    assert receive_all(through(source(b"bye")).connect()) == b"bye"


def test_the_end_of_the_client_reaches_upstream(through):
    ended = threading.Event()

    def behave(conn: socket.socket) -> None:
        assert not conn.recv(1)
        ended.set()

    through(behave).connect().close()
    assert ended.wait(LIMIT_S)


def test_a_dead_upstream_closes_the_client(server, through):
    passage = through()
    server.request("POST", f"/proxies/{passage.name}", {"upstream": "127.0.0.1:9"})

    with contextlib.suppress(ConnectionResetError):  # a reset would be a sign of life, too
        assert passage.connect().recv(1) == b""


def test_disable_closes_connections(server, through):
    passage = through()
    conn = passage.connect()
    ask(conn, b"x")

    server.request("POST", f"/proxies/{passage.name}", {"enabled": False})
    assert conn.recv(1) == b""


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_latency_delays(through, stream):
    passage = through()
    passage.add("latency", stream, latency=200, jitter=20)

    assert ask(passage.connect(), b"hello") == b"hello"
    assert takes(lambda: ask(passage.connect(), b"hello"), 0.17, 1.0)


def test_latency_keeps_order_and_is_not_added_up(through):
    passage = through()
    passage.add("latency", "upstream", latency=300, jitter=100)
    conn = passage.connect()
    sent = b"".join(bytes([i]) * 100 for i in range(200))

    def pieces() -> bytes:
        for i in range(0, len(sent), 100):
            conn.sendall(sent[i : i + 100])
            time.sleep(0.002)
        return receive(conn, len(sent))

    answer, took_s = timed(pieces)
    assert sent == answer
    assert 0.15 < took_s < 30


def test_removing_latency_lets_held_data_go_at_once(through):
    passage = through()
    toxic = passage.add("latency", "upstream", latency=60_000)
    conn = passage.connect()
    for i in range(20):
        conn.sendall(bytes([i]) * 1000)
        time.sleep(0.005)
    assert is_silent(conn, 0.1)

    passage.remove(toxic)
    assert b"".join(bytes([i]) * 1000 for i in range(20)) == receive(conn, 20_000)
    assert ask(conn, b"still open") == b"still open"


def test_changes_around_held_data_let_it_go(through):
    passage = through()
    toxic = passage.add("latency", "upstream", latency=60_000)
    conn = passage.connect()
    conn.sendall(b"held")
    assert is_silent(conn, 0.1)
    passage.change(toxic, latency=50_000)
    assert receive(conn, 4) == b"held"

    conn.sendall(b"again")
    assert is_silent(conn, 0.1)
    passage.add("slicer", "upstream", average_size=100)
    assert receive(conn, 5) == b"again"
    passage.remove(toxic)
    assert ask(conn, b"free") == b"free"


def test_toxics_reach_open_connections(through):
    passage = through()
    conn = passage.connect()
    assert ask(conn, b"before") == b"before"

    toxic = passage.add("latency", latency=1000)
    assert timed(lambda: ask(conn, b"during"))[1] > 0.9
    passage.change(toxic, latency=20)
    assert any(timed(lambda: ask(conn, b"updated"))[1] < 0.9 for _ in range(20))
    passage.remove(toxic)
    assert ask(conn, b"after") == b"after"


def test_bandwidth_limits(through):
    passage = through()
    passage.add("bandwidth", rate=200)  # KB/s
    conn = passage.connect()

    assert BIG[:100_000] == exchange(conn, BIG[:100_000])
    assert takes(lambda: exchange(conn, BIG[:100_000]), 0.35, 1.5)


def test_removing_bandwidth_lets_the_rest_go(through):
    passage = through(source(BIG[:300_000]))
    toxic = passage.add("bandwidth", rate=1)  # would take five minutes
    conn = passage.connect()
    assert BIG[:500] == receive(conn, 500)

    passage.remove(toxic)
    rest, took_s = timed(lambda: receive_all(conn))
    assert BIG[500:300_000] == rest
    assert took_s < 100


def test_bandwidth_of_zero_passes_nothing_until_it_is_removed(through):
    passage = through()
    conn = passage.connect()
    ask(conn, b"x")
    toxic = passage.add("bandwidth", rate=0)
    conn.sendall(b"held")
    assert is_silent(conn, 0.3)
    passage.remove(toxic)
    assert receive(conn, 4) == b"held"
    assert ask(conn, b"on") == b"on"


@pytest.mark.parametrize("verb", ["populate", "update"])
def test_the_same_addresses_again_keep_connections_and_toxics(server, through, verb):
    passage = through()
    conn = passage.connect()
    ask(conn, b"x")
    passage.add("latency", latency=1)
    same = {"listen": passage.info["listen"].replace("127.0.0.1", "localhost")}
    if verb == "populate":
        same |= {"name": passage.name, "upstream": passage.info["upstream"]}
        assert server.request("POST", "/populate", [same])[0] == 201
    else:
        assert server.request("POST", f"/proxies/{passage.name}", same)[0] == 200
    assert ask(conn, b"still there") == b"still there"
    assert len(server.request("GET", f"/proxies/{passage.name}/toxics")[1]) == 1


def test_slow_close_delays_the_end(through):
    passage = through(source(b"bye"))
    passage.add("slow_close", delay=300)

    assert receive_all(passage.connect()) == b"bye"
    assert takes(lambda: receive_all(passage.connect()), 0.2, 1.5)


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_timeout_zero_swallows_until_removed_and_then_closes(through, stream):
    passage = through()
    conn = passage.connect()
    assert ask(conn, b"x") == b"x"

    toxic = passage.add("timeout", stream, timeout=0)
    conn.sendall(b"lost")
    assert is_silent(conn, 0.2)
    passage.remove(toxic)
    assert conn.recv(1) == b""
    assert ask(passage.connect(), b"again") == b"again"


def test_timeout_cuts_one_way_only(through):
    heard: list[bytes] = []
    ended = threading.Event()

    def behave(conn: socket.socket) -> None:
        while data := conn.recv(100):
            heard.append(data)
            ended.set()
            conn.sendall(data)

    passage = through(behave)
    conn = passage.connect()
    passage.add("timeout", "downstream", timeout=0)
    conn.sendall(b"request")
    assert ended.wait(LIMIT_S)
    assert heard == [b"request"]
    assert is_silent(conn, 0.15)


def test_timeout_closes_after_silence(through):
    passage = through(silent_source)
    passage.add("timeout", timeout=200)

    assert passage.connect().recv(1) == b""
    assert takes(lambda: passage.connect().recv(1), 0.15, 1.5)


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_reset_peer_resets_new_connections(through, stream):
    passage = through()
    passage.add("reset_peer", stream, timeout=100)
    conn = passage.connect()

    start_s = time.monotonic()
    conn.sendall(b"x")
    with pytest.raises(ConnectionResetError):
        conn.recv(1)
    assert time.monotonic() - start_s > 0.08


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
def test_a_connection_that_is_not_reset_yet_when_our_reset_peer_goes_loses_nothing(
    through, ours, stream
):
    passage = through(at=ours)
    toxic = passage.add("reset_peer", stream, timeout=60_000)
    conn = passage.connect()
    conn.sendall(b"held")
    assert is_silent(conn, 0.1)
    passage.remove(toxic)
    assert receive(conn, 4) == b"held"
    assert ask(conn, b"more") == b"more"


def test_slicer_keeps_the_bytes(through):
    passage = through(source(BIG[:20_000]))
    passage.add("slicer", average_size=1000, size_variation=300, delay=2000)

    got, took_s = timed(lambda: receive_all(passage.connect()))
    assert BIG[:20_000] == got
    assert took_s > 0.02


def test_slicer_slices(through):
    passage = through(source(b"a" * 400))
    passage.add("slicer", average_size=100, size_variation=0, delay=200_000)

    def smallest() -> int:
        conn = passage.connect()
        sizes = []
        while part := conn.recv(1000):
            sizes.append(len(part))
        assert sum(sizes) == 400
        assert not any(size % 100 for size in sizes)
        return min(sizes)

    # A late reader may find some slices merged, but rarely all of them every time.
    assert any(smallest() == 100 for _ in range(20))


def test_limit_data_closes_after_its_bytes(through):
    passage = through(source(BIG[:10_000]))
    passage.add("limit_data", bytes=1234)

    assert BIG[:1234] == receive_all(passage.connect())
    assert BIG[:1234] == receive_all(passage.connect())  # each connection has a limit of its own


def test_limit_data_counts_across_updates(through):
    passage = through()
    toxic = passage.add("limit_data", bytes=100)
    conn = passage.connect()
    assert ask(conn, b"a" * 60) == b"a" * 60

    passage.change(toxic, bytes=80)
    conn.sendall(b"b" * 60)
    assert receive_all(conn) == b"b" * 20


def test_toxicity_zero_spares_everyone_and_a_half_some(through):
    passage = through()
    passage.add("latency", "upstream", latency=30_000, toxicity=0.0)
    assert ask(passage.connect(), b"fast") == b"fast"

    passage.add("limit_data", "downstream", bytes=0, toxicity=0.5)
    conns = [passage.connect() for _ in range(40)]
    for conn in conns:
        conn.sendall(b"x")
    ended = sum(conn.recv(1) == b"" for conn in conns)
    assert 5 <= ended <= 35  # outside these bounds only with a probability of 1 in 100 million


def test_toxics_chain(through):
    passage = through(source(BIG[:50_000]))
    passage.add("latency", latency=100)
    passage.add("slicer", average_size=5000)
    passage.add("bandwidth", rate=500)
    passage.add("limit_data", bytes=40_000)

    got, took_s = timed(lambda: receive_all(passage.connect()))
    assert BIG[:40_000] == got
    assert took_s > 0.1


def test_nothing_is_lost_or_doubled_while_toxics_come_and_go(through):
    passage = through()
    conn = passage.connect()
    stop = threading.Event()

    def change() -> None:
        rng = random.Random(3)
        while not stop.is_set():
            stream = rng.choice(["upstream", "downstream"])
            kind, attributes = rng.choice(
                [
                    ("latency", {"latency": 3, "jitter": 2}),
                    ("slicer", {"average_size": 9000, "size_variation": 500, "delay": 10}),
                    ("bandwidth", {"rate": 50_000}),
                ]
            )
            toxic = passage.add(kind, stream, **attributes)
            time.sleep(0.003)
            passage.remove(toxic)

    changer = threading.Thread(target=change, daemon=True)
    changer.start()
    try:
        assert exchange(conn, BIG) == BIG
    finally:
        stop.set()
        changer.join(LIMIT_S)


def test_metrics_count_both_ways(server, through):
    passage = through()
    conn = passage.connect()
    ask(conn, b"x" * 1000)
    conn.close()

    def counted(family: str, direction: str) -> float:
        for line in server.request("GET", "/metrics")[1].splitlines():
            if line.startswith(family + "{") and f'proxy="{passage.name}"' in line:
                labels, _, value = line.rpartition(" ")
                if f'direction="{direction}"' in labels:
                    return float(value)
        return -1

    wanted = dict.fromkeys(
        [
            (f"toxiproxy_proxy_{what}_bytes_total", way)
            for what in ("received", "sent")
            for way in ("upstream", "downstream")
        ],
        1000.0,
    )
    wait_until(lambda: {key: counted(*key) for key in wanted} == wanted)
