"""Effects of shaped links in Docker on packets, measured by a probe of our own.

`python -m bench.faults.docker_links` deploys two nodes, worsens the link from b to a, and sends
numbered datagrams both ways. It prints a row for each quality: the requested one, and the measured
ones of the shaped direction and of the other; at last the rate of a TCP connection. The probe runs
in the containers, knows nothing of rules or queues, and compares the containers' clocks, which are
one.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from harness.cluster import Link, LinkQuality, NodeSpec, StreamQuality
from harness.environments.docker import DockerEnvironment
from harness.environments.docker.engine.engine import Engine
from harness.environments.docker.engine.labels import container_name
from harness.faults.door import Door
from harness.faults.ledger import Ledger
from harness.nodes.faults import Shape
from harness.plugins import DeploymentPlan, Session

NODES: Final = ("a", "b")
PORT: Final = 7000
_LEASE_S: Final = 600.0
_QUIET_S: Final = 2.0  # of silence after the last datagram end it

# Receives from the peer and sends to it at once. Words: own name, peer, datagrams, bytes of each
# (with IP's and UDP's 28), pause between two in s, how long to wait for more than the last.
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


# One connection that carries a number of bytes: the receiver's words are none, the sender's are the
# peer and the bytes.
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
    """Datagrams that each end sends to the other."""

    datagrams: int = 1000
    size: int = 100  # bytes, headers included
    pause_s: float = 0.004


class Flow(NamedTuple):
    """The datagrams that arrived in one direction."""

    sent: int
    got: int
    late: int  # after one that was sent later
    delay_ms: float | None  # the median, one way; None if nothing came
    kb_s: float

    @property
    def lost(self) -> float:
        """The share that never came; negative where more came than was sent."""
        return 1 - self.got / self.sent

    @property
    def reordered(self) -> float:
        """The share of what came that came late."""
        return self.late / max(1, self.got)


TCP_BYTES: Final = 500_000
DENSE: Final = Sending()
MANY: Final = Sending(datagrams=6000, pause_s=0.001)
"""Of a share of these the standard deviation is at most 0.5 %."""
WIDE: Final = Sending(datagrams=1500, size=1000, pause_s=0.002)  # 500 kB/s


class Asked(NamedTuple):
    """A quality of the link from b to a, or of its streams, and how it shows in what arrives."""

    quality: LinkQuality | StreamQuality
    shows: Callable[[Any], float | None]
    wanted: float
    unit: str
    sending: Sending = DENSE  # of datagrams


CASES: Final[Mapping[str, Asked]] = MappingProxyType(
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
    """Two nodes that do nothing. `link_proxy`: a Toxiproxy program to use instead of our own."""
    nodes = tuple(
        NodeSpec(name=name, role="idle", ports=(PORT,), command=("sleep", "infinity"))
        for name in NODES
    )
    run_id = f"links-{secrets.token_hex(4)}"
    return DeploymentPlan(
        run_id=run_id, nodes=nodes, seed=1, knobs={}, folder=None, link_proxy=link_proxy
    )


async def measure(engine: Engine, run_id: str, sending: Sending = DENSE) -> tuple[Flow, Flow]:
    """Send datagrams both ways; the arrivals from b at a, and from a at b."""

    def ask(me: str, peer: str) -> Flow:
        words = [me, peer, *map(str, (*sending, _QUIET_S))]
        return Flow(**msgspec.json.decode(run_probe(engine, run_id, me, _PROBE, *words)))

    a, b = NODES
    answers = await asyncio.gather(asyncio.to_thread(ask, a, b), asyncio.to_thread(ask, b, a))
    return answers[0], answers[1]


async def tcp_kb_s(engine: Engine, run_id: str, source: str, sink: str) -> float:
    """The rate at which one TCP connection carries `TCP_BYTES`."""
    sending = asyncio.to_thread(run_probe, engine, run_id, source, _TCP_PROBE, sink, str(TCP_BYTES))
    output, _ = await asyncio.gather(
        asyncio.to_thread(run_probe, engine, run_id, sink, _TCP_PROBE), sending
    )
    return float(output)


def run_probe(engine: Engine, run_id: str, node: str, probe: str, *words: str) -> str:
    """Run the probe at a node; its output."""
    command = ["python3", "-c", probe, *words]
    result = engine.exec(container_name(run_id, node), command, user="65532")
    if result.code != 0:
        raise RuntimeError(f"the probe failed at {node}: {result.output[-500:]}")
    return result.output


def main() -> int:
    """Print the table."""
    plan, engine = probe_plan(), Engine()

    async def run(session: Session) -> None:
        door = Door(session.cluster, Ledger(session.cluster, session.env))
        form = "{:<10} {:>10} {:>12} {:>12} {:>12} {:>10}"
        print(form.format("quality", "asked", "measured", "healed", "other way", "packets"))
        for name, asked in CASES.items():
            fault = await door.inject(
                Shape(quality=asked.quality), [Link("b", "a")], lease_s=_LEASE_S
            )
            shaped, other = await measure(engine, plan.run_id, asked.sending)
            bite = await door.heal(fault)
            healed, _ = await measure(engine, plan.run_id, asked.sending)
            values = (asked.shows(flow) for flow in (shaped, healed, other))
            cells = ["-" if value is None else f"{value:.1f}" for value in values]
            print(form.format(name, f"{asked.wanted:g} {asked.unit}", *cells, bite.count or 0))
        fault = await door.inject(Shape(quality=TCP_RATE), [Link("b", "a")], lease_s=_LEASE_S)
        speeds = [await tcp_kb_s(engine, plan.run_id, *ends) for ends in (("b", "a"), ("a", "b"))]
        bite = await door.heal(fault)
        speeds.insert(1, await tcp_kb_s(engine, plan.run_id, "b", "a"))
        cells = [f"{speed:.1f}" for speed in speeds]
        print(form.format("TCP", f"{TCP_RATE.rate_kb_s} kB/s", *cells, bite.count or 0))

    DockerEnvironment().execute(plan, run)
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
