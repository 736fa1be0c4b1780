"""Partitions as packet filter rules in the network namespaces of the two ends. Pure text.

A one-way cut from A to B is dropped where it arrives, in B's namespace: A goes on believing that it
sends. Both new and established connections stall, as on a network that swallows packets. The
clients have no namespace of ours; they come in through the published port and wear the address of
the network's gateway, so a cut towards them is dropped where it leaves.

Every cut link is two rules, both marked with the fault and the link in a comment:

* one without a target in front of all others, which only counts: faults may overlap, and each must
  be able to say what it did (`Bite`);
* one at the end, which drops.

A healer deletes by the mark, in one command that needs no state of the driver: the warden can run
it when the driver is dead. The engine may lose what that command says, so what a rule had counted
is not said only once: it stays in the namespace, in the comments of a chain that no packet comes
to. The rules outlive the node's own process, since a keeper container holds the namespace (see
`deploy`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from harness.cluster import CLIENT, Link
from harness.errors import InternalError

__all__ = [
    "COMMENT_CHARACTERS_MAX",
    "connections",
    "cut_command",
    "dropped_packets",
    "heal_command",
    "list_command",
    "mark",
    "owner",
    "reset_command",
    "select_fault",
    "select_links",
]

# XT_MAX_COMMENT_LEN of netfilter's xt_comment.h, without its end and room for a 64-bit counter.
COMMENT_CHARACTERS_MAX: Final = 255 - 20
_PREFIX: Final = "harness"
_NAME = re.compile(r"[A-Za-z0-9_.-]+")

# What `heal_command` leaves of a rule that counted.
_COUNTED = re.compile(rf'"(?P<packets>\d+):{_PREFIX}:(?P<fault>[^:"]+):(?P<link>[^"]+)"')


def owner(link: Link) -> str:
    """The node in whose namespace the link is cut."""
    return link.source if link.destination == CLIENT else link.destination


def mark(fault: str, link: Link) -> str:
    """The comment that says whose rule it is."""
    for name in (fault, link.source, link.destination):
        if _NAME.fullmatch(name) is None:
            raise InternalError(f"{name!r} cannot stand in a rule: letters, digits, _ . - only")
    text = f"{_PREFIX}:{fault}:{link.source}>{link.destination}"
    if len(text) > COMMENT_CHARACTERS_MAX:
        raise InternalError(f"the mark {text!r} exceeds {COMMENT_CHARACTERS_MAX} characters")
    return text


def _matching(link: Link, addresses: dict[str, str]) -> tuple[str, str]:
    """The chain and the match for packets of this link; `addresses` has the gateway for CLIENT."""
    if link.destination == CLIENT:
        return "OUTPUT", f"-d {addresses[CLIENT]}/32"
    return "INPUT", f"-s {addresses[link.source]}/32"


_CUT = """
saved=$(iptables-save -t filter) || exit 1
mark=$1; shift
printf '%s\\n' "$saved" | grep -q -F -e "$mark" && exit
{ echo '*filter'; printf '%s\\n' "$@"; echo COMMIT; } | iptables-restore -w 5 --noflush
"""


def cut_command(fault: str, links: Iterable[Link], addresses: dict[str, str]) -> list[str]:
    """The command that cuts `links`, all owned by one node, in one transaction.

    Cutting again changes nothing.
    """
    lines = []
    for link in links:
        chain, match = _matching(link, addresses)
        comment = f'-m comment --comment "{mark(fault, link)}"'
        lines.append(f"-I {chain} 1 {match} {comment}")
        lines.append(f"-A {chain} {match} {comment} -j DROP")
    return ["sh", "-c", _CUT, "cut", f'--comment "{_PREFIX}:{fault}:', *lines]


def select_fault(fault: str) -> list[str]:
    """The patterns of `heal_command` for all rules of one fault."""
    return [f"{_PREFIX}:{fault}:"]


def select_links(links: Iterable[Link]) -> list[str]:
    """The patterns of `heal_command` for the rules of these links, whatever fault made them.

    A saved comment ends with a quote, since `>` stands in it.
    """
    return [f':{link.source}>{link.destination}"' for link in links]


# Where another healer was quicker, nothing is left to delete at the next look.
_HEAL = """
for pattern in "$@"; do set -- "$@" -e "$pattern"; shift; done
looks=4
while
  saved=$(iptables-save -c -t filter) || exit 1
  marked=$(printf '%s\\n' "$saved" | grep -F -e '--comment "harness:' | grep -F "$@")
do
  [ $((looks -= 1)) -gt 0 ] || exit 4
  { echo '*filter'
    printf '%s\\n' "$saved" | grep -q '^:healed ' || echo ':healed - [0:0]'
    printf '%s\\n' "$marked" | sed 's/^\\[[0-9:]*\\] -A/-D/'
    printf '%s\\n' "$marked" | grep -v -e ' -j ' |
      sed 's/^\\[\\([0-9]*\\):.*"\\(.*\\)".*/-A healed -m comment --comment "\\1:\\2"/'
    echo COMMIT; } | iptables-restore -w 5 --noflush
done
printf '%s\\n' "$saved" | grep -F "$@" || :
"""


def heal_command(patterns: Sequence[str]) -> list[str]:
    """The command that deletes the selected rules and prints what rules had counted.

    It is idempotent: done again, there is nothing to delete, and it prints the same.
    """
    assert patterns, "an empty selection would delete nothing, and say that it healed"
    return ["sh", "-c", _HEAL, "heal", *patterns]


def dropped_packets(saved: str) -> dict[tuple[str, Link], int]:
    """Packets counted for every fault and link in what `heal_command` printed."""
    counts: dict[tuple[str, Link], int] = {}
    for match in _COUNTED.finditer(saved):
        source, _, destination = match["link"].partition(">")
        counts[match["fault"], Link(source, destination)] = int(match["packets"])
    return counts


_ESTABLISHED = '-t -n -H state established dst "$peer"'
_LIST = f'for peer in "$@"; do ss {_ESTABLISHED}; done'
_RESET = f'for peer in "$@"; do ss -K {_ESTABLISHED} >/dev/null; done; {_LIST}'


def list_command(peers: Sequence[str]) -> list[str]:
    """The command that prints all TCP connections with these addresses, for `connections`."""
    return ["sh", "-c", _LIST, "list", *peers]


def reset_command(peers: Sequence[str]) -> list[str]:
    """The command that aborts all TCP connections with these addresses and tells both ends.

    It prints those that are there after it: a kernel without CONFIG_INET_DIAG_DESTROY aborts
    nothing and says nothing.
    """
    return ["sh", "-c", _RESET, "reset", *peers]


def connections(output: str) -> frozenset[str]:
    """The connections, as pairs of ends, that `list_command` or `reset_command` printed."""
    rows = (line.split() for line in output.splitlines())  # Recv-Q Send-Q Local Peer
    return frozenset(f"{row[2]} {row[3]}" for row in rows if len(row) >= 4 and row[0].isdigit())
