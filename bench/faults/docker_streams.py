"""Effects of bad streams in Docker on TCP connections, measured by a probe of our own.

`python -m bench.faults.docker_streams [TOXIPROXY-PROGRAM]` deploys two nodes and worsens the
streams from b to a. Then b and a send, each on connections that it opened and on connections that
the other opened, and the receiver notes what comes, in how large pieces, how far apart, and how it
ends. The probe runs in the containers and knows nothing of rules or proxies.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from bench.faults.docker_links import NODES, PORT, Asked, probe_plan, run_probe
from harness.cluster import Link, StreamQuality
from harness.environments.docker import DockerEnvironment
from harness.environments.docker.engine.engine import Engine
from harness.faults.door import Door
from harness.faults.ledger import Ledger
from harness.nodes.faults import Stream
from harness.plugins import Session

LINK: Final = Link("b", "a")
GONE_MS: Final = 1200.0
"""A connection that lasts this long after its first bytes is not reset any more. When the probe
ends it, a real Toxiproxy that has a `reset_peer` makes a reset of that."""
_LEASE_S: Final = 600.0

# One end of one connection. Words: the peer to connect to or nothing, the port, the bytes of each
# message (0: receives), how many, the time between two, and how long to wait for an end. That the
# peer listens is asked at a port that no node declares.
_PROBE: Final = """
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
    met: str  # the address of the peer, as this end sees it
    first: float
    came: list[tuple[float, int]]
    reset: float | None


class Way(NamedTuple):
    """The bytes that one end sent on one connection, and their fate."""

    came: int  # bytes
    piece_bytes: float | None  # the median; None if nothing came
    gap_ms: float | None  # between two pieces, the median
    reset_ms: float | None  # after the first bytes; None: not
    met: str  # the address that the listening end saw

    @property
    def is_whole(self) -> bool:
        """Whether all came as it was sent."""
        return self.came == _MESSAGES * _BYTES and self.reset_ms is None


_MESSAGES: Final = 3
_BYTES: Final = 2048
_PAUSE_S: Final = 0.5


_SLICES: Final = StreamQuality(slice_bytes=128, gap_ms=20)
CASES: Final[Mapping[str, Asked]] = MappingProxyType(
    {
        "slice": Asked(_SLICES, lambda way: way.piece_bytes, 128, "B"),
        "gap": Asked(_SLICES, lambda way: way.gap_ms, 20, "ms"),
        "reset-after": Asked(
            StreamQuality(reset_after_ms=500), lambda way: way.reset_ms, 500, "ms"
        ),
    }
)


async def measure(engine: Engine, run_id: str, opener: str, sender: str) -> Way:
    """Send from `sender` on a connection that `opener` opens."""

    def ask(me: str, peer: str) -> _End:
        size = _BYTES if me == sender else 0
        words = ["" if me != opener else peer, PORT, size, _MESSAGES, _PAUSE_S, GONE_MS / 1000]
        output = run_probe(engine, run_id, me, _PROBE, *map(str, words))
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


async def ways(engine: Engine, run_id: str, sender: str) -> list[Way]:
    """The same on a connection that each end opens."""
    return [await measure(engine, run_id, opener, sender) for opener in NODES]


def main(words: list[str]) -> int:
    """Print the table."""
    plan, engine = probe_plan(words[0] if words else None), Engine()

    async def run(session: Session) -> None:
        door = Door(session.cluster, Ledger(session.cluster, session.env))
        form = "{:<12} {:>8} {:>17} {:>17} {:>17} {:>12}"
        print(form.format("quality", "asked", "measured", "healed", "other way", "connections"))
        print(form.format("opened by", "", *(3 * ("a        b",)), ""))
        for name, asked in CASES.items():
            fault = await door.inject(Stream(quality=asked.quality), [LINK], lease_s=_LEASE_S)
            worse = await ways(engine, plan.run_id, LINK.source)
            other = await ways(engine, plan.run_id, LINK.destination)
            bite = await door.heal(fault)
            healed = await ways(engine, plan.run_id, LINK.source)
            cells = [
                " ".join(f"{value:8.1f}" if value else "       -" for value in map(asked.shows, w))
                for w in (worse, healed, other)
            ]
            print(form.format(name, f"{asked.wanted:g} {asked.unit}", *cells, bite.count or 0))

    DockerEnvironment().execute(plan, run)
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
