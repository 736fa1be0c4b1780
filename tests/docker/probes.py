"""Measurements of degraded links and streams in Docker, by probes that run in the containers.

A probe does not depend on rules, queues or proxies. It compares timestamps of both containers,
which share one clock.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import statistics
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from harness.cluster import Link, LinkQuality, NodeSpec, StreamQuality
from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.engine.labels import container_name
from harness.plugins import DeploymentPlan

NODES: Final = ("a", "b")
PORT: Final = 7000
_QUIET_S: Final = 2.0  # a measurement ends after this long without a datagram

# Receives datagrams from the peer and sends others to it at the same time. Arguments: own name,
# peer, number of datagrams, bytes of each (including 28 for IP and UDP), pause between two in s,
# and how long to wait after the last one.
_PROBE: Final = """
import json, socket, struct, sys, threading, time
me, peer, count, size, pause, quiet = sys.argv[1], sys.argv[2], *map(float, sys.argv[3:])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 9100))
to = (socket.gethostbyname(peer), 9100)
def send():
    at = time.monotonic()
    for n in range(int(count)):
        time.sleep(max(0.0, at + n * pause - time.monotonic()))
        s.sendto(struct.pack("=id", n, time.monotonic()).ljust(int(size) - 28), to)
def meet():  # both must be there before the first datagram that counts
    hello, met = struct.pack("=id", -1, 0.0), False
    s.settimeout(0.2)
    for _ in range(600):
        s.sendto(hello, to)
        try:
            s.recv(2048)
            break
        except TimeoutError:
            pass
    s.sendto(hello, to)
meet()
sender = threading.Thread(target=send)
sender.start()
got, took, late, highest, total, first, last = 0, [], 0, -1, 0, 0.0, 0.0
until = time.monotonic() + count * pause + quiet
while time.monotonic() < until:
    try:
        data = s.recv(2048)
    except TimeoutError:
        continue
    now = time.monotonic()
    n, sent = struct.unpack_from("=id", data)
    if n < 0:
        continue
    if got:
        total += len(data) + 28
    first, last = first or now, now
    got, late, highest = got + 1, late + (n < highest), max(n, highest)
    took.append(now - sent)
    until = max(until, now + quiet)
