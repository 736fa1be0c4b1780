"""The tablet servers that one master knows, with addresses, liveness and load; replica placement.

The map of tablet servers is not replicated. Every master has its own map, which is empty after a
restart. Followers' maps are up to date as well, because tablet servers send heartbeats to all
masters (outdated maps caused KUDU-1358). All times are in ns of the monotonic clock.

A new replica goes to the less loaded of two random available servers, as in Kudu's
`master/placement_policy.cc`. A server gets only one replica of a tablet. Locations (racks) are not
modelled.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.messages import TSHeartbeatRequest

TSERVERS_MAX: Final = 4096
"""Maximum number of tablet servers that may register with a master."""

IDLE_INTERVALS: Final = 10
"""Length of the time window, in heartbeat intervals, in which idle heartbeats are counted."""
_IDLE_BEATS_MAX: Final = 64

_LOAD_HALF_LIFE_NS: Final = 60 * 1_000_000_000
_UNHEARD_NS: Final = -(1 << 62)


class TServer:
    """The last known state of one tablet server."""

    def __init__(self, uuid: str, seqno: int, address: str, now_ns: int) -> None:
        self.uuid: Final = uuid
        self.seqno = seqno
        self.address = address
        self.heard_ns = now_ns
        self.num_live_tablets = 0
        self.full_report_term = -1  # the last term in which this master handled a full report
        self._idle_ns: deque[int] = deque(maxlen=_IDLE_BEATS_MAX)
        self._recent_load = 0.0
        self._recent_load_ns = now_ns

    def note_idle_beat(self, now_ns: int, within_ns: int) -> int:
        """Record a heartbeat without news; return how many there were within `within_ns`."""
        beats = self._idle_ns
        beats.append(now_ns)
        while beats[0] <= now_ns - within_ns:
            beats.popleft()
        return len(beats)

    def load(self, now_ns: int) -> float:
        """Return the server's load: its live replicas, plus recent placements.

        The weight of a placement halves every minute.
        """
        return self.num_live_tablets + self._decayed(now_ns)

    def note_placement(self, now_ns: int) -> None:
        """Count one replica that was placed on this server at `now_ns`."""
        self._recent_load = self._decayed(now_ns) + 1.0
        self._recent_load_ns = now_ns

    def _decayed(self, now_ns: int) -> float:
        age: float = (now_ns - self._recent_load_ns) / _LOAD_HALF_LIFE_NS
        weight: float = 0.5**age
        return self._recent_load * weight


class TServerMap:
    """All tablet servers that have registered with this master since it started."""

    def __init__(self, *, heartbeat_interval_ms: int = 1000) -> None:
        self._by_uuid: dict[str, TServer] = {}
        self._idle_ns: Final = IDLE_INTERVALS * heartbeat_interval_ms * 1_000_000
        self._idle_most = 0

    def get(self, uuid: str) -> TServer | None:
        return self._by_uuid.get(uuid)

    def __iter__(self) -> Iterator[TServer]:
        """Iterate over all registered tablet servers, sorted by uuid."""
        return iter([server for _, server in sorted(self._by_uuid.items())])

    def heard(self, request: TSHeartbeatRequest, now_ns: int) -> TServer | None:
        """Record a heartbeat and return its server; `None` if the server must register first.

        If a tablet server has restarted (its sequence number has grown), it must register again and
        send a full report. A late heartbeat from before the restart is ignored.
        """
        server = self._by_uuid.get(request.ts_uuid)
        if server is None or server.seqno < request.ts_seqno:
            full = server is None and len(self._by_uuid) >= TSERVERS_MAX
            if full or request.registration is None:
                return None
            server = TServer(
                request.ts_uuid, request.ts_seqno, request.registration.address, now_ns
            )
            self._by_uuid[request.ts_uuid] = server
        elif server.seqno > request.ts_seqno:
            return None
        elif request.registration is not None:
            server.address = request.registration.address
        server.heard_ns = now_ns
        server.num_live_tablets = request.num_live_tablets
        return server

    def note_idle_beat(self, server: TServer, now_ns: int) -> None:
        """Record a heartbeat of `server` without news: no registration and no changed tablet.

        A server sends such a heartbeat only once per interval.
        """
        beats = server.note_idle_beat(now_ns, self._idle_ns)
        self._idle_most = max(self._idle_most, beats)

    def counters(self) -> dict[str, int]:
        """Return the largest number of idle heartbeats of one server in a time window."""
        return {"idle heartbeats of a server": self._idle_most}

    def forget_liveness(self) -> None:
        """Forget the times of all heartbeats, but not the servers (defect KUDU-1358).

        Kudu's tablet servers once sent heartbeats only to the leader, so a new leader was in this
        state.
        """
        for server in self._by_uuid.values():
            server.heard_ns = _UNHEARD_NS

    def alive(self, now_ns: int, unresponsive_ns: int) -> list[TServer]:
        """Return the servers heard within the last `unresponsive_ns`, sorted by uuid."""
        return [server for server in self if now_ns - server.heard_ns <= unresponsive_ns]


def available(catalog: Catalog, tservers: TServerMap, flags: Flags, now_ns: int) -> list[TServer]:
    """Return the tablet servers that may get replicas: alive and not in maintenance."""
    unresponsive_ns = flags.tserver_unresponsive_timeout_ms * 1_000_000
    alive = tservers.alive(now_ns, unresponsive_ns)
    return [server for server in alive if not catalog.is_in_maintenance(server.uuid)]


def place_replicas(
    candidates: Sequence[TServer], count: int, rng: random.Random, now_ns: int
) -> list[TServer] | None:
    """Choose `count` of the candidates and record the placements; `None` if there are too few."""
    if len(candidates) < count:
        return None
    free = list(candidates)
    chosen: list[TServer] = []
    for _ in range(count):
        pair = rng.sample(free, 2) if len(free) > 1 else free
        best = min(pair, key=lambda server: server.load(now_ns))
        free.remove(best)
        best.note_placement(now_ns)
        chosen.append(best)
    return chosen
