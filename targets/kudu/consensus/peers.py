"""What a leader knows of its peers, and what it makes of their health.

After Kudu's `TrackedPeer` and `PeerHealthStatus` (`consensus/consensus_queue.cc`). Whoever fell
behind the log is sent a snapshot, so only one that says that it failed, or has nothing and cannot
be given anything, is beyond recovery.
"""

from __future__ import annotations

import dataclasses

from targets.kudu.consensus.messages import PeerHealth
from targets.kudu.messages import PeerConfig


@dataclasses.dataclass(slots=True)
class PeerProgress:
    """What a leader knows of a peer."""

    uuid: str
    address: str
    config: PeerConfig
    next_index: int
    contact_ns: int  # of its last answer; before the first, when the leader began with it
    match_index: int = 0
    in_flight: int | None = None  # the id of the one outstanding request
    read_sent: int = 0  # reads that had arrived when the outstanding request left
    read_acked: int = 0
    is_heard: bool = False  # it has answered since this leader began with it
    is_hopeless: bool = False  # see FAILED_UNRECOVERABLE
    health_told: PeerHealth = PeerHealth.UNKNOWN  # as of the last `HealthChanged`

    def note_contact(self, now_ns: int) -> None:
        """It answered as a working replica does."""
        self.contact_ns = now_ns
        self.read_acked = max(self.read_acked, self.read_sent)
        self.is_heard = True
        self.is_hopeless = False

    def health(self, now_ns: int, failed_ns: int) -> PeerHealth:
        """What to make of it, where `failed_ns` of silence are too much."""
        if self.is_hopeless:
            return PeerHealth.FAILED_UNRECOVERABLE
        if now_ns - self.contact_ns > failed_ns:
            return PeerHealth.FAILED
        return PeerHealth.HEALTHY if self.is_heard else PeerHealth.UNKNOWN
