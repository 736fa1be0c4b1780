"""A program in a node's namespace: delays, drops and paces packets on links with faults.

The harness passes this source on a command line (`python3 -c`) into the node's keeper, the
container that owns the namespace. So it imports only the standard library.

Packet rules (`rules.shape_command`) mark each packet with a bit for each fault on its link, and
send the packet to one kernel queue (NFQUEUE). This program reads the header of each packet, decides
when to release the packet, and then sends the kernel a verdict. **The rules are the only source of
truth**: the program reads the meaning of each bit from the comments of the rules, and reads them
again whenever the kernel reports a change. So deleting a fault's rules ends the fault and releases
its packets at once.

If this program dies, the rules' `--queue-bypass` heals the links; only held packets are lost.

| quality   | effect on packets                                                                   |
|-----------|-------------------------------------------------------------------------------------|
| drop      | each packet is dropped with an independent probability                              |
| delay     | each packet is held for the delay and a random part of the jitter, in order         |
| reorder   | a randomly chosen packet is held 20 ms longer, so that later packets overtake it    |
| rate      | packets are sent one by one; beyond a backlog of a second they are dropped          |
| stall     | packets are held until the fault is over                                            |
| duplicate | the packet gets a mark, and a rule in the last table (`security`) copies it (TEE)   |

The queue does not request unsegmented packets, so the kernel splits super-packets (segmentation
offload) before they reach this program. Faults therefore act on packets as they appear on a wire.
"""

from __future__ import annotations

import heapq
import os
import random
import re
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

QUEUE: Final = 4077
QUEUE_PACKETS_MAX: Final = 65_536
LATE_S: Final = 0.02  # seconds by which a reordered packet is late
BACKLOG_S: Final = 1.0
BACKLOG_BYTES_MIN: Final = 24_000
ACCEPT: Final = 1
DROP: Final = 0
TWICE: Final = 2
"""The verdict that accepts a packet and marks it with `TWICE_BIT`."""
TWICE_BIT: Final = 1 << 31

_RECEIVE_BUFFER_BYTES: Final = 32 << 20
_READ_BYTES: Final = 1 << 16
_READS_MAX: Final = 64  # read at most this many packets before sending verdicts
_VERDICTS_A_MESSAGE: Final = 256
_HEAD_BYTES: Final = 20  # the size of an IPv4 header without options

# Constants of linux/netlink.h, linux/netfilter/nfnetlink.h and nfnetlink_queue.h.
_NETLINK_NETFILTER: Final = 12
_SOL_NETLINK: Final = 270
_NETLINK_NO_ENOBUFS: Final = 5
_GROUP_NFTABLES: Final = 1 << 6
_NLMSG_ERROR: Final = 2
_NLM_F_REQUEST: Final = 1
_NLM_F_ACK: Final = 4
_MSG_PACKET: Final = 0x300
_MSG_VERDICT: Final = 0x301
_MSG_CONFIG: Final = 0x302
_CFG_CMD, _CFG_PARAMS, _CFG_QUEUE_MAXLEN = 1, 2, 3
_COPY_PACKET: Final = 2
_PACKET_HDR, _VERDICT_HDR, _MARK, _PAYLOAD, _CAP_LEN = 1, 2, 3, 10, 13
_CHAINS: Final = {1: "INPUT", 3: "OUTPUT"}  # netfilter hook number -> chain


class Flow(NamedTuple):
    """One link, given by the chain that has its rules and by the other node's address."""

    chain: str
    address: str


class Quality(NamedTuple):
    """The numeric fields of `harness.cluster.LinkQuality`."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    rate_kb_s: float = 0.0
    stall: float = 0.0


class Packet(NamedTuple):
    """A packet in the kernel's queue."""

    id: int
    flow: Flow
    bits: int  # the packet's mark: one bit for each fault on the link
    size: int  # in bytes, with the IP header


Meaning = Mapping[Flow, Mapping[int, Quality]]
"""Maps each link to the mark bits of its faults, and each bit to the fault's quality."""


# --- the faults, as read from the text of the rules --------------------------------------------

_RULE = re.compile(
    r'-A (INPUT|OUTPUT) -[sd] ([0-9.]+)/32 .*--comment "harness:[^:"]+:([^:"]*):[^:"]+" '
    r"-j MARK --set-xmark 0x([0-9a-f]+)/"
)


def text_of(quality: Quality) -> str:
    """Encode a quality as one word, for the comment of a rule."""
    amounts = {name: value for name, value in quality._asdict().items() if value}
    return ",".join(f"{name[:3]}={value:g}" for name, value in amounts.items())


