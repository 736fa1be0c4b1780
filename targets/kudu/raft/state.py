"""The ground of the Raft core: term, vote, log, configuration, and how they change.

The core is one object in four layers, one a file, each built on the one before: this state, then
`elections.py`, `following.py` and `leading.py`; `core.py` puts them together and is the only part
that others use.
"""

from __future__ import annotations

import abc
import enum
from collections import deque
from collections.abc import Iterable
from typing import Any

from targets.kudu.messages import PeerConfig, RaftConfig
from targets.kudu.raft import events as ev
from targets.kudu.raft.log import ConfigHistory, MemoryLog
from targets.kudu.raft.messages import Entry, EntryKind, OpId

__all__ = [
    "CoreOptions",
    "PeerProgress",
    "PendingAck",
    "PendingRead",
    "RaftState",
    "Role",
    "RunningElection",
]


class Role(enum.StrEnum):
    """`RaftPeerPB.Role`, and CANDIDATE for the time of an election."""

    LEADER = "LEADER"
    FOLLOWER = "FOLLOWER"
    CANDIDATE = "CANDIDATE"
    LEARNER = "LEARNER"
    NON_PARTICIPANT = "NON_PARTICIPANT"


class CoreOptions:
    """The limits the core works by. `leader_alive_ns` is the shortest election timeout."""

    __slots__ = ("batch_bytes_max", "leader_alive_ns", "pre_election", "step_down_ns")

    def __init__(
        self,
        *,
        leader_alive_ns: int = 1_500_000_000,
        step_down_ns: int = 2_250_000_000,
        batch_bytes_max: int = 1024 * 1024,
        pre_election: bool = True,
    ) -> None:
        self.leader_alive_ns = leader_alive_ns
        self.step_down_ns = step_down_ns
        self.batch_bytes_max = batch_bytes_max
        self.pre_election = pre_election


class PeerProgress:
    """What a leader knows of a peer."""

    __slots__ = (
        "address",
        "contact_ns",
        "in_flight",
        "match_index",
        "next_index",
        "read_acked",
        "read_sent",
        "uuid",
    )

    def __init__(self, config: PeerConfig, next_index: int, now_ns: int) -> None:
        self.uuid = config.uuid
        self.address = config.address
        self.next_index = next_index
        self.match_index = 0
        self.in_flight: int | None = None  # the id of the one outstanding request
        self.contact_ns = now_ns
        self.read_sent = 0  # reads that had arrived when the outstanding request left
        self.read_acked = 0


class RunningElection:
    """An election or pre-election this replica runs in."""

    __slots__ = ("answers", "election_id", "ignore_live_leader", "is_pre", "term")

    def __init__(self, election_id: int, term: int, is_pre: bool, ignore_live: bool) -> None:
        self.election_id = election_id
        self.term = term
        self.is_pre = is_pre
        self.ignore_live_leader = ignore_live
        self.answers: dict[str, bool] = {}


class PendingAck:
    """An answer to a leader that waits until `matched` is durable."""

    __slots__ = ("matched", "reply")

    def __init__(self, matched: int, reply: Any) -> None:
        self.matched = matched
        self.reply = reply


class PendingRead:
    """A read that waits for its round."""

    __slots__ = ("index", "number", "token")

    def __init__(self, number: int, index: int, token: Any) -> None:
        self.number = number
        self.index = index
        self.token = token