sender.join()
took.sort()
print(json.dumps({"sent": int(count), "got": got, "late": late,
    "delay_ms": took[len(took) // 2] * 1000 if took else None,
    "kb_s": total / 1000 / (last - first) if last > first else 0.0}))
"""

# One TCP connection. The receiver has no arguments; the sender's arguments are the peer and the
# number of bytes.
_TCP_PROBE: Final = """
import socket, sys, time
if sys.argv[1:]:
    for _ in range(600):
        try:
            conn = socket.create_connection((sys.argv[1], 9200))
            break
        except OSError:
            time.sleep(0.1)
    conn.sendall(bytes(int(sys.argv[2])))
    conn.close()
else:
    conn, _ = socket.create_server(("0.0.0.0", 9200)).accept()
    total, first = len(conn.recv(1)), time.monotonic()
    while data := conn.recv(65536):
        total += len(data)
    print(total / 1000 / (time.monotonic() - first))
"""


class Sending(NamedTuple):
    """The datagrams that each end sends to the other: how many, how large, and how often."""

    datagrams: int = 1000
    size: int = 100  # bytes, headers included
    pause_s: float = 0.004


class Flow(NamedTuple):
    """The datagrams that arrived in one direction."""

    sent: int
    got: int
    late: int  # datagrams that arrived after one that was sent later
    delay_ms: float | None  # median one-way delay; `None` if no datagram arrived
    kb_s: float

    @property
    def lost(self) -> float:
        """The share of datagrams that never arrived; negative if more arrived than were sent."""
        return 1 - self.got / self.sent

    @property
    def reordered(self) -> float:
        """The share of arrived datagrams that arrived late."""
        return self.late / max(1, self.got)


TCP_BYTES: Final = 500_000
DENSE: Final = Sending()
MANY: Final = Sending(datagrams=6000, pause_s=0.001)
"""With this many datagrams, a share has a standard deviation of at most 0.5 %."""
WIDE: Final = Sending(datagrams=1500, size=1000, pause_s=0.002)  # 500 kB/s


class Asked(NamedTuple):
    """A fault of the link from b to a or of its streams, and the value that must be measured."""

    quality: LinkQuality | StreamQuality
    shows: Callable[[Any], float | None]
    wanted: float
    unit: str
    sending: Sending = DENSE  # the datagrams to send


LINK_CASES: Final[Mapping[str, Asked]] = MappingProxyType(
    {
        "delay": Asked(LinkQuality(delay_ms=200), lambda flow: flow.delay_ms, 200, "ms"),
        "drop": Asked(LinkQuality(drop=0.2), lambda flow: 100 * flow.lost, 20, "%", MANY),
        "duplicate": Asked(
            LinkQuality(duplicate=0.1), lambda flow: -100 * flow.lost, 10, "%", MANY
        ),
        "reorder": Asked(
            LinkQuality(reorder=0.1), lambda flow: 100 * flow.reordered, 10, "%", MANY
        ),
        "rate": Asked(LinkQuality(rate_kb_s=64), lambda flow: flow.kb_s, 64, "kB/s", WIDE),
    }
)
TCP_RATE: Final = LinkQuality(rate_kb_s=64)


def probe_plan(link_proxy: str | None = None) -> DeploymentPlan:
    """Plan two idle nodes; the program `link_proxy` replaces the harness's proxy."""
    nodes = tuple(
        NodeSpec(name=name, role="idle", ports=(PORT,), command=("sleep", "infinity"))
        for name in NODES
    )
    run_id = f"links-{secrets.token_hex(4)}"
    return DeploymentPlan(
        run_id=run_id, nodes=nodes, seed=1, knobs={}, folder=None, link_proxy=link_proxy
    )


async def measure_link(engine: Engine, run_id: str, sending: Sending = DENSE) -> tuple[Flow, Flow]:
    """Send datagrams both ways; return the flow from b to a, and the flow from a to b."""

    def ask(me: str, peer: str) -> Flow:
        words = [me, peer, *map(str, (*sending, _QUIET_S))]
        return Flow(**msgspec.json.decode(run_probe(engine, run_id, me, _PROBE, *words)))

    a, b = NODES
    answers = await asyncio.gather(asyncio.to_thread(ask, a, b), asyncio.to_thread(ask, b, a))
    return answers[0], answers[1]


async def tcp_kb_s(engine: Engine, run_id: str, source: str, sink: str) -> float:
    """Measure the rate at which one TCP connection carries `TCP_BYTES`."""
    sending = asyncio.to_thread(run_probe, engine, run_id, source, _TCP_PROBE, sink, str(TCP_BYTES))
    output, _ = await asyncio.gather(
        asyncio.to_thread(run_probe, engine, run_id, sink, _TCP_PROBE), sending
    )
    return float(output)


def run_probe(engine: Engine, run_id: str, node: str, probe: str, *words: str) -> str:
    command = ["python3", "-c", probe, *words]
    result = engine.exec(container_name(run_id, node), command, user="65532")
    if result.code != 0:
        raise RuntimeError(f"the probe failed at {node}: {result.output[-500:]}")
    return result.output


# --- streams ---

LINK: Final = Link("b", "a")
GONE_MS: Final = 1200.0
"""A connection that lasts this long after its first bytes will not be reset.

When the probe then closes the connection, a real Toxiproxy with a `reset_peer` turns the close into
a reset.
"""

# One end of one TCP connection. Arguments: the peer to connect to (empty: listen), the port, the
# bytes of each message (0: receive), the number of messages, the time between two, and how long to
# wait for the end. A port that no node declares shows whether the peer listens yet.
_STREAM_PROBE: Final = """
import json, socket, sys, time
peer, (port, size, count, pause, wait) = sys.argv[1], map(float, sys.argv[2:])
if peer:
    for _ in range(600):
        try:
            socket.create_connection((peer, 9300)).close()
            break
        except OSError:
            time.sleep(0.1)
    conn = socket.create_connection((peer, int(port)))
else:
    server = socket.create_server(("0.0.0.0", int(port)))
    ready = socket.create_server(("0.0.0.0", 9300))
    conn, _ = server.accept()
met, came, reset = conn.getpeername()[0], [], None
conn.settimeout(wait)
first = time.monotonic()
try:
    for n in range(int(count) if size else 0):
        time.sleep(max(0.0, first + n * pause - time.monotonic()))
        conn.sendall(bytes(int(size)))
    while data := conn.recv(65536):
        came.append((time.monotonic(), len(data)))
except ConnectionResetError:
    reset = time.monotonic()
except TimeoutError:
    pass
print(json.dumps({"met": met, "first": first, "came": came, "reset": reset}))
"""


class _End(msgspec.Struct, frozen=True):
    met: str  # the peer's address as this end sees it
    first: float
    came: list[tuple[float, int]]
    reset: float | None


class Way(NamedTuple):
    came: int  # bytes that arrived
    piece_bytes: float | None  # median; `None` if nothing arrived
    gap_ms: float | None  # median time between two pieces
    reset_ms: float | None  # time of a reset after the first bytes; `None` if there was no reset
    met: str  # the opener's address, as the listening end sees it

    @property
    def is_whole(self) -> bool:
        """Whether all bytes arrived as they were sent."""
        return self.came == _MESSAGES * _BYTES and self.reset_ms is None


_MESSAGES: Final = 3
_BYTES: Final = 2048
_PAUSE_S: Final = 0.5

_SLICES: Final = StreamQuality(slice_bytes=128, gap_ms=20)
STREAM_CASES: Final[Mapping[str, Asked]] = MappingProxyType(
    {
        "slice": Asked(_SLICES, lambda way: way.piece_bytes, 128, "B"),
        "gap": Asked(_SLICES, lambda way: way.gap_ms, 20, "ms"),
        "reset-after": Asked(
            StreamQuality(reset_after_ms=500), lambda way: way.reset_ms, 500, "ms"
        ),
    }
)


async def measure_stream(engine: Engine, run_id: str, opener: str, sender: str) -> Way:
    """Send from `sender` over a connection that `opener` opens."""

    def ask(me: str, peer: str) -> _End:
        size = _BYTES if me == sender else 0
        words = ["" if me != opener else peer, PORT, size, _MESSAGES, _PAUSE_S, GONE_MS / 1000]
        output = run_probe(engine, run_id, me, _STREAM_PROBE, *map(str, words))
        return msgspec.json.decode(output, type=_End)

    a, b = NODES
    ends = await asyncio.gather(asyncio.to_thread(ask, a, b), asyncio.to_thread(ask, b, a))
    by_node = dict(zip(NODES, ends, strict=True))
    sent = by_node.pop(sender)
    (received,) = by_node.values()
    listening = sent if sender != opener else received
    times = [at for at, _ in received.came]
    gaps = [1000 * (later - at) for at, later in itertools.pairwise(times)]
    sizes = [size for _, size in received.came]
    reset_ms = None if received.reset is None else 1000 * (received.reset - sent.first)
    return Way(
        came=sum(sizes),
        piece_bytes=statistics.median(sizes) if sizes else None,
        gap_ms=statistics.median(gaps) if gaps else None,
        reset_ms=reset_ms if reset_ms is not None and reset_ms < GONE_MS else None,
        met=listening.met,
    )