def quality_of(text: str) -> Quality:
    """Decode a quality that `text_of` has encoded."""
    amounts = dict(item.split("=") for item in text.split(",") if item)
    return Quality(*(float(amounts.get(name[:3], 0)) for name in Quality._fields))


def meaning_of(saved: str) -> dict[Flow, dict[int, Quality]]:
    """Return the quality of each mark bit, by link, from the output of `iptables-save`."""
    meaning: dict[Flow, dict[int, Quality]] = {}
    for chain, address, quality, bit in _RULE.findall(saved):
        meaning.setdefault(Flow(chain, address), {})[int(bit, 16)] = quality_of(quality)
    return meaning


def combined(qualities: Iterable[Quality]) -> Quality:
    """Combine several faults on a link: delays add up, and the slowest rate counts.

    A packet is dropped, duplicated or reordered unless it escapes this effect of every fault.
    """
    delay = jitter = rate = stall = 0.0
    keep = single = order = 1.0
    for quality in qualities:
        delay += quality.delay_ms
        jitter += quality.jitter_ms
        keep *= 1.0 - quality.drop
        single *= 1.0 - quality.duplicate
        order *= 1.0 - quality.reorder
        rate = min(filter(None, (rate, quality.rate_kb_s)), default=0.0)
        stall = max(stall, quality.stall)
    return Quality(delay, jitter, 1.0 - keep, 1.0 - single, 1.0 - order, rate, stall)


# --- the release of packets --------------------------------------------------------------------


class Held(NamedTuple):
    """A packet that waits until it is due. A stalled packet waits until the rules change."""

    due_s: float
    number: int
    packet: Packet
    verdict: int = ACCEPT


class Scheduler:
    """Decides when to release or drop each packet. It has no clock and no socket of its own."""

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._meaning: Meaning = {}
        self._combined: dict[tuple[Flow, int], Quality] = {}
        self._held: list[Held] = []  # a heap: the packet that is due next comes first
        self._stalled: list[Held] = []
        self._unknown: list[Packet] = []
        self._verdicts: list[tuple[int, int]] = []
        self._arrived = 0
        self._last_due_s: dict[Flow, float] = {}
        self._free_at_s: dict[Flow, float] = {}

    @property
    def puzzled(self) -> bool:
        """Whether a waiting packet has a mark bit that occurs in none of the rules read so far."""
        return bool(self._unknown)

    def next_due_s(self) -> float | None:
        return self._held[0].due_s if self._held else None

    def arrive(self, packet: Packet, now_s: float) -> None:
        if self._is_over(packet):
            self._unknown.append(packet)
        else:
            self._judge(packet, now_s)

    def _judge(self, packet: Packet, now_s: float) -> None:
        flow = packet.flow
        quality = self._quality(flow, packet.bits)
        if self._draw() < quality.drop:
            self._verdicts.append((packet.id, DROP))
            return
        self._arrived += 1
        if quality.stall:
            self._stalled.append(Held(0.0, self._arrived, packet))
            return
        due_s = now_s + (quality.delay_ms + self._draw() * quality.jitter_ms) / 1000.0
        if quality.rate_kb_s:
            rate = quality.rate_kb_s * 1000.0
            backlog_s = max(0.0, self._free_at_s.get(flow, 0.0) - now_s)
            if backlog_s > max(BACKLOG_S, BACKLOG_BYTES_MIN / rate):
                self._verdicts.append((packet.id, DROP))
                return
            backlog_s += packet.size / rate
            self._free_at_s[flow] = now_s + backlog_s
            due_s += backlog_s
        due_s = max(due_s, self._last_due_s.get(flow, 0.0))
        if self._draw() < quality.reorder:
            due_s += LATE_S
        else:
            self._last_due_s[flow] = due_s
        twice = quality.duplicate > 0 and self._draw() < quality.duplicate
        verdict = TWICE if twice else ACCEPT
        heapq.heappush(self._held, Held(due_s, self._arrived, packet, verdict))

    def _quality(self, flow: Flow, bits: int) -> Quality:
        key = (flow, bits)
        if key not in self._combined:
            qualities = self._meaning.get(flow, {})
            self._combined[key] = combined(q for bit, q in qualities.items() if bit & bits)
        return self._combined[key]

    def learn(self, meaning: Meaning, now_s: float, *, latest: bool = True) -> None:
        """Apply changed rules, and release the packets of faults that have ended.

        A packet stays if another fault stalls it. `latest` means that the rules are still the same
        as when they were read. Then a bit that no rule has belongs to a fault that has ended.
        """
        changed = {
            flow
            for flow in {*meaning, *self._meaning}
            if meaning.get(flow) != self._meaning.get(flow)
        }
        self._meaning = meaning
        self._combined.clear()
        for flow in changed:
            self._last_due_s.pop(flow, None)
            self._free_at_s.pop(flow, None)
        waiting = sorted((*self._held, *self._stalled), key=lambda held: held.number)
        freed = [held for held in waiting if self._is_freed(held.packet)]
        if freed:
            self._verdicts += [(held.packet.id, ACCEPT) for held in freed]
            self._stalled = [held for held in self._stalled if not self._is_freed(held.packet)]
            self._held = [held for held in self._held if not self._is_freed(held.packet)]
            heapq.heapify(self._held)
        unknown, self._unknown = self._unknown, []
        for packet in unknown:
            if self._is_over(packet) and not latest:
                self._unknown.append(packet)
            else:
                self._judge(packet, now_s)

    def _is_over(self, packet: Packet) -> bool:
        """Whether the packet has a bit that no rule has: its fault has ended or is still unread."""
        return bool(packet.bits & ~sum(self._meaning.get(packet.flow, {})))

    def _is_freed(self, packet: Packet) -> bool:
        return self._is_over(packet) and not self._quality(packet.flow, packet.bits).stall

    def verdicts(self, now_s: float) -> list[tuple[int, int]]:
        """Return the verdicts that are due, in order, as (packet id, verdict), and forget them."""
        decided, self._verdicts = self._verdicts, []
        while self._held and self._held[0].due_s <= now_s:
            held = heapq.heappop(self._held)
            decided.append((held.packet.id, held.verdict))
        return decided


