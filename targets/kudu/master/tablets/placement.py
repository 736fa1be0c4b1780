"""Where new replicas go: of two random servers that are available, the less loaded one.

The power of two choices, as in Kudu's `master/placement_policy.cc`; never two replicas of a tablet
on one tablet server. Locations (racks) are not modelled.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.tablets.ts_manager import TServer, TServerMap


def available(catalog: Catalog, tservers: TServerMap, flags: Flags, now_ns: int) -> list[TServer]:
    """The tablet servers that may get replicas: heard of lately and not in maintenance."""
    unresponsive_ns = flags.tserver_unresponsive_timeout_ms * 1_000_000
    alive = tservers.alive(now_ns, unresponsive_ns)
    return [server for server in alive if not catalog.is_in_maintenance(server.uuid)]


def place_replicas(
    candidates: Sequence[TServer], count: int, rng: random.Random, now_ns: int
) -> list[TServer] | None:
    """`count` different tablet servers, their placements noted; `None` if there are too few."""
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
