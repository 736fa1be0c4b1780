"""Expresses link faults as packet filter rules in the network namespaces of the two ends.

This module only generates and parses text. A one-way cut from A to B drops packets on arrival, in
B's namespace, so A does not notice that its packets are lost. New and established connections
stall, as on a network that loses packets. Clients run outside of these namespaces, and their
packets arrive through the published port with the address of the network's gateway. A cut towards
clients therefore drops packets when they leave the node.

Every cut link has two rules, whose comments name the fault and the link:

* the first rule, in front of all others, has no target and only counts packets, since faults may
  overlap and each fault needs its own count (`Bite`);
* the second rule, at the end, drops packets.

A shaped link has its rules in the first table that a packet traverses (`mangle`), so that held
packets meet the cuts that are in force when they are released. A link shaped by the program in
`packets` has three rules:

* one rule counts packets;
* one rule sets the fault's bit in the packet's mark, and its comment has the bit's meaning;
* the last rule, at the end, queues packets for the program.

A link shaped by `netem` instead has two rules, in the sender's namespace: one counts packets, and
one sets the fault's bit. In both cases, a packet gets one bit per shaping fault on its link.

Two rules in the last table (`security`), after all cuts, copy each packet that is marked for
duplication: an arriving packet to the node itself, over `lo`, and a leaving packet to its
destination. These two rules stay when a link is healed, since they match only marked packets.

Stream faults, which redirect connections through Toxiproxy, have their rules in the table `nat`
(see `streams`). The traffic between a program and its stream proxy stays on `lo`, which no other
fault affects.

Healing selects rules by the fault's name in their comments. Healing is a single command that needs
no state of the driver, so the warden can run the command after the driver has died. The engine may
lose the output of this command, so the comments of an unused chain in the namespace keep the counts
of deleted rules. Rules survive the node's own process, since a keeper container owns the namespace
(see `deploy`).
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
"""The bits of a packet's mark; each fault on the packet's link sets one of these bits."""

_ALL_CHARACTERS_MAX: Final = 255  # XT_MAX_COMMENT_LEN in netfilter's xt_comment.h, without the NUL
COMMENT_CHARACTERS_MAX: Final = _ALL_CHARACTERS_MAX - 20  # leaves room for a 64-bit counter
_PREFIX: Final = "harness"
_NAME = re.compile(r"[A-Za-z0-9_.-]+(:\d+)?")  # a fault, a node, or a client such as `client:2`

# Matches the comment in which `heal_command` keeps the count of a deleted rule.
_COUNTED = re.compile(rf'"(?P<packets>\d+):{_PREFIX}:(?P<fault>[^:"]+):(?P<link>[^"]+)"')


class Table(enum.Enum):
    """The iptables table that has the rules of a kind of fault."""

    CUT = "filter"
    SHAPE = "mangle"
    STREAM = "nat"

    @staticmethod
    def for_quality(quality: LinkQuality | StreamQuality | None) -> Table:
        if quality is None:
            return Table.CUT
        return Table.STREAM if isinstance(quality, StreamQuality) else Table.SHAPE


def owners(link: Link, table: Table) -> tuple[str, ...]:
    """The nodes whose namespaces have the rules for a link in a table."""
    ends = tuple(end for end in (link.destination, link.source) if not is_client(end))
    return ends if table is Table.STREAM else ends[:1]


def mark(fault: str, link: Link, says: str = "") -> str:
    """The comment of a rule, with the rule's fault, the additional text `says`, and the link."""
    for name in (fault, link.source, link.destination):
        if _NAME.fullmatch(name) is None:
            raise InternalError(f"{name!r} has characters other than letters, digits, _ . -")
    middle = f"{says}:" if says else ""
    ends = f"{link.source}>{link.destination}".replace(":", "~")  # colons separate parts
    text = f"{_PREFIX}:{fault}:{middle}{ends}"
    # A rule with additional text does not count, so its comment needs no room for a counter.
    most = _ALL_CHARACTERS_MAX if says else COMMENT_CHARACTERS_MAX
    if len(text) > most:
        raise InternalError(f"the comment {text!r} of a rule exceeds {most} characters")
    return text


def comment_of(fault: str) -> str:
    """The start of the comment of every rule of a fault, as `iptables-save` prints comments."""
    return f'--comment "{_PREFIX}:{fault}:'


def _matching(link: Link, addresses: dict[str, str]) -> tuple[str, str]:
    """The iptables chain and match for a link's packets; `addresses` maps node or client names."""
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
    """Return an idempotent command that cuts `links` in one transaction in one node's namespace."""
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

