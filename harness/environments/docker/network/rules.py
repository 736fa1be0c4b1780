"""Link faults as packet filter rules in the network namespaces of the two ends. Pure text.

A one-way cut from A to B drops packets where they arrive, in B's namespace: A believes that it
sends. Both new and established connections stall, as on a network that swallows packets. The
clients have no namespace of ours; their packets come in through the published port with the address
of the network's gateway, so a cut towards them drops packets where they leave.

Every cut link has two rules, both marked with the fault and the link in a comment:

* one without a target in front of all others, which only counts: faults may overlap, and each has a
  `Bite` of its own;
* one at the end, which drops.

A shaped link has its rules in the first table on a packet's way (`mangle`), so that held packets
meet the cuts that are in force when they go on. There are three: one counts, one gives the packet
the fault's bit and explains it in its comment, and one at the end queues the packet for the program
in `packets`. Several faults on a link are several bits of its packets. A packet to duplicate is
copied in the last table (`security`), behind all cuts: arriving packets to the node itself, over
`lo`, leaving ones to their destination. Healed links keep these two rules, which match only
marked packets. A link that `netem` shapes has two rules where packets leave: one counts, one marks.
Bad streams have rules in a third table (`nat`), see `streams`; the traffic between a program and
the proxy of its streams stays on `lo`, where no other fault hits it.

A healer deletes by the mark, in one command that needs no state of the driver: the warden can run
it when the driver is dead. The engine may lose the output of that command, so the counts of deleted
rules stay in the namespace, in the comments of an unused chain. The rules outlive the node's own
process, since a keeper container holds the namespace (see `deploy`).
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
"""What tells the faults on a packet's link apart."""

# XT_MAX_COMMENT_LEN of netfilter's xt_comment.h, without its end and room for a 64-bit counter.
_ALL_CHARACTERS_MAX: Final = 255
COMMENT_CHARACTERS_MAX: Final = _ALL_CHARACTERS_MAX - 20
_PREFIX: Final = "harness"
_NAME = re.compile(r"[A-Za-z0-9_.-]+(:\d+)?")  # of a client: `client:2`

# What `heal_command` leaves of a rule that counted.
_COUNTED = re.compile(rf'"(?P<packets>\d+):{_PREFIX}:(?P<fault>[^:"]+):(?P<link>[^"]+)"')


class Table(enum.Enum):
    """The table that has the rules of a fault."""

    CUT = "filter"
    SHAPE = "mangle"
    STREAM = "nat"

    @staticmethod
    def for_quality(quality: LinkQuality | StreamQuality | None) -> Table:
        """The table of a fault of this quality; `None` is a cut."""
        if quality is None:
            return Table.CUT
        return Table.STREAM if isinstance(quality, StreamQuality) else Table.SHAPE


def owners(link: Link, table: Table) -> tuple[str, ...]:
    """The nodes in whose namespaces a fault of this table has its rules for the link."""
    ends = tuple(end for end in (link.destination, link.source) if not is_client(end))
    return ends if table is Table.STREAM else ends[:1]


def _shown(link: Link) -> str:
    """The link in a comment, where a colon ends a part; no node's name has a tilde."""
    return f"{link.source}>{link.destination}".replace(":", "~")


def mark(fault: str, link: Link, says: str = "") -> str:
    """The comment that says whose rule it is, and in the middle what else it has to say."""
    for name in (fault, link.source, link.destination):
        if _NAME.fullmatch(name) is None:
            raise InternalError(f"{name!r} cannot be in a rule: letters, digits, _ . - only")
    middle = f"{says}:" if says else ""
    text = f"{_PREFIX}:{fault}:{middle}{_shown(link)}"
    # A rule that says something does not count, so nothing is ever put in front of its comment.
    most = _ALL_CHARACTERS_MAX if says else COMMENT_CHARACTERS_MAX
    if len(text) > most:
        raise InternalError(f"the mark {text!r} exceeds {most} characters")
    return text


def comment_of(fault: str) -> str:
    """The beginning of the comments of all rules of the fault, as rules are written and saved."""
    return f'--comment "{_PREFIX}:{fault}:'


def _matching(link: Link, addresses: dict[str, str]) -> tuple[str, str]:
    """The chain and the match for packets of this link; `addresses` has clients' as well."""
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
    """The command that cuts `links`, all owned by one node, in one transaction.

    Cutting again changes nothing.
    """
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
    """The command that counts and marks packets of `links`, as they leave their source.

    `netem` shapes marked packets. Marking again changes nothing.
    """
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