class RaftState(abc.ABC):
    """One member of one group. All state is public to read; only `step` changes it."""

    def __init__(
        self,
        uuid: str,
        group_id: str,
        *,
        term: int,
        voted_for: str | None,
        config: RaftConfig,
        base: OpId,
        entries: Iterable[Entry] = (),
        options: CoreOptions | None = None,
    ) -> None:
        """A replica as recovered from disk: everything given is durable, `base` is committed."""
        self.uuid = uuid
        self.group_id = group_id
        self.options = options or CoreOptions()
        self.term = term
        self.voted_for = voted_for
        self.log = MemoryLog(base)
        self.configs = ConfigHistory(config)
        for entry in entries:
            self.log.append(entry)
            if entry.kind is EntryKind.CONFIG:
                self.configs.append(entry)
        assert self.log.last.term <= term, f"log of term {self.log.last.term}, vote state {term}"
        self.commit_index = base.index
        self.durable_index = self.log.last_index
        self.role = Role.FOLLOWER
        self.leader_uuid: str | None = None
        self.failed_elections = 0
        self.term_start_index = 0  # of the NO_OP that opened the own term
        self.heard_leader_ns: int | None = None
        self.all_sent_ns = 0  # when, as leader, it last sent to all peers at once

        self._now_ns = 0
        self._effects: list[ev.Effect] = []
        self._append_sequence = 0
        self._unsynced: deque[tuple[int, int]] = deque()  # (append sequence, last index)
        self._acks: deque[PendingAck] = deque()
        self._election: RunningElection | None = None
        self._election_count = 0
        self._request_count = 0
        self._peers: dict[str, PeerProgress] = {}
        self._reads: deque[PendingRead] = deque()
        self._read_count = 0
        self._voters: tuple[str, ...] = ()
        self._majority = 0
        self._refresh_config()

    # --- reading ----------------------------------------------------------------------------

    @property
    def config(self) -> RaftConfig:
        """The active configuration."""
        return self.configs.active

    @property
    def is_new(self) -> bool:
        """Whether this replica knows of no leader ever: no term and no entry."""
        return self.term == 0 and self.log.last_index == 0

    @property
    def committed_in_term(self) -> bool:
        """Whether this is a leader that has committed an entry of its own term."""
        return self.role is Role.LEADER and self.commit_index >= self.term_start_index

    # --- changing ---------------------------------------------------------------------------

    def _save_meta(self) -> None:
        meta = ev.SaveMeta(self.term, self.voted_for, self.configs.committed)
        if self._effects and type(self._effects[-1]) is ev.SaveMeta:
            self._effects[-1] = meta
        else:
            self._effects.append(meta)

    def _refresh_config(self) -> None:
        """Take over the active configuration."""
        peers = self.configs.active.peers
        self._voters = tuple(peer.uuid for peer in peers if peer.member_type == "VOTER")
        self._majority = len(self._voters) // 2 + 1
        if self.role is Role.LEADER:
            self._refresh_peers()
        else:
            self.role = self._passive_role()

    def _refresh_peers(self) -> None:
        known, self._peers = self._peers, {}
        for config in self.configs.active.peers:
            if config.uuid == self.uuid:
                continue
            peer = known.get(config.uuid)
            if peer is None or peer.address != config.address:
                peer = PeerProgress(config, self.log.last_index + 1, self._now_ns)
            self._peers[config.uuid] = peer

    def _passive_role(self) -> Role:
        """What this replica is when it neither leads nor runs."""
        if self.uuid in self._voters:
            return Role.FOLLOWER
        if any(peer.uuid == self.uuid for peer in self.configs.active.peers):
            return Role.LEARNER
        return Role.NON_PARTICIPANT

    def _may_run(self) -> bool:
        """Whether this replica votes in its active or in its committed configuration.

        One that a pending change demotes may hold the only copy of that change: until it commits,
        nobody else might be able to win (dissertation 4.2.2).
        """
        committed = self.configs.committed.peers
        return self.uuid in self._voters or any(
            peer.uuid == self.uuid and peer.member_type == "VOTER" for peer in committed
        )

    def _become_follower(self, term: int, leader_uuid: str | None) -> None:
        """Adopt `term` if it is newer, and stop leading or running."""
        assert term >= self.term, f"term {term} after {self.term}"
        if term > self.term:
            self.term = term
            self.voted_for = None
            self._save_meta()
            self._fail_acks("the term is over")
        if self.role is Role.LEADER:
            self._peers.clear()
            for read in self._reads:
                self._effects.append(ev.ReadRejected(read.token))
            self._reads.clear()
            self._effects.append(ev.ResetElectionTimer())
        self._election = None
        self.role = self._passive_role()
        self.leader_uuid = leader_uuid

    # --- the log ----------------------------------------------------------------------------

    def _append(self, entries: tuple[Entry, ...]) -> None:
        """Append entries, in memory now, on disk by `AppendLog`."""
        config_changed = False
        preceding = self.log.last
        for entry in entries:
            self.log.append(entry)
            if entry.kind is EntryKind.CONFIG:
                self.configs.append(entry)
                config_changed = True
        self._append_sequence += 1
        self._unsynced.append((self._append_sequence, self.log.last_index))
        self._effects.append(ev.AppendLog(self._append_sequence, preceding, entries))
        if config_changed:
            self._refresh_config()

    def _truncate_from(self, index: int) -> None:
        """Drop a conflicting tail; what replaces it on disk is the next append."""
        assert index > self.commit_index, f"truncation from {index}, committed {self.commit_index}"
        self.log.truncate_from(index)
        self.durable_index = min(self.durable_index, index - 1)
        # Appends under way still end, but what they made durable counts only below the cut.
        self._unsynced = deque((seq, min(last, index - 1)) for seq, last in self._unsynced)
        if self.configs.truncate_from(index):
            self._refresh_config()

    def _on_compact(self, event: ev.Compact) -> None:
        assert event.index <= self.commit_index, "only committed entries may go"
        if event.index > self.log.base.index:
            self.log.compact(event.index)

    def _commit_to(self, index: int) -> None:
        if index <= self.commit_index:
            return
        assert index <= self.log.last_index, "committed more than the log holds"
        self.commit_index = index
        if self.configs.commit(index):
            self._save_meta()
        self._effects.append(ev.Committed(index))
        if self.role is Role.LEADER and not self._may_run():
            self._become_follower(self.term, None)  # the change that demoted it has committed

    @abc.abstractmethod
    def _fail_acks(self, message: str) -> None:
        """Answer the requests that wait for the disk: their caller's term is over."""

    @abc.abstractmethod
    def _become_leader(self, term: int) -> None:
        """Lead, after an election was won."""
