"""Pure functions of the auto-rebalancer: which replicas to move, and how far a move has come.

As in Kudu's `rebalance/rebalance_algo.cc`, the replicas of each table are evened out first, the
most uneven table first. Then the total per server is evened out, without making any table less
even. Each planned move lowers one of these two differences, so the moves end. A tablet moves only
if its members are healthy and no change is in progress. Tables with one replica never move.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.records import ConsensusState, TabletState
from targets.kudu.master.tablets.replacement import is_at_rest


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """A move of one replica. `config_index` is the index of the configuration before the move."""

    tablet_id: str
    source: str
    target: str
    config_index: int


class Progress(enum.Enum):
    """The progress of a move, according to the catalog."""

    UNDER_WAY = enum.auto()
    LEADER_MUST_GO = enum.auto()
    """The new replica votes, and the old one cannot be evicted because it leads."""
    DONE = enum.auto()
    FAILED = enum.auto()


def progress_of(catalog: Catalog, move: ReplicaMove) -> Progress:
    """Return how far `move` has come. If its tablet is gone, the move is done.

    The catalog learns of a configuration from reports, so an old configuration proves nothing.
    """
    tablet = catalog.tablets.get(move.tablet_id)
    if tablet is None or not tablet.is_live or tablet.consensus is None:
        return Progress.DONE
    config = tablet.consensus.config
    if config.opid_index <= move.config_index:
        return Progress.UNDER_WAY
    peers = {peer.uuid: peer for peer in config.peers}
    source, target = peers.get(move.source), peers.get(move.target)
    if target is None or (source is not None and not source.replace):
        return Progress.FAILED
    if target.member_type != "VOTER":
        return Progress.UNDER_WAY
    if source is None:
        return Progress.DONE
    leads = tablet.consensus.leader_uuid == move.source
    return Progress.LEADER_MUST_GO if leads else Progress.UNDER_WAY


def plan_moves(
    catalog: Catalog, servers: Sequence[str], flags: Flags, *, rng: random.Random
) -> list[ReplicaMove]:
    """Plan the moves of one round between `servers`, all of which may get replicas.

    No server takes part in more than `auto_rebalancing_max_moves_per_server` moves, and no tablet
    moves twice. Each planned move changes the counts on which the next one is based.
    """
    by_table = _replicas(catalog, servers)
    total: Counter[str] = Counter(dict.fromkeys(servers, 0))
    for counts in by_table.values():
        total.update(counts)
    busy: Counter[str] = Counter()
    moves: list[ReplicaMove] = []
    moved: set[str] = set()
    while True:
        free = [
            uuid for uuid in servers if busy[uuid] < flags.auto_rebalancing_max_moves_per_server
        ]
        move = next(_moves(catalog, by_table, total, free, moved, flags, rng), None)
        if move is None:
            return moves
        moves.append(move)
        moved.add(move.tablet_id)
        table_id = catalog.tablets[move.tablet_id].table_id
        for uuid, change in ((move.source, -1), (move.target, 1)):
            busy[uuid] += 1
            total[uuid] += change
            by_table[table_id][uuid] += change


def _replicas(catalog: Catalog, servers: Sequence[str]) -> dict[str, Counter[str]]:
    by_table: dict[str, Counter[str]] = {}
    for table_id, table in sorted(catalog.tables.items()):
        if not table.is_live or table.num_replicas < 2:
            continue
        counts = Counter(
            peer.uuid
            for tablet in catalog.live_tablets(table_id)
            if tablet.consensus is not None
            for peer in tablet.consensus.config.peers
        )
        by_table[table_id] = Counter({uuid: counts[uuid] for uuid in servers})
    return by_table


def _moves(
    catalog: Catalog,
    by_table: dict[str, Counter[str]],
    total: Counter[str],
    free: Sequence[str],
    moved: set[str],
    flags: Flags,
    rng: random.Random,
) -> Iterator[ReplicaMove]:
    wished: list[tuple[tuple[int, int], str, str, str]] = []
    for table_id, counts in by_table.items():
        for source, target in itertools.permutations(free, 2):
            of_table, of_server = counts[source] - counts[target], total[source] - total[target]
            if of_table >= 2 or (of_table == 1 and of_server >= 2):
                wished.append(((-of_table, -of_server), table_id, source, target))
    for _, table_id, source, target in sorted(wished):
        movable = _tablets(catalog, table_id, source, target, moved)
        if flags.auto_rebalancing_prefer_follower_replica_moves:
            movable = [each for each in movable if each[1].leader_uuid != source] or movable
        if movable:
            tablet_id, stored = movable[rng.randrange(len(movable))]
            yield ReplicaMove(tablet_id, source, target, stored.config.opid_index)


def _tablets(
    catalog: Catalog, table_id: str, source: str, target: str, moved: set[str]
) -> list[tuple[str, ConsensusState]]:
    movable = []
    for tablet in catalog.live_tablets(table_id):
        stored, view = tablet.consensus, catalog.views.get(tablet.id)
        if tablet.id in moved or tablet.state is not TabletState.RUNNING:
            continue
        if stored is None or view is None or view.opid_index != stored.config.opid_index:
            continue
        replicas = catalog.tables[table_id].num_replicas
        uuids = [peer.uuid for peer in stored.config.peers]
        fits = source in uuids and target not in uuids
        if fits and is_at_rest(stored.config, view.health, replicas):
            movable.append((tablet.id, stored))
    return movable