# The program must serve the queue before the first packet comes to it. On a loaded host it takes
# seconds to start.
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
    """The quality as the comment of a rule has it."""
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
    """The command that worsens `links`, all owned by one node, in one transaction.

    It starts the program that serves the queue where that does not run. Links in `marked` leave
    the node as well, and are for `netem`. Shaping again changes nothing.
    """
    says, lines = text_of(quality), []
    for link in links:
        chain, match = _matching(link, addresses)
        comment = f'-m comment --comment "{mark(fault, link)}"'
        meaning = f'-m comment --comment "{mark(fault, link, says)}"'
        match += _ONCE if chain == "OUTPUT" else ""  # a copy goes this way again
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
    """The rules that copy marked packets which arrive at this address, or leave for these."""
    leaving = (
        f"-A OUTPUT ! -o lo -d {client}/32 -m mark {_MARKED} -j TEE --gateway {client}"
        for client in clients
    )
    arriving = f"-A INPUT ! -i lo -m mark {_MARKED} -j TEE --gateway {node}"
    return "\n".join(["-F INPUT", "-F OUTPUT", arriving, *leaving])


def probe(table: str, *rules: str) -> str:
    """The script that fails, with the reason, where the kernel does not know a part of these rules.

    They are in a chain that nothing comes to and that goes at once: it looks at them all the same.
    """
    of_chain = (f"'-A harness-probe {rule}'" for rule in rules)
    lines = f"'*{table}' ':harness-probe - [0:0]' {' '.join(of_chain)}"
    ends = "'-F harness-probe' '-X harness-probe' COMMIT"
    return f"printf '%s\\n' {lines} {ends} | iptables-restore -w 5 --noflush"


def probe_command() -> list[str]:
    """The command that fails, and says why, where the kernel has no packet queues."""
    queue = f"-j NFQUEUE --queue-num {packets.QUEUE} --queue-bypass"
    tried = probe("mangle", queue, "-j MARK --set-xmark 0x1/0x1")
    script = f'{tried} || exit\n[ -e {_QUEUES} ] || python3 -I -S -c "$1" probe'
    return ["sh", "-c", script, "probe", _PROGRAM]


def probe_twice_command() -> list[str]:
    """The command that fails, and says why, where the kernel cannot copy packets."""
    tried = probe("security", "-m mark --mark 0x1/0x1 -j TEE --gateway 127.0.0.1")
    return ["sh", "-c", tried, "probe"]


_ALIVE: Final = {
    Table.CUT: "",  # the kernel alone
    Table.SHAPE: rf"^queue +{packets.QUEUE} ",
    Table.STREAM: f"^{toxics.SERVED}$",
}


def is_served(saved: str, table: Table) -> bool:
    """Whether what `heal_command` printed says that the program behind the rules lived."""
    return re.search(_ALIVE[table], saved, re.MULTILINE) is not None


def select_fault(fault: str) -> list[str]:
    """The patterns of `heal_command` for all rules of one fault."""
    return [f"{_PREFIX}:{fault}:"]


def select_links(fault: str, links: Iterable[Link], says: Iterable[str]) -> list[str]:
    """The patterns of `heal_command` for the rules of one fault on these links, by what they say.

    A saved comment ends with a quote, since it contains `>`.
    """
    texts = ["", *says]
    return [f'{mark(fault, link, text)}"' for link in links for text in texts]


# Where another healer was quicker, nothing is left to delete at the next look.
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
    """The command that deletes the selected rules and prints what rules had counted.

    It is idempotent: done again, there is nothing to delete, and it prints the same.
    """
    assert patterns, "an empty selection would delete nothing, and say that it healed"
    script = _HEAL.replace("TABLE", table.value) + _AND_THEN[table]
    return ["sh", "-c", script, "heal", *patterns]


def counted_packets(saved: str) -> dict[tuple[str, Link], int]:
    """The counts of every fault and link in the output of `heal_command`."""
    counts: dict[tuple[str, Link], int] = {}
    for match in _COUNTED.finditer(saved):
        source, _, destination = match["link"].replace("~", ":").partition(">")
        key = match["fault"], Link(source, destination)
        counts[key] = counts.get(key, 0) + int(match["packets"])  # a rule for each port
    return counts


_ESTABLISHED = '-t -n -H state established dst "$peer"'
_LIST = f'for peer in "$@"; do ss {_ESTABLISHED}; done'
_RESET = f'for peer in "$@"; do ss -K {_ESTABLISHED} >/dev/null; done; {_LIST}'


def list_command(peers: Sequence[str]) -> list[str]:
    """The command that prints all TCP connections with these addresses, for `connections`."""
    return ["sh", "-c", _LIST, "list", *peers]


def reset_command(peers: Sequence[str]) -> list[str]:
    """The command that aborts all TCP connections with these addresses and tells both ends.

    It prints the remaining ones: a kernel without CONFIG_INET_DIAG_DESTROY aborts
    nothing and says nothing.
    """
    return ["sh", "-c", _RESET, "reset", *peers]


def connections(output: str) -> frozenset[str]:
    """The connections, as pairs of ends, that `list_command` or `reset_command` printed."""
    rows = (line.split() for line in output.splitlines())  # Recv-Q Send-Q Local Peer
    return frozenset(f"{row[2]} {row[3]}" for row in rows if len(row) >= 4 and row[0].isdigit())
