"""Bad streams: connections are redirected through a Toxiproxy in the namespace of their opener.

The flow from a to b is the upstream direction of the connections from a to b, and the downstream
direction of connections from b to a. So a fault on one link has rules in the namespaces
of both ends, where connections leave (`OUTPUT`), and the other end sees the address that it would
see without a proxy. Clients have no namespace of ours: their connections are redirected where they
come in (`PREROUTING`), and the node sees its own address as theirs.

A node's Toxiproxy is a container in its network namespace, made for the first fault that needs it
and gone with the run. It runs as a user of its own, whose connections the rules let through. Its
proxies stay, one for each port that a peer declares; faults add and remove toxics. A connection
that was open before would pass it by, so it is reset when a fault begins; one that is open when a
fault is healed goes on through the proxy, which then only copies bytes.

Toxics carry the mark of their fault and link in their names, as rules do in their comments, and are
removed by the same patterns (`rules.heal_command`). Counting rules meet the first packet of each
connection only, the only one that the kernel shows to the `nat` table: they count connections.
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
    """The command that worsens streams on `links`, for the connections opened at `node`.

    It resets the connections that are open between the ends. Done again, it does only that.
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
    """The links of a fault that count connections at `node`.

    A connection carries both directions, and counts once.
    """
    of_fault = frozenset(links)
    return frozenset(
        link
        for link in of_fault
        if (link.source < link.destination or Link(link.destination, link.source) not in of_fault)
        and any(ports[peer] for _, peer in _openers(node, link))
    )


def _openers(node: str, link: Link) -> Iterator[tuple[str, str]]:
    """The openers of connections on this link that meet rules at `node`, with their peers."""
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
    """The input of `toxics`: each proxy, its toxics and its rules."""
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
    """The command that fails, and says why, where the kernel cannot redirect connections."""
    redirected = f"-p tcp {_PASSED} -j REDIRECT --to-ports {toxics.PORT}"
    return ["sh", "-c", rules.probe("nat", redirected), "probe"]