# --- messages from and to the kernel -----------------------------------------------------------


def _attribute(kind: int, value: bytes) -> bytes:
    size = 4 + len(value)
    return struct.pack("=HH", size, kind) + value + bytes(-size % 4)


def _message(kind: int, flags: int, attributes: bytes) -> bytes:
    body = struct.pack(">BBH", socket.AF_UNSPEC, 0, QUEUE) + attributes
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 0, 0) + body


def bind_messages() -> list[bytes]:
    """Return the messages that bind the queue to this program. The kernel answers each of them."""
    bind = _attribute(_CFG_CMD, struct.pack(">BBH", 1, 0, socket.AF_INET))
    parameters = _attribute(_CFG_PARAMS, struct.pack(">IB", _HEAD_BYTES, _COPY_PACKET))
    maximum = _attribute(_CFG_QUEUE_MAXLEN, struct.pack(">I", QUEUE_PACKETS_MAX))
    flags = _NLM_F_REQUEST | _NLM_F_ACK
    return [_message(_MSG_CONFIG, flags, bind), _message(_MSG_CONFIG, flags, parameters + maximum)]


def verdict_message(packet: int, verdict: int) -> bytes:
    """Return the message that tells the kernel the verdict on the packet with this id."""
    header = _attribute(_VERDICT_HDR, struct.pack(">II", min(verdict, ACCEPT), packet))
    mark = _attribute(_MARK, struct.pack(">I", TWICE_BIT)) if verdict == TWICE else b""
    return _message(_MSG_VERDICT, _NLM_F_REQUEST, header + mark)


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and body of each netlink message in the received data."""
    at = 0
    while at + 16 <= len(data):
        size, kind = struct.unpack_from("=IH", data, at)
        if size < 16:
            return
        yield kind, data[at + 16 : at + size]
        at += (size + 3) & ~3


def error_of(kind: int, body: bytes) -> int | None:
    """Return the error number in an answer (0 means success), or `None` for another message."""
    return -struct.unpack_from("=i", body)[0] if kind == _NLMSG_ERROR else None


def packet_of(kind: int, body: bytes) -> Packet | None:
    """Return the packet that a message describes, or `None` for another message."""
    if kind != _MSG_PACKET:
        return None
    attributes: dict[int, bytes] = {}
    at = 4  # the header nfgenmsg comes first
    while at + 4 <= len(body):
        size, attribute = struct.unpack_from("=HH", body, at)
        if size < 4:
            break
        attributes[attribute & 0x3FFF] = body[at + 4 : at + size]
        at += (size + 3) & ~3
    number, _, hook = struct.unpack_from(">IHB", attributes[_PACKET_HDR])
    payload = attributes.get(_PAYLOAD, b"")
    chain = _CHAINS.get(hook, "")
    ends = payload[12:16] if chain == "INPUT" else payload[16:20]
    bits = struct.unpack(">I", attributes.get(_MARK, bytes(4)))[0]
    whole = attributes.get(_CAP_LEN)
    size = len(payload) if whole is None else struct.unpack(">I", whole)[0]
    return Packet(number, Flow(chain, ".".join(map(str, ends))), bits, size)


# --- the process -------------------------------------------------------------------------------


def _open_queue() -> socket.socket:
    """Bind the queue; `OSError` if the kernel has no queues or another program has bound it."""
    queue = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    force = getattr(socket, "SO_RCVBUFFORCE", 33)
    # the second option may exceed the system's limit, but needs a privilege
    for option in (socket.SO_RCVBUF, force):
        try:
            queue.setsockopt(socket.SOL_SOCKET, option, _RECEIVE_BUFFER_BYTES)
        except PermissionError:
            continue
    queue.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
    queue.bind((0, 0))
    for message in bind_messages():
        queue.send(message)
        for kind, body in messages(queue.recv(_READ_BYTES)):
            error = error_of(kind, body)
            if error:
                raise OSError(error, os.strerror(error))
    queue.setblocking(False)
    return queue


def _drained(source: socket.socket) -> Iterator[bytes]:
    for _ in range(_READS_MAX):
        try:
            yield source.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # ENOBUFS: some notices are lost, which counts as one
            yield b""


class _Rules:
    """Reads the packet rules without blocking, so that packets do not wait for it."""

    def __init__(self) -> None:
        self.stale = True
        self._reader: subprocess.Popen[bytes] | None = None
        self._said = b""

    @property
    def reading(self) -> bool:
        return self._reader is not None

    def begin(self) -> int | None:
        """Start reading the rules if they have changed; returns the descriptor to wait for."""
        if self._reader is None and self.stale:
            self.stale = False
            command = ["iptables-save", "-t", "mangle"]
            self._reader, self._said = subprocess.Popen(command, stdout=subprocess.PIPE), b""
        if self._reader is None or self._reader.stdout is None:
            return None
        return self._reader.stdout.fileno()

    def go_on(self, descriptor: int) -> str | None:
        """Read some output of `iptables-save`. Returns the rules once complete, or else `None`."""
        data = os.read(descriptor, _READ_BYTES)
        self._said += data
        if data or self._reader is None:
            return None
        reader, self._reader = self._reader, None
        if reader.stdout is not None:
            reader.stdout.close()
        if reader.wait() != 0:
            self.stale = True
            return None
        return self._said.decode()


def serve() -> None:
    """Hold, drop and release packets until the process is killed."""
    notices = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    # subscribe before reading the rules, so that no change is missed
    notices.bind((0, _GROUP_NFTABLES))
    notices.setblocking(False)
    queue = _open_queue()
    rules, scheduler = _Rules(), Scheduler()
    while True:
        reading = rules.begin()
        due_s = scheduler.next_due_s()
        wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
        sources = [queue.fileno(), notices.fileno()]
        if reading is not None:
            sources.append(reading)
        readable, _, _ = select.select(sources, [], [], wait_s)
        now_s = time.monotonic()
        if queue.fileno() in readable:
            for data in _drained(queue):
                for kind, body in messages(data):
                    packet = packet_of(kind, body)
                    if packet is not None:
                        scheduler.arrive(packet, now_s)
        if notices.fileno() in readable:
            rules.stale = any(True for _ in _drained(notices)) or rules.stale
        if reading is not None and reading in readable:
            saved = rules.go_on(reading)
            if saved is not None:
                scheduler.learn(meaning_of(saved), now_s, latest=not rules.stale)
        rules.stale = rules.stale or (scheduler.puzzled and not rules.reading)
        decided = scheduler.verdicts(time.monotonic())
        for at in range(0, len(decided), _VERDICTS_A_MESSAGE):
            some = decided[at : at + _VERDICTS_A_MESSAGE]
            queue.send(b"".join(verdict_message(*verdict) for verdict in some))


def main(words: list[str]) -> int:
    """Serve the queue. The word `probe` only tests whether the kernel has queues."""
    try:
        if words == ["probe"]:
            _open_queue().close()
        else:
            serve()
    except OSError as error:
        sys.stderr.write(f"the kernel provides no packet queue (NFQUEUE): {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
