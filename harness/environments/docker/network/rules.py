"""Expresses link faults as packet filter rules in the network namespaces of the two ends.

This module only generates and parses text. A one-way cut from A to B drops packets on arrival, in
B's namespace, so A does not notice that its packets are lost. New and established connections
stall, as on a network that loses packets. Clients are outside of these namespaces. Their packets
arrive through the published port, with the address of the network's gateway. So a cut towards
clients drops packets when they leave the node.

Every cut link has two rules, whose comments name the fault and the link:

* The first rule, before all others, only counts packets. Faults may overlap, and each fault needs
  its own count (`Bite`).
* The second rule, at the end, drops packets.

A link with a quality has its rules in the first table that a packet passes (`mangle`), so that a
cut still applies to packets that were delayed. If the program in `packets` handles the link, there
are three rules:

* One rule counts packets.
* One rule sets the fault's bit in the packet's mark. Its comment has the bit's meaning.
* The last rule, at the end, queues packets for the program.

If `netem` handles the link, there are two rules in the sender's namespace: one counts packets, and
one sets the fault's bit. In both cases, a packet gets one bit for each fault on its link.

Two rules in the last table (`security`), after all cuts, copy each packet that is marked for
duplication: an arriving packet to the node itself, over `lo`, and a leaving packet to its
destination. These two rules stay when a link is healed, since they match only marked packets.

Stream faults redirect connections through Toxiproxy, by rules in the table `nat` (see `streams`).
The traffic between a program and its Toxiproxy stays on `lo`, which no other fault affects.

Healing selects rules by the fault's name in their comments. It is a single command that needs no
state of the driver, so the warden can run it after the driver has died. The engine may lose the
command's output, so the comments of an unused chain in the namespace keep the counts of deleted
rules. Rules survive the node's own process, since the keeper, a container, owns the namespace (see
`deploy`).
"""

from __future__ import annotations

import enum
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from harness.cluster import Link, LinkQuality, StreamQuality, is_client
from harness.environments.docker.network import netem, packets, toxics
from harness.errors import InternalError

FAULT_BITS: Final = tuple(1 << number for number in range(31))
"""The bits of a packet's mark. Each fault on the packet's link sets a different bit."""

_ALL_CHARACTERS_MAX: Final = 255  # XT_MAX_COMMENT_LEN of netfilter's xt_comment.h, less the NUL
COMMENT_CHARACTERS_MAX: Final = _ALL_CHARACTERS_MAX - 20  # 20 characters for a 64-bit counter
_PREFIX: Final = "harness"
_NAME = re.compile(r"[A-Za-z0-9_.-]+(:\d+)?")  # a fault, a node, or a client such as `client:2`

# The comment in which `heal_command` keeps the count of a deleted rule.
_COUNTED = re.compile(rf'"(?P<packets>\d+):{_PREFIX}:(?P<fault>[^:"]+):(?P<link>[^"]+)"')


class Table(enum.Enum):
    """The iptables table for a kind of fault."""

    CUT = "filter"
    SHAPE = "mangle"
    STREAM = "nat"

    @staticmethod
    def for_quality(quality: LinkQuality | StreamQuality | None) -> Table:
        if quality is None:
            return Table.CUT
        return Table.STREAM if isinstance(quality, StreamQuality) else Table.SHAPE


def owners(link: Link, table: Table) -> tuple[str, ...]:
    """Return the nodes whose namespaces have the rules for a link."""
    ends = tuple(end for end in (link.destination, link.source) if not is_client(end))
    return ends if table is Table.STREAM else ends[:1]


def mark(fault: str, link: Link, says: str = "") -> str:
    """Return a rule's comment: the fault, the text `says` if any, and the link."""
    for name in (fault, link.source, link.destination):
        if _NAME.fullmatch(name) is None:
            raise InternalError(f"{name!r} has characters other than letters, digits, _ . -")
    middle = f"{says}:" if says else ""
    # the colon separates the parts of a comment
    ends = f"{link.source}>{link.destination}".replace(":", "~")
    text = f"{_PREFIX}:{fault}:{middle}{ends}"
    # A rule with `says` does not count packets, so its comment needs no room for a count.
    most = _ALL_CHARACTERS_MAX if says else COMMENT_CHARACTERS_MAX
    if len(text) > most:
        raise InternalError(f"the comment {text!r} of a rule exceeds {most} characters")
    return text


