"""Partitions as packet filter rules in the network namespaces of the two ends. Pure text.

A one-way cut from A to B is dropped where it arrives, in B's namespace: A goes on believing that it
sends. Both new and established connections stall, as on a network that swallows packets. The
clients have no namespace of ours; they come in through the published port and wear the address of
the network's gateway, so a cut towards them is dropped where it leaves.

Every cut link is two rules, both marked with the fault and the link in a comment:

* one without a target in front of all others, which only counts: faults may overlap, and each must
  be able to say what it did (`Bite`);
* one at the end, which drops.

A healer reads the counters and deletes by the mark, in one command that needs no state of the
driver: the warden can run it when the driver is dead. The rules outlive the node's own process,
since a keeper container holds the namespace (see `deploy`).
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
    "mark",
    "owner",
    "reset_command",
    "select_fault",
    "select_links",
]

COMMENT_CHARACTERS_MAX: Final = 255  # XT_MAX_COMMENT_LEN with its end, netfilter's xt_comment.h
_PREFIX: Final = "harness"
_NAME = re.compile(r"[A-Za-z0-9_.-]+")

# One line of `iptables-save -c`: counters, chain, and our comment with whatever stands beside it.
_SAVED = re.compile(
    r'^\[(?P<packets>\d+):\d+\] -A \S+ .*--comment "?harness:(?P<fault>[^:"]+):(?P<link>[^" ]+)"?'
    r"(?P<rest>.*)$",
    re.MULTILINE,
)


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
{ echo '*filter'; printf '%s\\n' "$saved" | grep -F -e "$mark" | sed 's/^-A/-D/'
  printf '%s\\n' "$@"; echo COMMIT; } | iptables-restore -w 5 --noflush
"""


def cut_command(fault: str, links: Iterable[Link], addresses: dict[str, str]) -> list[str]:
    """The command that cuts `links`, all owned by one node, in one transaction.

    It removes rules of the same fault first: cutting again changes nothing.
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


_HEAL = """
saved=$(iptables-save -c -t filter) || exit 1
printf '%s\\n' "$saved"
for pattern in "$@"; do set -- "$@" -e "$pattern"; shift; done
marked=$(printf '%s\\n' "$saved" | grep -F -e '--comment "harness:' | grep -F "$@") || exit 0
{ echo '*filter'; printf '%s\\n' "$marked" | sed 's/^\\[[0-9:]*\\] -A/-D/'; echo COMMIT; } |
  iptables-restore -w 5 --noflush
"""


def heal_command(patterns: Sequence[str]) -> list[str]:
    """The command that prints all rules with their counters and then deletes the selected ones.

    Nothing to delete is success: healing is idempotent.
    """
    assert patterns, "an empty selection would delete nothing, and say that it healed"
    return ["sh", "-c", _HEAL, "heal", *patterns]


def dropped_packets(saved: str) -> dict[tuple[str, Link], int]:
    """Packets counted for every fault and link in what `heal_command` printed."""
    counts: dict[tuple[str, Link], int] = {}
    for match in _SAVED.finditer(saved):
        if "-j " in match["rest"]:
            continue  # the dropping rule: the counting one in front has seen the same packets
        source, _, destination = match["link"].partition(">")
        key = (match["fault"], Link(source, destination))
        counts[key] = counts.get(key, 0) + int(match["packets"])
    return counts


_RESET = """
list() { for peer in "$@"; do ss -t -n -H state established dst "$peer"; done; }
list "$@" | sed 's/^/before /'
for peer in "$@"; do ss -K -t -n -H state established dst "$peer" >/dev/null; done
list "$@" | sed 's/^/after /'
"""


def reset_command(peers: Sequence[str]) -> list[str]:
    """The command that aborts all TCP connections with these addresses and tells both ends.

    It prints what was there before and what is there after it, for `connections`: a kernel without
    CONFIG_INET_DIAG_DESTROY aborts nothing and says nothing.
    """
    return ["sh", "-c", _RESET, "reset", *peers]


def connections(output: str) -> tuple[frozenset[str], frozenset[str]]:
    """The connections, as pairs of ends, before and after a `reset_command`.

    Those of after that were not there before are new ones, made meanwhile.
    """
    found: dict[str, set[str]] = {"before": set(), "after": set()}
    for line in output.splitlines():
        when, *words = line.split()
        if when in found and len(words) >= 4:
            found[when].add(f"{words[2]} {words[3]}")  # Recv-Q Send-Q Local Peer
    return frozenset(found["before"]), frozenset(found["before"] & found["after"])
