"""Degrades links by the kernel's network emulator (`tc netem`), if the engine's host has it.

A qdisc acts on outgoing packets, so a link is shaped in the namespace of the sending node. The
packet rules (`rules`) count the link's packets and mark them with the bit of each fault. Every set
of bits in use has a class with a netem of the combined quality:

    eth0 root htb 4077:          packets without a mark pass directly
      class 4077:K               chosen by the mark (a filter of kind fw)
        netem K: delay ...

Deleting a fault's rules heals the fault, like every other link fault. A class that gets no marked
packets does nothing except sending the packets that it still holds. The program in `packets`
handles links that begin at a client, which must be shaped on arrival, and stalls, whose packets
must be released at once. On a kernel without sch_netem that program handles all qualities.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from harness.cluster import Link, LinkQuality, is_client

DEVICE: Final = "eth0"
ROOT: Final = 0x4077
CLASSES_MAX: Final = 0x3FFF
_MARK_BITS: Final = 0x7FFFFFFF
_QUEUE_PACKETS_MAX: Final = 65_536
_REORDER_MS: Final = 20.0  # the same time as `packets.LATE_S`, in ms
_BACKLOG_S: Final = 1.0
_PACKET_BYTES: Final = 1500
_PACKETS_MIN: Final = 16
_ORDERED: Final = "rate 32gbit"
"""An unreachable rate limit: with any rate, netem keeps packets in order despite jitter."""

_LEAF = re.compile(
    rf"^qdisc netem [0-9a-f]+: parent {ROOT:x}:([0-9a-f]+) .*\n"
    r" *Sent \d+ bytes (\d+) pkt \(dropped (\d+),",
    re.MULTILINE,
)


def reaches(link: Link, quality: LinkQuality) -> bool:
    """Whether netem can give this link this quality."""
    return not is_client(link.source) and not quality.stall


def parameters(quality: LinkQuality) -> str:
    """Return the arguments of `tc qdisc ... netem` for this quality."""
    words, limit = [], _QUEUE_PACKETS_MAX
    delay_ms, jitter_ms = quality.delay_ms, quality.jitter_ms
    reorder = ""
    if quality.reorder and not delay_ms + jitter_ms:
        # netem's `reorder` is the share of packets that skip the delay. All other packets are late.
        delay_ms, reorder = _REORDER_MS, f"reorder {1 - quality.reorder:.6%}"
    elif quality.reorder:
        reorder = f"reorder {quality.reorder:.6%}"
    if delay_ms or jitter_ms:
        # netem adds or subtracts jitter, while `jitter_ms` only adds to the delay.
        middle_ms = delay_ms + jitter_ms / 2
        words.append(f"delay {middle_ms:.3f}ms" + (f" {jitter_ms / 2:.3f}ms" if jitter_ms else ""))
    if reorder:
        words.append(reorder)
    if quality.drop:
        words.append(f"loss random {quality.drop:.6%}")
    if quality.duplicate:
        words.append(f"duplicate {quality.duplicate:.6%}")
    if quality.rate_kb_s:
        words.append(f"rate {quality.rate_kb_s * 8000:.0f}bit")
        held_s = _BACKLOG_S + (delay_ms + jitter_ms) / 1000
        limit = max(_PACKETS_MIN, round(quality.rate_kb_s * 1000 * held_s / _PACKET_BYTES))
    elif jitter_ms and not reorder:
        words.append(_ORDERED)
    return " ".join([f"limit {limit}", *words])


_ROOT_LINE: Final = f"qdisc add dev {DEVICE} root handle {ROOT:x}: htb default 0"
SHOW: Final = f"tc -s qdisc show dev {DEVICE} 2>/dev/null"
_PREPARE: Final = f"""
tc qdisc show dev {DEVICE} | grep -q '^qdisc htb {ROOT:x}: ' || tc {_ROOT_LINE}
"""
_SET: Final = f"""{_PREPARE.rstrip()} || exit
printf '%s\\n' "$@" | tc -batch -
"""
# Try two netem qdiscs in one tree: some kernels refuse this if one of them duplicates packets.
_PROBE: Final = """
trap 'tc qdisc del dev lo root 2>/dev/null' EXIT
tc qdisc add dev lo root handle 1: htb default 0 || exit
tc -batch - <<'END'
class add dev lo parent 1: classid 1:1 htb rate 32gbit quantum 60000
class add dev lo parent 1: classid 1:2 htb rate 32gbit quantum 60000
qdisc add dev lo parent 1:1 handle 11: netem delay 1ms 1ms reorder 1% rate 32gbit
qdisc add dev lo parent 1:2 handle 12: netem loss random 1% duplicate 1%
filter add dev lo parent 1: protocol ip prio 1 handle 0x1/0x7fffffff fw classid 1:1
END
"""


def probe_command() -> list[str]:
    """Return a command that fails and prints the reason if the kernel has no netem."""
    return ["sh", "-c", _PROBE, "probe"]


def prepare_command() -> list[str]:
    """Return an idempotent command that creates the root of a namespace's qdiscs."""
    return ["sh", "-c", _PREPARE, "prepare"]


def set_command(classes: Mapping[int, tuple[int, LinkQuality]]) -> list[str]:
    """Return a command that sets netem classes. `classes` maps each number to (mark bits, quality).

    A class that already exists keeps the packets that it holds.
    """
    lines = []
    for number, (bits, quality) in classes.items():
        assert 0 < number <= CLASSES_MAX, number
        parent, leaf = f"{ROOT:x}:{number:x}", f"{number:x}"
        at = f"dev {DEVICE} parent"
        chosen = f"protocol ip prio 1 handle {bits:#x}/{_MARK_BITS:#x} fw classid {parent}"
        lines += [
            f"class replace {at} {ROOT:x}: classid {parent} htb rate 32gbit quantum 60000",
            f"qdisc replace {at} {parent} handle {leaf}: netem {parameters(quality)}",
            f"filter replace {at} {ROOT:x}: {chosen}",
        ]
    return ["sh", "-c", _SET, "set", *lines]


def met_packets(shown: str) -> dict[int, int]:
    """Return the number of packets that each class has sent or dropped, parsed from `SHOW`'s
    output.

    The result is empty if another program has removed the qdiscs.
    """
    return {
        int(number, 16): int(sent) + int(dropped) for number, sent, dropped in _LEAF.findall(shown)
    }