def comment_of(fault: str) -> str:
    """Return the text with which the comments of a fault's rules begin in `iptables-save`."""
    return f'--comment "{_PREFIX}:{fault}:'


def _matching(link: Link, addresses: dict[str, str]) -> tuple[str, str]:
    """Return the chain and the match for a link's packets; `addresses` maps nodes and clients."""
    if is_client(link.destination):
        return "OUTPUT", f"-d {addresses[link.destination]}/32"
    return "INPUT", f"-s {addresses[link.source]}/32 ! -i lo"


_LAY = """
saved=$(iptables-save -t TABLE) || exit 1
mark=$1; shift
printf '%s\\n' "$saved" | grep -q -F -e "$mark" && exit
{ echo '*TABLE'; printf '%s\\n' "$@"; echo COMMIT; } | iptables-restore -w 5 --noflush
"""


def cut_command(fault: str, links: Iterable[Link], addresses: dict[str, str]) -> list[str]:
    """Return an idempotent command that cuts `links` in one node's namespace, all at once."""
    lines = []
    for link in links:
        chain, match = _matching(link, addresses)
        comment = f'-m comment --comment "{mark(fault, link)}"'
        lines.append(f"-I {chain} 1 {match} {comment}")
        lines.append(f"-A {chain} {match} {comment} -j DROP")
    script = _LAY.replace("TABLE", Table.CUT.value)
    return ["sh", "-c", script, "cut", comment_of(fault), *lines]


def mark_command(
    fault: str, links: Iterable[Link], bit: int, addresses: dict[str, str]
) -> list[str]:
    """Return an idempotent command that adds rules to count and mark packets for `netem`."""
    script = _LAY.replace("TABLE", Table.SHAPE.value)
    return ["sh", "-c", script, "mark", comment_of(fault), *_marks(fault, links, bit, addresses)]


def _marks(fault: str, links: Iterable[Link], bit: int, addresses: dict[str, str]) -> list[str]:
    lines = []
    for link in links:
        match = f"-d {addresses[link.destination]}/32"
        comment = f'-m comment --comment "{mark(fault, link)}"'
        lines.append(f"-I OUTPUT 1 {match} {comment}")
        lines.append(f"-A OUTPUT {match} {comment} -j MARK --set-xmark {bit:#x}/{bit:#x}")
    return lines


_PROGRAM: Final = Path(packets.__file__).read_text(encoding="utf-8")
TOXICS: Final = Path(toxics.__file__).read_text(encoding="utf-8")
_QUEUES: Final = "/proc/net/netfilter/nfnetlink_queue"
_SERVED: Final = f'grep -q -s "^ *{packets.QUEUE} " {_QUEUES}'
_STDERR: Final = "/dev/shm/harness-packets"  # noqa: S108 - in the keeper, whose root is read-only

# Packets pass a queue without a program, so the script waits for the program (`packets`). On a
# loaded host, its start takes seconds.
_SHAPE = f"""
saved=$(iptables-save -t mangle) || exit 1
mark=$1; program=$2; twice=$3; shift 3
printf '%s\\n' "$saved" | grep -q -F -e "$mark" && exit
if [ -n "$twice" ]; then
  {{ echo '*security'; printf '%s\\n' "$twice"; echo COMMIT; }} | iptables-restore -w 5 --noflush ||
    exit
fi
if ! {_SERVED}; then
  python3 -I -S -c "$program" </dev/null >/dev/null 2>{_STDERR} &
fi
looks=200
until {_SERVED}; do
  [ $((looks -= 1)) -gt 0 ] && [ ! -s {_STDERR} ] || {{ cat {_STDERR}; exit 5; }}
  sleep 0.1
done
{{ echo '*mangle'; printf '%s\\n' "$@"; echo COMMIT; }} | iptables-restore -w 5 --noflush
"""


