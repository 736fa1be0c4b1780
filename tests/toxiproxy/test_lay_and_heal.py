"""The program that sets Docker's stream faults, against the harness's Toxiproxy and a real one."""

import json

import pytest

from harness.cluster import CLIENT, Link, StreamQuality
from harness.environments.docker.capabilities import check_shape
from harness.environments.docker.network import rules, streams, toxics
from harness.environments.docker.network.streams import stream_command
from harness.environments.toxiproxy.toxics import toxics_of
from harness.errors import UsageError
from harness.nodes.degradation import RESET_AFTER_MS_MAX, SLICE_BYTES_MAX

ADDRESSES = {"m1": "127.0.0.1", "m2": "127.0.0.2", CLIENT: "127.0.0.3"}
PORTS = {"m1": (7051,), "m2": (7051, 80)}
BAD = StreamQuality(slice_bytes=100, gap_ms=0.5, reset_after_ms=1500)
THERE, BACK = Link("m1", "m2"), Link("m2", "m1")


def laid(fault, node, *links, quality=BAD):
    """Return the arguments of `lay` for a fault in this node's namespace."""
    words = stream_command(fault, node, links, quality, ADDRESSES, PORTS)
    assert words[:6] == ["sh", "-c", words[2], "stream", rules.comment_of(fault), rules.TOXICS]
    return words[6], [json.loads(word) for word in words[7:]]


@pytest.fixture
def at(server, monkeypatch):
    monkeypatch.setattr(toxics, "PORT", server.port)
    return server


def toxics_at(server):
    return {
        (proxy["name"], toxic["name"], toxic["type"], toxic["stream"])
        for proxy in server.request("GET", "/proxies")[1].values()
        for toxic in proxy["toxics"]
    }


def test_a_fault_is_laid_once_and_healed_by_the_patterns_of_rules(at):
    _, wanted = laid("stream-1", "m1", THERE)
    printed = toxics.lay(wanted)
    assert toxics.lay(wanted) == printed
    _, others = laid("stream-12", "m1", THERE, BACK)
    toxics.lay(others)

    proxies = at.request("GET", "/proxies")[1]
    assert {name: proxy["upstream"] for name, proxy in proxies.items()} == {
        "m1>m2:7051": "127.0.0.2:7051",
        "m1>m2:80": "127.0.0.2:80",
    }
    for port in (7051, 80):
        listening = proxies[f"m1>m2:{port}"]["listen"].rpartition(":")[2]
        assert f" --dport {port} " in next(r for r in printed if r.endswith(f"ports {listening}"))
    assert len(toxics_at(at)) == 2 * 2 * 3
    toxics.heal(rules.select_fault("stream-1"))
    left = toxics_at(at)
    assert {name for _, name, _, _ in left} == {
        f"harness:stream-12:{kind}:{link}"
        for kind in ("slicer", "reset_peer")
        for link in ("m1>m2", "m2>m1")
    }
    assert {(name[-5:], stream) for _, name, _, stream in left} == {
        ("m1>m2", "upstream"),
        ("m2>m1", "downstream"),
    }
    kinds = [kind for kind, _ in toxics_of(BAD)]
    toxics.heal(rules.select_links("stream-12", [BACK], kinds))
    assert {name[-5:] for _, name, _, _ in toxics_at(at)} == {"m1>m2"}
    for _ in range(2):
        toxics.heal(rules.select_links("stream-12", [THERE], kinds))
    assert toxics_at(at) == set()


def test_a_server_that_refuses_says_why(at, capsys):
    _, (first, *_) = laid("stream-1", "m1", THERE)
    first["toxics"][0]["type"] = "none-such"
    assert toxics.main(["lay", json.dumps(first)]) == 1
    assert "invalid toxic type" in capsys.readouterr().err


