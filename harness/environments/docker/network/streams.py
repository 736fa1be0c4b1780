"""Stream faults: rules redirect connections through a Toxiproxy in the opening node's namespace.

Bytes from A to B flow upstream in connections that A opened, and downstream in connections that B
opened. So a fault on one link has rules in the namespaces of both ends, where connections leave
(`OUTPUT`). The other end sees the same peer address as without a proxy. Clients are outside of
these namespaces, so their connections are redirected on arrival at the node (`PREROUTING`), and the
node sees its own address as the peer.

A node's Toxiproxy is a container in the node's network namespace. The first fault that needs it
creates it, and it stays until the run ends. Toxiproxy runs as a dedicated user, whose connections
the rules do not redirect. It has one proxy for each port that a peer declares; faults only add and
remove toxics. Connections that were opened before a fault would bypass the proxy, so they are reset
when the fault begins. Connections that are open when a fault is healed keep using the proxy, which
from then on only copies bytes.

The name of a toxic contains the same text about its fault and link as the comment of a rule, so the
same patterns find both for removal (`rules.heal_command`). The kernel passes only the first packet
of each connection to the table `nat`, so these rules count connections.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from harness.cluster import Link, StreamQuality, is_client
from harness.environments.docker.network import rules, toxics
from harness.environments.toxiproxy.toxics import toxics_of

PROXY_UID: Final = 65531
_PASSED: Final = f"-m owner ! --uid-owner {PROXY_UID}"

_STREAM = """
saved=$(iptables-save -t nat) || exit 1
mark=$1; program=$2; peers=$3; shift 3
if ! printf '%s\\n' "$saved" | grep -q -F -e "$mark"; then
  rules=$(python3 -I -S -c "$program" lay "$@") || exit 5
  { echo '*nat'; printf '%s\\n' "$rules"; echo COMMIT; } | iptables-restore -w 5 --noflush || exit
fi
for peer in $peers; do ss -K -t -n -H state established dst "$peer" >/dev/null; done
"""


def stream_command(
    fault: str,
    node: str,
    links: Iterable[Link],
    quality: StreamQuality,
    addresses: Mapping[str, str],
    ports: Mapping[str, tuple[int, ...]],
) -> list[str]:
    """Return a command that adds a stream fault to `links`, for connections that `node` opens.

    The command also resets the open connections between the ends. A second run only resets
    connections.
    """
    links = sorted(links)
    proxies = []
    counting = counting_links(node, links, ports)
    for link in links:
        for proxy in _proxies(fault, node, link, quality, addresses, ports):
            proxy["rules"] = proxy["rules"][0 if link in counting else 1 :]
            proxies.append(json.dumps(proxy))
    ends = {end for link in links for end in (link.source, link.destination)} - {node}
    peers = " ".join(sorted(addresses[end] for end in ends))
    return ["sh", "-c", _STREAM, "stream", rules.comment_of(fault), rules.TOXICS, peers, *proxies]


def counting_links(
    node: str, links: Iterable[Link], ports: Mapping[str, tuple[int, ...]]
) -> frozenset[Link]:
    """Return the links whose rules at `node` count connections. No connection is counted twice."""
    of_fault = frozenset(links)
    return frozenset(
        link
        for link in of_fault
        if (link.source < link.destination or Link(link.destination, link.source) not in of_fault)
        and any(ports[peer] for _, peer in _openers(node, link))
    )


def _openers(node: str, link: Link) -> Iterator[tuple[str, str]]:
    for opener, peer in ((link.source, link.destination), (link.destination, link.source)):
        if (peer if is_client(opener) else opener) == node and not is_client(peer):
            yield opener, peer


def _proxies(
    fault: str,
    node: str,
    link: Link,
    quality: StreamQuality,
    addresses: Mapping[str, str],
    ports: Mapping[str, tuple[int, ...]],
) -> Iterator[dict[str, Any]]:
    for opener, peer in _openers(node, link):
        chain, host, match = "OUTPUT", "127.0.0.1", f"-d {addresses[peer]}/32"
        passed = f" {_PASSED}"
        if is_client(opener):
            chain, host, match = "PREROUTING", addresses[node], f"-s {addresses[opener]}/32"
            passed = ""
        comment = f'-m comment --comment "{rules.mark(fault, link)}"'
        for port in ports[peer]:
            rule = f"{match} -p tcp -m tcp --dport {port}{passed} {comment}"
            yield {
                "name": f"{opener}>{peer}:{port}",
                "listen": f"{host}:0",
                "upstream": f"{addresses[peer]}:{port}",
                "toxics": [
                    {
                        "name": rules.mark(fault, link, kind),
                        "type": kind,
                        "stream": "upstream" if opener == link.source else "downstream",
                        "attributes": attributes,
                    }
                    for kind, attributes in toxics_of(quality)
                ],
                "rules": [
                    f"-I {chain} 1 {rule}",
                    f"-A {chain} {rule} -j REDIRECT --to-ports PROXY",
                ],
            }


def probe_command() -> list[str]:
    """Return a command that fails, with the reason, if the kernel cannot redirect connections."""
    redirected = f"-p tcp {_PASSED} -j REDIRECT --to-ports {toxics.PORT}"
    return ["sh", "-c", rules.probe("nat", redirected), "probe"]