def text_of(quality: LinkQuality) -> str:
    """Encode a quality for a rule's comment."""
    amounts = {name: float(getattr(quality, name)) for name in packets.Quality._fields}
    return packets.text_of(packets.Quality(**amounts))


def shape_command(
    fault: str,
    links: Sequence[Link],
    quality: LinkQuality,
    bit: int,
    addresses: dict[str, str],
    *,
    marked: Sequence[Link] = (),
) -> list[str]:
    """Return an idempotent command that gives `links` this quality, in one node's namespace.

    The command starts the program that serves the queue if it is not running. It adds all rules in
    one transaction. `marked` are the links that leave the same node and are handled by `netem`;
    their packets are only marked.
    """
    says, lines = text_of(quality), []
    for link in links:
        chain, match = _matching(link, addresses)
        comment = f'-m comment --comment "{mark(fault, link)}"'
        meaning = f'-m comment --comment "{mark(fault, link, says)}"'
        match += _ONCE if chain == "OUTPUT" else ""  # skip copied packets, which pass OUTPUT again
        queue = f"NFQUEUE --queue-num {packets.QUEUE} --queue-bypass"
        lines.append(f"-I {chain} 1 {match} {comment}")
        lines.append(f"-I {chain} 1 {match} {meaning} -j MARK --set-xmark {bit:#x}/{bit:#x}")
        lines.append(f"-A {chain} {match} {comment} -j {queue}")
    (node,) = owners(links[0], Table.SHAPE)
    clients = [address for end, address in addresses.items() if is_client(end)]
    twice = _twice(addresses[node], clients) if quality.duplicate else ""
    lines += _marks(fault, marked, bit, addresses)
    return ["sh", "-c", _SHAPE, "shape", comment_of(fault), _PROGRAM, twice, *lines]


_MARKED: Final = f"--mark {packets.TWICE_BIT:#x}/{packets.TWICE_BIT:#x}"
_ONCE: Final = f" -m mark ! {_MARKED}"


def _twice(node: str, clients: Iterable[str]) -> str:
    """Return the rules that copy packets marked with `TWICE_BIT`.

    These packets arrive at the address `node` or leave for the addresses `clients`.
    """
    leaving = (
        f"-A OUTPUT ! -o lo -d {client}/32 -m mark {_MARKED} -j TEE --gateway {client}"
        for client in clients
    )
    arriving = f"-A INPUT ! -i lo -m mark {_MARKED} -j TEE --gateway {node}"
    return "\n".join(["-F INPUT", "-F OUTPUT", arriving, *leaving])


def probe(table: str, *rules: str) -> str:
    """Return a script that fails, with the reason, if the kernel does not support these rules.

    The script adds the rules to an unused chain, so that the kernel checks them, and deletes the
    chain at once.
    """
    of_chain = (f"'-A harness-probe {rule}'" for rule in rules)
    lines = f"'*{table}' ':harness-probe - [0:0]' {' '.join(of_chain)}"
    ends = "'-F harness-probe' '-X harness-probe' COMMIT"
    return f"printf '%s\\n' {lines} {ends} | iptables-restore -w 5 --noflush"


def probe_command() -> list[str]:
    """Return a command that fails and prints the reason if the kernel has no packet queues."""
    queue = f"-j NFQUEUE --queue-num {packets.QUEUE} --queue-bypass"
    tried = probe("mangle", queue, "-j MARK --set-xmark 0x1/0x1")
    script = f'{tried} || exit\n[ -e {_QUEUES} ] || python3 -I -S -c "$1" probe'
    return ["sh", "-c", script, "probe", _PROGRAM]


def probe_twice_command() -> list[str]:
    """Return a command that fails and prints the reason if the kernel cannot copy packets."""
    tried = probe("security", "-m mark --mark 0x1/0x1 -j TEE --gateway 127.0.0.1")
    return ["sh", "-c", tried, "probe"]


_ALIVE: Final = {
    Table.CUT: "",  # the kernel cuts links without a program's help
    Table.SHAPE: rf"^queue +{packets.QUEUE} ",
    Table.STREAM: f"^{toxics.SERVED}$",
}


