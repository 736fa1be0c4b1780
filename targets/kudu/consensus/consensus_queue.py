"""The leader's part of the Raft core: replication, commit, confirmed reads and membership.

The code follows Kudu's `consensus/consensus_queue.cc`: one outstanding request per peer, the search
for the next index after a mismatch, the promotion of members, and the choice of a successor. Reads
without a log entry follow section 6.4 of Ongaro's Raft dissertation.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.log_cache import COMMITTED_LOST
from targets.kudu.consensus.messages import (
    ChangeType,
    ConsensusErrorCode,
    Entry,
    EntryKind,
    OpId,
    PeerChange,
    StepDownMode,
    UpdateConsensusRequest,
    UpdateConsensusResponse,
)
from targets.kudu.consensus.quorum_util import (
    NON_VOTER,
    VOTER,
    BadChangeError,
    changed_config,
    encode_config,
)
from targets.kudu.consensus.state import PeerProgress, RaftState
from targets.kudu.messages import PeerConfig, PeerHealth

_MATCH_INDEX: Final = attrgetter("match_index")
_CONTACT_NS: Final = attrgetter("contact_ns")
_READ_ACKED: Final = attrgetter("read_acked")
_HAS_NO_REPLICA: Final = frozenset(
    {ConsensusErrorCode.TABLET_NOT_FOUND, ConsensusErrorCode.TABLET_FAILED}
)
_MISMATCH: Final = ConsensusErrorCode.PRECEDING_ENTRY_DIDNT_MATCH
_REFUSES_COPY: Final = frozenset(
    {ConsensusErrorCode.INVALID_TERM, ConsensusErrorCode.TABLET_NOT_FOUND}
)


@dataclasses.dataclass(slots=True)
class _PendingRead:
    """A read that waits until a majority has answered requests sent after the read arrived.

    `number` counts reads in the order of arrival. The entry at `index` must also be committed.
    """

    number: int
    index: int
    token: Any


@dataclasses.dataclass(slots=True)
class _Transfer:
    """A transfer of leadership in progress."""

    successor_uuid: str | None  # `None` means the first voter that has caught up
    deadline_ns: int
    asked: bool = False


class Leader:
    """A replica's work as leader, from `begin` to `end`: its peers' progress, and its reads.

    A `Leader` may call its own `end`. The core notices this and changes the replica's role.
    """

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._log = state.log
        self._configs = state.log.configs
        self.leads = False
        self.peers: dict[str, PeerProgress] = {}
        self.all_sent_ns = 0  # the time of the last send to all peers at once
        self._term_start_index = 0  # index of the NO_OP entry with which this leader's term begins
        self._request_count = 0
        self._reads: deque[_PendingRead] = deque()
        self._read_count = 0
        self._transfer: _Transfer | None = None

    def begin(self) -> None:
        assert not self.leads, "this replica is already the leader"
        self.leads = True
        self._refresh_peers()
        self._term_start_index = self._log.last_index + 1
        self._append(EntryKind.NO_OP, b"")

    def end(self) -> None:
        """Stop leading and reject the waiting reads."""
        self.leads = False
        self.peers.clear()
        self._transfer = None
        effects = self._state.effects
        effects += [ev.ReadRejected(read.token) for read in self._reads]
        self._reads.clear()
        effects.append(ev.ResetElectionTimer())

    def step_down(self, event: ev.StepDown) -> None:
        """Stop leading at once, or begin to transfer leadership, as `event.mode` says."""
        if not self.leads:
            return
        if event.mode is StepDownMode.ABRUPT:
            self.end()
            return
        deadline_ns = self._state.now_ns + self._state.options.leader_alive_ns
        self._transfer = _Transfer(event.new_leader_uuid, deadline_ns)
        for peer in self.peers.values():
            self._hand_over(peer)

    def _hand_over(self, peer: PeerProgress) -> None:
        transfer = self._transfer
        if transfer is None or transfer.asked or peer.config.member_type != VOTER:
            return
        named = transfer.successor_uuid
        if (named is None or named == peer.uuid) and peer.match_index == self._log.last_index:
            transfer.asked = True
            self._state.effects.append(ev.SendRunElection(peer.uuid, peer.address))

    @property
    def committed_in_term(self) -> bool:
        return self.leads and self._log.commit_index >= self._term_start_index

    def _refresh_peers(self) -> None:
        before, self.peers = self.peers, {}
        for config in self._configs.active.peers:
            if config.uuid == self._state.uuid:
                continue
            peer = before.get(config.uuid)
            if peer is None or peer.address != config.address:
                peer = PeerProgress(
                    config.uuid,
                    config.address,
                    config,
                    next_index=self._log.last_index + 1,
                    contact_ns=self._state.now_ns,
                )
            peer.config = config
            self.peers[config.uuid] = peer

    def health(self) -> dict[str, PeerHealth]:
        now_ns, failed_ns = self._state.now_ns, self._state.options.failed_ns
        return {peer.uuid: peer.health(now_ns, failed_ns) for peer in self.peers.values()}

    def _tell_health(self) -> None:
        now_ns, failed_ns = self._state.now_ns, self._state.options.failed_ns
        changed = False
        for peer in self.peers.values():
            health = peer.health(now_ns, failed_ns)
            if health is not peer.announced_health:
                peer.announced_health = health
                changed = True
        if changed:
            self._state.effects.append(ev.HealthChanged())

    def _reached(self, own: int, of_peer: Callable[[PeerProgress], int]) -> int:
        """Return the highest value that a majority of the voters has reached.

        `own` is this replica's value, and `of_peer` returns the value of a peer.
        """
        peers, local_uuid, configs = self.peers, self._state.uuid, self._configs
        values = [own if uuid == local_uuid else of_peer(peers[uuid]) for uuid in configs.voters]
        values.sort()
        return values[len(values) - configs.majority]

    # --- appending --------------------------------------------------------------------------

    def propose(self, event: ev.Propose) -> None:
        assert event.kind is not EntryKind.CONFIG, "propose a configuration with ChangeConfig"
        if self._transfer is not None:
            reason = "this leader is handing over its leadership"
            self._state.effects.append(ev.ProposalRejected(event.token, reason))
            return
        self._accept(event.token)
        self._append(event.kind, event.payload)

    def _accept(self, token: Any) -> None:
        opid = OpId(self._state.term, self._log.last_index + 1)
        self._state.effects.append(ev.ProposalAccepted(token, opid))

    def change_config(self, event: ev.ChangeConfig) -> None:
        code, reason = ConsensusErrorCode.ILLEGAL_STATE, self._unfit_to_change()
        expected, committed = event.cas_opid_index, self._configs.committed.opid_index
        if expected is not None and expected != committed:
            code = ConsensusErrorCode.CAS_FAILED
            reason = f"the committed configuration is {committed}, not {expected}"
        elif reason is None:
            code = ConsensusErrorCode.INVALID_CONFIG
            try:
                config = changed_config(
                    self._configs.active, event.changes, leader_uuid=self._state.uuid
                )
            except BadChangeError as error:
                reason = str(error)
        if reason is not None:
            self._state.effects.append(ev.ProposalRejected(event.token, reason, code))
            return
        self._accept(event.token)
        self._append(EntryKind.CONFIG, encode_config(config))

    def _unfit_to_change(self) -> str | None:
        if self._transfer is not None:
            return "leadership is being handed over"
        if not self.committed_in_term:
            return "no operation of this term has committed yet (KUDU-872)"
        if self._configs.pending:
            return "another configuration change is pending"
        return None

    def _promote(self, peer: PeerProgress) -> None:
        config = peer.config
        if not config.promote or config.member_type != NON_VOTER or self._unfit_to_change():
            return
        log, following = self._log, peer.match_index + 1
        if following <= log.base.index:
            return
        batch = log.batch(following, self._state.options.batch_bytes_max)
        if peer.match_index + len(batch) < log.commit_index:
            return
        voter = PeerConfig(config.uuid, config.address, VOTER, replace=config.replace)
        change = PeerChange(ChangeType.MODIFY_PEER, voter)
        after = changed_config(self._configs.active, (change,), leader_uuid=self._state.uuid)
        self._append(EntryKind.CONFIG, encode_config(after))

    def _append(self, kind: EntryKind, payload: bytes) -> None:
        self._state.append((Entry(self._state.term, self._log.last_index + 1, kind, payload),))
        if kind is EntryKind.CONFIG:
            self._refresh_peers()
        self._send_updates()

    # --- sending ----------------------------------------------------------------------------

    def heartbeat_due(self, event: ev.HeartbeatDue) -> None:
        """Send updates to the peers, or stop leading if no majority has answered recently."""
        del event
        if not self.leads:
            return
        now_ns = self._state.now_ns
        if self._transfer is not None and now_ns >= self._transfer.deadline_ns:
            self._transfer = None  # no successor took over in time
        oldest_ns = now_ns - self._state.options.step_down_ns
        if self._reached(now_ns, _CONTACT_NS) >= oldest_ns:
            self._tell_health()
            self._send_updates()
        else:
            self.end()

    def _send_updates(self) -> None:
        """Send an update to every peer without an outstanding request.

        If this included every peer, the next heartbeat is due one interval from now, as in Kudu
        (`Peer::SendNextRequest` postpones its heartbeater).
        """
        all_free = True
        for peer in self.peers.values():
            if peer.in_flight is None:
                self._send_update(peer)
            else:
                all_free = False
        if all_free:
            self.all_sent_ns = self._state.now_ns

    def _send_update(self, peer: PeerProgress) -> None:
        assert peer.in_flight is None, f"{peer.uuid} has an outstanding request already"
        state, log = self._state, self._log
        self._request_count += 1
        peer.in_flight = self._request_count
        peer.read_sent = self._read_count
        if peer.next_index <= log.base.index:
            state.effects.append(
                ev.SendSnapshot(peer.uuid, peer.address, self._request_count, state.term)
            )
            return
        preceding_index = peer.next_index - 1
        preceding = log.last
        if preceding.index != preceding_index:
            preceding = OpId(log.term_at(preceding_index), preceding_index)
        request = UpdateConsensusRequest(
            dest_uuid=peer.uuid,
            tablet_id=state.group_id,
            caller_uuid=state.uuid,
            caller_term=state.term,
            preceding=preceding,
            committed_index=log.commit_index,
            entries=log.batch(peer.next_index, state.options.batch_bytes_max),
        )
        state.effects.append(ev.SendUpdate(peer.uuid, peer.address, self._request_count, request))

    def _answering_peer(
        self, event: ev.UpdateAnswered | ev.SnapshotSent | ev.CopyStarted
    ) -> PeerProgress | None:
        peer = self.peers.get(event.peer_uuid)
        if peer is None or peer.in_flight != event.request_id:
            return None
        peer.in_flight = None
        return peer

    def update_answered(self, event: ev.UpdateAnswered) -> None:
        response = event.response
        peer = self._answering_peer(event)
        if peer is None or response is None:
            return
        error = response.error
        if error is not None and error.code in _HAS_NO_REPLICA:
            self._without_replica(peer, error.code)
            return
        if response.responder_term != self._state.term:
            return
        if error is not None and error.code is not _MISMATCH:
            return  # the peer has refused for now; the next heartbeat tries again
        peer.note_contact(self._state.now_ns)
        if error is None:
            matched = response.last_received_current_leader.index
            assert matched <= self._log.last_index, (
                f"{COMMITTED_LOST}: {peer.uuid} has {matched}, here {self._log}"
            )
            peer.match_index = max(peer.match_index, matched)
            peer.next_index = matched + 1
            if matched > self._log.commit_index:
                self.advance_commit()
            if self.leads:  # a committed demotion may have ended this leadership
                if peer.config.promote:
                    self._promote(peer)
                if self._transfer is not None:
                    self._hand_over(peer)
        else:
            self._back_off(peer, response)
        if self._reads:
            self._resolve_reads()
        if self._wants_more(peer) or error is not None:
            self._send_update(peer)

    def _without_replica(self, peer: PeerProgress, code: ConsensusErrorCode) -> None:
        """Ask a server that has lost the tablet, or never had it, to create an empty replica.

        A voter is asked at once, because a pending change may need its answer to commit. A new
        non-voter is asked only after its addition has committed. Otherwise a replica could remain
        on a server that never became a member. A peer whose replica failed is marked `is_hopeless`.
        """
        peer.match_index = 0
        is_tentative = self._configs.pending and peer.config.member_type == NON_VOTER
        if code is ConsensusErrorCode.TABLET_FAILED:
            peer.is_hopeless = True
        elif self._state.options.tablet_copy and not is_tentative:
            self._request_count += 1
            peer.in_flight = self._request_count
            term, config = self._state.term, self._configs.committed
            self._state.effects.append(
                ev.SendStartCopy(peer.uuid, peer.address, peer.in_flight, term, config)
            )

    def copy_started(self, event: ev.CopyStarted) -> None:
        """Handle a peer's answer, which says whether the peer created an empty replica."""
        peer = self._answering_peer(event)
        if peer is None:
            return
        if event.error is None:
            self._send_update(peer)
        elif event.error.code in _REFUSES_COPY:
            peer.is_hopeless = True

    def _wants_more(self, peer: PeerProgress) -> bool:
        if peer.in_flight is not None or not self.leads:
            return False
        if peer.next_index <= self._log.last_index:
            return True
        return bool(self._reads) and self._reads[-1].number > peer.read_acked

    def _back_off(self, peer: PeerProgress, response: UpdateConsensusResponse) -> None:
        """Choose the peer's next index after its log did not match (Kudu's `consensus_queue.cc`).

        The search ends, because the committed part of the peer's log always matches. If that part
        ends before this log's base, the peer needs a snapshot.
        """
        # A peer may have lost entries that it acknowledged. Such entries no longer count as
        # replicated.
        peer.match_index = min(peer.match_index, response.last_received.index)
        if self._log.holds(response.last_received):
            following = response.last_received.index + 1
        else:
            following = response.last_committed_index + 1
        peer.next_index = max(1, min(following, self._log.last_index + 1))

    def snapshot_progress(self, event: ev.SnapshotProgress) -> None:
        peer = self.peers.get(event.peer_uuid)
        if peer is not None and peer.in_flight == event.request_id:
            peer.contact_ns = self._state.now_ns
            peer.is_heard = True

    def snapshot_sent(self, event: ev.SnapshotSent) -> None:
        response = event.response
        peer = self._answering_peer(event)
        if peer is None or response is None:
            return
        if response.error is not None and response.error.code in _HAS_NO_REPLICA:
            self._without_replica(peer, response.error.code)
            return
        if response.responder_term != self._state.term:
            return
        peer.note_contact(self._state.now_ns)
        if response.installed:
            peer.match_index = max(peer.match_index, event.last_included.index)
            peer.next_index = event.last_included.index + 1
            self.advance_commit()
        self._resolve_reads()
        if self._wants_more(peer) and response.installed:
            self._send_update(peer)

    # --- commitment and reads ---------------------------------------------------------------

    def advance_commit(self) -> None:
        """Commit the entries that a majority of voters has on disk, if the last is of this term."""
        index = self._reached(self._log.durable_index, _MATCH_INDEX)
        if index <= self._log.commit_index or not self._may_commit(index):
            return
        self._state.commit_to(index)
        if not self._configs.may_run(self._state.uuid):
            self.end()  # the committed change demoted or removed this leader
        self._resolve_reads()

    def _may_commit(self, index: int) -> bool:
        return self._log.term_at(index) == self._state.term  # Raft 5.4.2, figure 8

    def read(self, event: ev.ReadRequested) -> None:
        """Queue a read, and start a round of requests that confirms leadership for it."""
        self._read_count += 1
        index = max(self._log.commit_index, self._term_start_index)
        self._reads.append(_PendingRead(self._read_count, index, event.token))
        self._send_updates()
        self._resolve_reads()

    def _resolve_reads(self) -> None:
        if not self._reads:
            return
        confirmed = self._reached(self._read_count, _READ_ACKED)
        while self._reads:
            read = self._reads[0]
            if read.number > confirmed or read.index > self._log.commit_index:
                return
            self._reads.popleft()
            self._state.effects.append(ev.ReadReady(read.token, read.index))