# The script waits until the program serves the queue, since packets pass an unserved queue.
# On a loaded host, the program (`packets`) takes seconds to start.
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
    """Return an idempotent command that degrades `links` by rules in one node's namespace.

    The command starts the program that serves the queue unless the program is running, and adds all
    rules in one transaction. Links in `marked` leave the same node and get only marks, for `netem`.
    """
    says, lines = text_of(quality), []
    for link in links:
        chain, match = _matching(link, addresses)
        comment = f'-m comment --comment "{mark(fault, link)}"'
        meaning = f'-m comment --comment "{mark(fault, link, says)}"'
        match += _ONCE if chain == "OUTPUT" else ""  # skip copies, which pass OUTPUT again
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
    """The rules that copy packets with `TWICE_BIT` that arrive at `node` or leave for `clients`."""
    leaving = (
        f"-A OUTPUT ! -o lo -d {client}/32 -m mark {_MARKED} -j TEE --gateway {client}"
        for client in clients
    )
    arriving = f"-A INPUT ! -i lo -m mark {_MARKED} -j TEE --gateway {node}"
    return "\n".join(["-F INPUT", "-F OUTPUT", arriving, *leaving])


def probe(table: str, *rules: str) -> str:
    """Return a script that fails, with the reason, if the kernel does not support these rules.

    The script adds the rules to an unused chain, so that the kernel validates them, and deletes the
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
    Table.CUT: "",  # the kernel cuts links without a program
    Table.SHAPE: rf"^queue +{packets.QUEUE} ",
    Table.STREAM: f"^{toxics.SERVED}$",
}


def is_served(saved: str, table: Table) -> bool:
    """Whether `saved`, `heal_command`'s output, shows that the table's program was running."""
    return re.search(_ALIVE[table], saved, re.MULTILINE) is not None


def select_fault(fault: str) -> list[str]:
    """The `heal_command` patterns that select all rules of one fault."""
    return [f"{_PREFIX}:{fault}:"]


def select_links(fault: str, links: Iterable[Link], says: Iterable[str]) -> list[str]:
    """The `heal_command` patterns that select one fault's rules on these links.

    `says` has the additional texts in the comments of those rules. Patterns end with a quote
    because `iptables-save` quotes comments that contain `>`.
    """
    texts = ["", *says]
    return [f'{mark(fault, link, text)}"' for link in links for text in texts]


# If warden and driver heal at once, one transaction fails, and its second try finds no rules.
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
    """Return a command that deletes the rules that `patterns` select, and prints their counts.

    The command is idempotent, since a second run deletes nothing and prints the same counts.
    """
    assert patterns, "an empty selection would delete nothing, and say that it healed"
    script = _HEAL.replace("TABLE", table.value) + _AND_THEN[table]
    return ["sh", "-c", script, "heal", *patterns]


def counted_packets(saved: str) -> dict[tuple[str, Link], int]:
    """Map each (fault, link) to its count of packets, parsed from `heal_command`'s output."""
    counts: dict[tuple[str, Link], int] = {}
    for match in _COUNTED.finditer(saved):
        source, _, destination = match["link"].replace("~", ":").partition(">")
        key = match["fault"], Link(source, destination)
        counts[key] = counts.get(key, 0) + int(match["packets"])  # bad streams have a rule per port
    return counts


_ESTABLISHED = '-t -n -H state established dst "$peer"'
_LIST = f'for peer in "$@"; do ss {_ESTABLISHED}; done'
_RESET = f'for peer in "$@"; do ss -K {_ESTABLISHED} >/dev/null; done; {_LIST}'


def list_command(peers: Sequence[str]) -> list[str]:
    """Return a command that prints all TCP connections with these peers, for `connections`."""
    return ["sh", "-c", _LIST, "list", *peers]


def reset_command(peers: Sequence[str]) -> list[str]:
    """Return a command that aborts all TCP connections with these peers and resets both ends.

    The command prints the remaining connections, since a kernel without CONFIG_INET_DIAG_DESTROY
    aborts no connection and reports no error.
    """
    return ["sh", "-c", _RESET, "reset", *peers]


def connections(output: str) -> frozenset[str]:
    """The connections, as pairs of addresses, that `list_command` or `reset_command` printed."""
    rows = (line.split() for line in output.splitlines())  # columns: Recv-Q Send-Q Local Peer
    return frozenset(f"{row[2]} {row[3]}" for row in rows if len(row) >= 4 and row[0].isdigit())
