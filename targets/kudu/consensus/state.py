"""The state that the parts of the Raft core share: term, vote, log, peers and pending effects."""

from __future__ import annotations

import dataclasses

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.log_cache import MemoryLog
from targets.kudu.consensus.messages import Entry
from targets.kudu.messages import PeerConfig, PeerHealth


@dataclasses.dataclass(slots=True, kw_only=True)
class CoreOptions:
    """The limits and options of the Raft core.

    `leader_alive_ns` is the shortest election timeout. A leader steps down after `step_down_ns`
    without contact with a majority. A peer has failed after `failed_ns` of silence. With
    `tablet_copy`, a leader asks servers that have no replica to create one.
    """

    leader_alive_ns: int = 1_500_000_000
    step_down_ns: int = 2_250_000_000
    batch_bytes_max: int = 1024 * 1024
    pre_election: bool = True
    failed_ns: int = 300_000_000_000
    tablet_copy: bool = False


@dataclasses.dataclass(slots=True)
class PeerProgress:
    """A leader's record of one peer: its progress in the log, and its health.

    The record follows Kudu's `TrackedPeer` and `PeerHealthStatus` (`consensus/consensus_queue.cc`).
    Missing log entries never make a peer hopeless, because the leader can send a snapshot. A peer
    is hopeless only if it reports a failure, or has no replica and refuses to create one.
    """

    uuid: str
    address: str
    config: PeerConfig
    next_index: int
    # The time of the peer's last answer, or of this record's creation before the first answer
    contact_ns: int
    match_index: int = 0
    in_flight: int | None = None  # the id of the only outstanding request
    read_sent: int = 0  # reads that had arrived when the outstanding request was sent
    read_acked: int = 0
    is_heard: bool = False
    is_hopeless: bool = False  # if set, the peer's health is FAILED_UNRECOVERABLE
    announced_health: PeerHealth = PeerHealth.UNKNOWN  # the health in the last `HealthChanged`

    def note_contact(self, now_ns: int) -> None:
        """Record that the peer's replica answered at `now_ns`, so that it counts as working."""
        self.contact_ns = now_ns
        self.read_acked = self.read_sent
        self.is_heard = True
        self.is_hopeless = False

    def health(self, now_ns: int, failed_ns: int) -> PeerHealth:
        """Return the peer's health at `now_ns`; after `failed_ns` of silence, it has failed."""
        if self.is_hopeless:
            return PeerHealth.FAILED_UNRECOVERABLE
        if now_ns - self.contact_ns > failed_ns:
            return PeerHealth.FAILED
        return PeerHealth.HEALTHY if self.is_heard else PeerHealth.UNKNOWN


class RaftState:
    """A replica's term, vote and log. The effects of the core's current step go to `effects`."""

    def __init__(
        self,
        uuid: str,
        group_id: str,
        *,
        term: int,
        voted_for: str | None,
        log: MemoryLog,
        options: CoreOptions,
    ) -> None:
        assert log.last.term <= term, f"log of term {log.last.term}, vote state {term}"
        self.uuid = uuid
        self.group_id = group_id
        self.term = term
        self.voted_for = voted_for
        self.log = log
        self.options = options
        self.now_ns = 0
        self.effects: list[ev.Effect] = []

    def is_stranger(self, uuid: str) -> bool:
        """Whether `uuid` is not a member in this replica's active configuration."""
        return uuid not in [peer.uuid for peer in self.log.configs.active.peers]

    def save_meta(self) -> None:
        """Add an effect that makes term, vote and committed configuration durable."""
        meta = ev.SaveMeta(self.term, self.voted_for, self.log.configs.committed)
        if self.effects and type(self.effects[-1]) is ev.SaveMeta:
            self.effects[-1] = meta
        else:
            self.effects.append(meta)

    def append(self, entries: tuple[Entry, ...]) -> None:
        self.effects.append(self.log.append(entries))

    def commit_to(self, index: int) -> None:
        """Commit the entries up to `index`; do nothing if `index` is already committed."""
        if index <= self.log.commit_index:
            return
        if self.log.commit_to(index):
            self.save_meta()
        self.effects.append(ev.Committed(index))