def test_healing_that_is_refused_is_not_taken_for_done(monkeypatch, capsys):
    def refuse(*_words, **_named):
        raise toxics.RefusedError("out of order")

    monkeypatch.setattr(toxics, "ask", refuse)
    assert toxics.main(["heal", "-e", "x"]) == 1
    assert "out of order" in capsys.readouterr().err


@pytest.mark.parametrize(
    "quality",
    [
        StreamQuality(),
        StreamQuality(slice_bytes=-1),
        StreamQuality(slice_bytes=SLICE_BYTES_MAX + 1),
        StreamQuality(gap_ms=1),
        StreamQuality(slice_bytes=1, gap_ms=-1),
        StreamQuality(reset_after_ms=-1),
        StreamQuality(reset_after_ms=RESET_AFTER_MS_MAX + 1),
    ],
)
def test_a_quality_that_no_stream_has_is_refused(quality):
    with pytest.raises(UsageError):
        check_shape(quality, {})


def test_without_a_server_nothing_is_left_to_heal(monkeypatch, capsys):
    monkeypatch.setattr(toxics, "PORT", 1)
    assert toxics.main(["heal", "-e", "x"]) == 0
    assert not rules.is_served(capsys.readouterr().out, rules.Table.STREAM)
    monkeypatch.setattr(toxics, "_START_S", 0.0)
    assert toxics.main(["lay"]) == 1
    assert capsys.readouterr().err


def test_healing_reports_that_a_server_answered(at, capsys):
    assert toxics.main(["heal", "-e", "x"]) == 0
    assert rules.is_served(capsys.readouterr().out, rules.Table.STREAM)


@pytest.mark.parametrize(
    ("node", "link", "chain", "stream"),
    [
        ("m1", THERE, "OUTPUT -d 127.0.0.2/32", "upstream"),
        ("m2", THERE, "OUTPUT -d 127.0.0.1/32", "downstream"),
        ("m2", Link(CLIENT, "m2"), "PREROUTING -s 127.0.0.3/32", "upstream"),
        ("m2", Link("m2", CLIENT), "PREROUTING -s 127.0.0.3/32", "downstream"),
    ],
)
def test_connections_are_redirected_where_they_are_opened(node, link, chain, stream):
    peers, proxies = laid("stream-1", node, link)
    other = {link.source, link.destination} - {node}
    assert peers == ADDRESSES[other.pop()]
    for proxy in proxies:
        port = proxy["name"].rpartition(":")[2]
        counts, redirects = proxy["rules"]
        comment = f'-m comment --comment "harness:stream-1:{link.source}>{link.destination}"'
        passed = "" if CLIENT in proxy["name"] else f" -m owner ! --uid-owner {streams.PROXY_UID}"
        match = f"{chain.partition(' ')[2]} -p tcp -m tcp --dport {port}{passed} {comment}"
        name = chain.partition(" ")[0]
        assert counts == f"-I {name} 1 {match}"
        assert redirects == f"-A {name} {match} -j REDIRECT --to-ports PROXY"
        assert {toxic["stream"] for toxic in proxy["toxics"]} == {stream}
        listening = "127.0.0.2" if CLIENT in proxy["name"] else "127.0.0.1"
        assert proxy["listen"] == f"{listening}:0"


def test_a_connection_counts_once_where_a_fault_lies_on_both_directions():
    _, proxies = laid("stream-1", "m1", THERE, BACK)
    rules_of = [rule for proxy in proxies for rule in proxy["rules"]]
    assert len([rule for rule in rules_of if " -j " not in rule]) == len(PORTS["m2"])
    assert len([rule for rule in rules_of if " -j " in rule]) == 2 * len(PORTS["m2"])


def test_a_quality_is_toxics_in_their_units():
    assert toxics_of(BAD) == [
        ("slicer", {"average_size": 100, "size_variation": 0, "delay": 500}),
        ("reset_peer", {"timeout": 1500}),
    ]
    assert toxics_of(StreamQuality(reset_after_ms=0)) == [("reset_peer", {"timeout": 0})]
