"""The leader: replication, commitment, confirmed reads, stepping down.

After Kudu's `consensus/consensus_queue.cc` (one outstanding request per peer, where to try next
after a mismatch) and the dissertation's 6.4 (reads that need no entry in the log).
"""

from __future__ import annotations

from targets.kudu.messages import RaftConfig
from targets.kudu.raft import events as ev
from targets.kudu.raft.following import Following
from targets.kudu.raft.log import decode_config
from targets.kudu.raft.messages import (
    ConsensusErrorCode,
    Entry,
    EntryKind,
    OpId,
    UpdateConsensusRequest,
    UpdateConsensusResponse,
)
from targets.kudu.raft.state import PeerProgress, PendingRead, Role

__all__ = ["Leading"]


class Leading(Following):
    """How a replica leads."""

    def _become_leader(self, term: int) -> None:
        assert self.role is Role.CANDIDATE, self.role
        assert self.term == term, f"won the election of {term} in {self.term}"
        assert not self._reads, "reads of an earlier leadership"
        self.role = Role.LEADER
        self.leader_uuid = self.uuid
        self.failed_elections = 0
        self._peers.clear()
        self._refresh_peers()
        self.term_start_index = self.log.last_index + 1
        self._append_own(EntryKind.NO_OP, b"")

    def _on_synced(self, event: ev.Synced) -> None:
        super()._on_synced(event)
        if self.role is Role.LEADER:
            self._advance_commit()

    def _on_propose(self, event: ev.Propose) -> None:
        reason = self._refusal(event)
        if reason is not None:
            self._effects.append(ev.ProposalRejected(event.token, reason))
            return
        opid = OpId(self.term, self.log.last_index + 1)
        self._effects.append(ev.ProposalAccepted(event.token, opid))
        self._append_own(event.kind, event.payload)

    def _refusal(self, event: ev.Propose) -> str | None:
        """Why a proposal cannot be appended."""
        if self.role is not Role.LEADER:
            return f"not the leader; that is {self.leader_uuid or 'unknown'}"
        if event.kind is not EntryKind.CONFIG:
            return None
        if not self.committed_in_term:
            return "no operation of this term has committed yet (KUDU-872)"
        if self.configs.pending:
            return "another configuration change is pending"
        entry = Entry(self.term, self.log.last_index + 1, event.kind, event.payload)
        changed = _voters_changed(self.config, decode_config(entry))
        if len(changed) > 1 or self.uuid in changed:
            return f"one other voter at a time, not {changed}"
        return None

    def _append_own(self, kind: EntryKind, payload: bytes) -> None:
        """Append an entry as leader and send it to every peer that is free."""
        self._append((Entry(self.term, self.log.last_index + 1, kind, payload),))
        self._send_updates()

    def _on_heartbeat_due(self, event: ev.HeartbeatDue) -> None:
        del event
        if self.role is not Role.LEADER:
            return
        if not self._majority_in_contact():
            self._become_follower(self.term, None)
            return
        self._send_updates()

    def _majority_in_contact(self) -> bool:
        oldest_ns = self._now_ns - self.options.step_down_ns
        count = 0
        for uuid in self._voters:
            count += uuid == self.uuid or self._peers[uuid].contact_ns >= oldest_ns
        return count >= self._majority

    def _send_updates(self) -> None:
        """Send to every peer that is free. If that was all of them, the next heartbeat is due an
        interval from now, as in Kudu (`Peer::SendNextRequest` snoozes its heartbeater).
        """
        all_free = True
        for peer in self._peers.values():
            if peer.in_flight is None:
                self._send_update(peer)
            else:
                all_free = False
        if all_free:
            self.all_sent_ns = self._now_ns

    def _send_update(self, peer: PeerProgress) -> None:
        """Send what the peer needs next: entries, a bare heartbeat, or a snapshot."""
        assert peer.in_flight is None, "one outstanding request per peer"
        self._request_count += 1
        peer.in_flight = self._request_count
        peer.read_sent = self._read_count
        if peer.next_index <= self.log.base.index:
            self._effects.append(
                ev.SendSnapshot(peer.uuid, peer.address, self._request_count, self.term)
            )
            return
        preceding_index = peer.next_index - 1
        request = UpdateConsensusRequest(
            dest_uuid=peer.uuid,
            tablet_id=self.group_id,
            caller_uuid=self.uuid,
            caller_term=self.term,
            preceding=OpId(self.log.term_at(preceding_index), preceding_index),
            committed_index=self.commit_index,
            entries=self.log.batch(peer.next_index, self.options.batch_bytes_max),
        )
        self._effects.append(ev.SendUpdate(peer.uuid, peer.address, self._request_count, request))

    def _answering_peer(self, peer_uuid: str, request_id: int) -> PeerProgress | None:
        """The peer whose outstanding request this is; None for late or foreign answers."""
        if self.role is not Role.LEADER:
            return None
        peer = self._peers.get(peer_uuid)
        if peer is None or peer.in_flight != request_id:
            return None
        peer.in_flight = None
        return peer

    def _on_update_answered(self, event: ev.UpdateAnswered) -> None:
        response = event.response
        if response is not None and response.responder_term > self.term:
            self._become_follower(response.responder_term, None)
            return
        peer = self._answering_peer(event.peer_uuid, event.request_id)
        if peer is None or response is None or response.responder_term != self.term:
            return
        error = response.error
        mismatch = ConsensusErrorCode.PRECEDING_ENTRY_DIDNT_MATCH
        if error is not None and error.code is not mismatch:
            return  # refused for a reason that time may mend; the next heartbeat tries again
        peer.contact_ns = self._now_ns
        peer.read_acked = max(peer.read_acked, peer.read_sent)
        if error is None:
            matched = response.last_received_current_leader.index
            assert matched <= self.log.last_index, "a follower matched more than the leader has"
            peer.match_index = max(peer.match_index, matched)
            peer.next_index = matched + 1
            if matched > self.commit_index:
                self._advance_commit()
        else:
            self._back_off(peer, response)
        self._resolve_reads()
        if self._wants_more(peer) or error is not None:
            self._send_update(peer)

    def _wants_more(self, peer: PeerProgress) -> bool:
        """Whether to send again at once instead of with the next heartbeat."""
        if peer.in_flight is not None or self.role is not Role.LEADER:
            return False
        if peer.next_index <= self.log.last_index:
            return True
        return bool(self._reads) and self._reads[-1].number > peer.read_acked

    def _back_off(self, peer: PeerProgress, response: UpdateConsensusResponse) -> None:
        """Choose where to try next, after a peer's log did not match (Kudu `consensus_queue.cc`).

        Its committed prefix always matches, so this ends; what it committed before our base needs
        a snapshot.
        """
        # A peer that came back with less than it once acknowledged no longer counts for that.
        peer.match_index = min(peer.match_index, response.last_received.index)
        if self.log.holds(response.last_received):
            following = response.last_received.index + 1
        else:
            following = response.last_committed_index + 1
        peer.next_index = max(1, min(following, self.log.last_index + 1))

    def _on_snapshot_progress(self, event: ev.SnapshotProgress) -> None:
        peer = self._peers.get(event.peer_uuid)
        if peer is not None and peer.in_flight == event.request_id:
            peer.contact_ns = self._now_ns

    def _on_snapshot_sent(self, event: ev.SnapshotSent) -> None:
        response = event.response
        if response is not None and response.responder_term > self.term:
            self._become_follower(response.responder_term, None)
            return
        peer = self._answering_peer(event.peer_uuid, event.request_id)
        if peer is None or response is None or response.responder_term != self.term:
            return
        peer.contact_ns = self._now_ns
        peer.read_acked = max(peer.read_acked, peer.read_sent)
        if response.installed:
            peer.match_index = max(peer.match_index, event.last_included.index)
            peer.next_index = event.last_included.index + 1
            self._advance_commit()
        self._resolve_reads()
        if self._wants_more(peer) and response.installed:
            self._send_update(peer)

    def _advance_commit(self) -> None:
        """Commit what a majority of voters has durably, if it is of this term."""
        matches = sorted(
            self.durable_index if uuid == self.uuid else self._peers[uuid].match_index
            for uuid in self._voters
        )
        index = matches[len(matches) - self._majority]
        if index > self.commit_index and self._may_commit(index):
            self._commit_to(index)
            self._resolve_reads()

    def _may_commit(self, index: int) -> bool:
        """Only entries of the own term commit by counting (Raft 5.4.2, figure 8)."""
        return self.log.term_at(index) == self.term

    def _on_step_down(self, event: ev.StepDown) -> None:
        if self.role is not Role.LEADER:
            return
        successor = self._successor(event.new_leader_uuid)
        self._become_follower(self.term, None)
        if successor is not None:
            self._effects.append(ev.SendRunElection(successor.uuid, successor.address))

    def _successor(self, uuid: str | None) -> PeerProgress | None:
        """The peer to hand over to, if one was named and it votes."""
        if uuid is None or uuid == self.uuid or uuid not in self._voters:
            return None
        return self._peers[uuid]

    # --- reads ------------------------------------------------------------------------------

    def _on_read_requested(self, event: ev.ReadRequested) -> None:
        if self.role is not Role.LEADER:
            self._effects.append(ev.ReadRejected(event.token))
            return
        self._read_count += 1
        index = max(self.commit_index, self.term_start_index)
        self._reads.append(PendingRead(self._read_count, index, event.token))
        self._send_updates()
        self._resolve_reads()

    def _resolve_reads(self) -> None:
        """Release the reads that a majority has confirmed, oldest first."""
        if not self._reads or self.role is not Role.LEADER:
            return
        acked = sorted(
            self._read_count if uuid == self.uuid else self._peers[uuid].read_acked
            for uuid in self._voters
        )
        confirmed = acked[len(acked) - self._majority]
        while self._reads:
            read = self._reads[0]
            if read.number > confirmed or read.index > self.commit_index:
                return
            self._reads.popleft()
            self._effects.append(ev.ReadReady(read.token, read.index))


def _voters_changed(old: RaftConfig, new: RaftConfig) -> list[str]:
    """The voters that one of two configurations has and the other has not, sorted."""
    before = {peer.uuid for peer in old.peers if peer.member_type == "VOTER"}
    after = {peer.uuid for peer in new.peers if peer.member_type == "VOTER"}
    return sorted(before ^ after)