def is_served(saved: str, table: Table) -> bool:
    """Whether the table's program was running, according to `heal_command`'s output `saved`."""
    return re.search(_ALIVE[table], saved, re.MULTILINE) is not None


def select_fault(fault: str) -> list[str]:
    """Return the patterns by which `heal_command` finds all rules of one fault."""
    return [f"{_PREFIX}:{fault}:"]


def select_links(fault: str, links: Iterable[Link], says: Iterable[str]) -> list[str]:
    """Return the patterns by which `heal_command` finds one fault's rules on these links.

    `says` has the texts in the comments of those rules. A pattern ends with a quote, because
    `iptables-save` quotes comments that contain `>`.
    """
    texts = ["", *says]
    return [f'{mark(fault, link, text)}"' for link in links for text in texts]


# If the warden and the driver heal at once, one transaction fails. Its second try finds no rules.
_HEAL = """
for pattern in "$@"; do set -- "$@" -e "$pattern"; shift; done
looks=4
while
  saved=$(iptables-save -c -t TABLE) || exit 1
  marked=$(printf '%s\\n' "$saved" | grep -F -e '--comment "harness:' | grep -F "$@")
do
  [ $((looks -= 1)) -gt 0 ] || exit 4
  { echo '*TABLE'
    printf '%s\\n' "$saved" | grep -q '^:healed ' || echo ':healed - [0:0]'
    printf '%s\\n' "$marked" | sed 's/^\\[[0-9:]*\\] -A/-D/'
    printf '%s\\n' "$marked" | grep -v -e ' -j ' |
      sed 's/^\\[\\([0-9]*\\):.*"\\(.*\\)".*/-A healed -m comment --comment "\\1:\\2"/'
    echo COMMIT; } | iptables-restore -w 5 --noflush
done
printf '%s\\n' "$saved" | grep -F "$@" || :
"""
_AND_THEN: Final = {
    Table.CUT: "",
    Table.SHAPE: f"sed 's/^ */queue /' {_QUEUES} 2>/dev/null || :\n{netem.SHOW} || :\n",
    Table.STREAM: f'exec python3 -I -S -c {shlex.quote(TOXICS)} heal "$@"\n',
}


def heal_command(patterns: Sequence[str], table: Table = Table.CUT) -> list[str]:
    """Return a command that deletes the rules that `patterns` find, and prints their counts.

    A second run deletes nothing and prints the same counts.
    """
    assert patterns, "an empty selection would delete nothing, and say that it healed"
    script = _HEAL.replace("TABLE", table.value) + _AND_THEN[table]
    return ["sh", "-c", script, "heal", *patterns]


def counted_packets(saved: str) -> dict[tuple[str, Link], int]:
    """Return the count of packets for each (fault, link), from the output of `heal_command`."""
    counts: dict[tuple[str, Link], int] = {}
    for match in _COUNTED.finditer(saved):
        source, _, destination = match["link"].replace("~", ":").partition(">")
        key = match["fault"], Link(source, destination)
        # a stream fault has one rule per port
        counts[key] = counts.get(key, 0) + int(match["packets"])
    return counts


_ESTABLISHED = '-t -n -H state established dst "$peer"'
_LIST = f'for peer in "$@"; do ss {_ESTABLISHED}; done'
_RESET = f'for peer in "$@"; do ss -K {_ESTABLISHED} >/dev/null; done; {_LIST}'


def list_command(peers: Sequence[str]) -> list[str]:
    """Return a command that prints all TCP connections with these peers."""
    return ["sh", "-c", _LIST, "list", *peers]


def reset_command(peers: Sequence[str]) -> list[str]:
    """Return a command that aborts all TCP connections with these peers, at both ends.

    The command prints the connections that are left: a kernel without CONFIG_INET_DIAG_DESTROY
    aborts none and reports no error.
    """
    return ["sh", "-c", _RESET, "reset", *peers]


def connections(output: str) -> frozenset[str]:
    """Return the connections in the output of `list_command` or `reset_command`."""
    rows = (line.split() for line in output.splitlines())  # columns: Recv-Q Send-Q Local Peer
    return frozenset(f"{row[2]} {row[3]}" for row in rows if len(row) >= 4 and row[0].isdigit())
