"""The same servers, used through `toxiproxy-python`, an independent client."""

import socket

import pytest
from toxiproxy import Toxiproxy
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from tests.toxiproxy.conftest import echo

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


@pytest.fixture
def toxiproxy(server):
    client = Toxiproxy()
    client.update_api_consumer(server.host, server.port)
    return client


def say(listen: str, data: bytes) -> bytes:
    host, port = listen.split(":")
    with socket.create_connection((host, int(port)), 5) as conn:
        conn.sendall(data)
        return conn.recv(1000)


def test_life_of_a_proxy(toxiproxy, upstream):
    proxy = toxiproxy.create(name="echo", upstream=upstream(echo))

    assert toxiproxy.running()
    assert toxiproxy.version()
    assert list(toxiproxy.proxies()) == ["echo"]
    assert proxy.listen == toxiproxy.get_proxy("echo").listen
    assert say(proxy.listen, b"hello") == b"hello"
    with pytest.raises(ProxyExists):
        toxiproxy.create(name="echo", upstream="127.0.0.1:9")
    assert toxiproxy.destroy(proxy)
    assert toxiproxy.get_proxy("echo") is None
    with pytest.raises(NotFound):
        proxy.destroy()


def test_down(toxiproxy, upstream):
    proxy = toxiproxy.create(name="echo", upstream=upstream(echo))

    with proxy.down(), pytest.raises(ConnectionRefusedError):
        say(proxy.listen, b"hello")
    assert say(proxy.listen, b"hello") == b"hello"


def test_toxics(toxiproxy, upstream):
    proxy = toxiproxy.create(name="echo", upstream=upstream(echo))
    proxy.add_toxic(name="slow", type="latency", attributes={"latency": 20, "jitter": 5})
    proxy.add_toxic(type="limit_data", stream="upstream", attributes={"bytes": 3})

    assert sorted(proxy.toxics()) == ["limit_data_upstream", "slow"]
    slow = proxy.get_toxic("slow")
    assert (
        slow.type,
        slow.stream,
        slow.toxicity,
        slow.attributes,
    ) == ("latency", "downstream", 1, {"latency": 20, "jitter": 5})
    with pytest.raises(ProxyExists):
        proxy.add_toxic(name="slow", type="timeout")
    with pytest.raises(InvalidToxic):
        proxy.add_toxic(name="other", type="rabies")
    proxy.destroy_toxic("slow")
    with pytest.raises(NotFound):
        proxy.destroy_toxic("slow")
    assert list(proxy.toxics()) == ["limit_data_upstream"]
    assert toxiproxy.reset()
    assert proxy.toxics() == {}


def test_populate_and_destroy_all(toxiproxy):
    wanted = [
        {"name": f"p{i}", "listen": "127.0.0.1:0", "upstream": f"127.0.0.1:{i}"} for i in (1, 2)
    ]
    made = toxiproxy.populate(wanted)

    assert [proxy.name for proxy in made] == ["p1", "p2"]
    toxiproxy.destroy_all()
    assert toxiproxy.proxies() == {}
