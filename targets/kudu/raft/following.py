"""The follower: what it takes from a leader, and when it answers.

After Kudu's `UpdateReplica` (`consensus/raft_consensus.cc`): skip what is held already, check the
preceding entry, drop a conflicting tail, append, commit what was matched, answer when durable.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from targets.kudu.messages import RaftConfig
from targets.kudu.raft import events as ev
from targets.kudu.raft.elections import Elections
from targets.kudu.raft.messages import (
    ConsensusError,
    ConsensusErrorCode,
    Entry,
    EntryKind,
    InstallSnapshotResponse,
    OpId,
    UpdateConsensusRequest,
    UpdateConsensusResponse,
)
from targets.kudu.raft.state import PendingAck, Role

__all__ = ["Following"]

_RESET: Final = ev.ResetElectionTimer()


class Following(Elections):
    """How a replica follows a leader."""

    def _follow(self, caller_term: int, caller_uuid: str) -> bool:
        """Accept a leader; false when its term is over."""
        if caller_term < self.term:
            return False
        assert caller_term > self.term or self.role is not Role.LEADER, (
            f"{self.uuid} and {caller_uuid} both lead term {caller_term}"
        )
        assert caller_term > self.term or self.leader_uuid in {None, caller_uuid}, (
            f"{self.leader_uuid} and {caller_uuid} both lead term {caller_term}"
        )
        if caller_term > self.term or self.role is Role.CANDIDATE or self._election is not None:
            self._become_follower(caller_term, caller_uuid)
        self.leader_uuid = caller_uuid
        self.heard_leader_ns = self._now_ns
        self.failed_elections = 0
        self._effects.append(_RESET)
        return True

    def _on_leader_contact(self, event: ev.LeaderContact) -> None:
        self._follow(event.caller_term, event.caller_uuid)

    def _on_update_requested(self, event: ev.UpdateRequested) -> None:
        request = event.request
        if not self._follow(request.caller_term, request.caller_uuid):
            self._refuse_update(event.reply, ConsensusErrorCode.INVALID_TERM, "the term is over")
            return
        preceding, entries = self._above_base(request)
        if not self._matches(preceding):
            message = f"preceding {preceding}, here {self.log!r}"
            code = ConsensusErrorCode.PRECEDING_ENTRY_DIDNT_MATCH
            self._refuse_update(event.reply, code, message)
            return
        self._append_missing(entries)
        matched = preceding.index + len(entries)
        self._commit_to(min(request.committed_index, matched))
        if matched <= self.durable_index:
            self._reply_update(event.reply, matched)
        elif request.entries:
            self._acks.append(PendingAck(matched, event.reply))
        else:
            # A heartbeat is answered at once, so that a slow disk does not look like a dead node.
            self._reply_update(event.reply, self.durable_index)

    def _above_base(self, request: UpdateConsensusRequest) -> tuple[OpId, tuple[Entry, ...]]:
        """The request without what the snapshot covers, which is committed and thus equal."""
        preceding, entries = request.preceding, request.entries
        for position, entry in enumerate(entries, start=1):
            assert entry.index == preceding.index + position, "a gap in a request"
        covered = self.log.base.index - preceding.index
        if covered <= 0:
            return preceding, entries
        return self.log.base, entries[covered:]

    def _matches(self, preceding: OpId) -> bool:
        """The log matching check (Raft 5.3)."""
        if self.log.holds(preceding):
            return True
        assert preceding.index > self.commit_index, (
            f"committed up to {self.commit_index}, but the leader of {self.term} has {preceding}"
        )
        return False

    def _append_missing(self, entries: tuple[Entry, ...]) -> None:
        for position, entry in enumerate(entries):
            if entry.index <= self.log.last_index:
                if self.log.term_at(entry.index) == entry.term:
                    continue
                self._truncate_from(entry.index)
            self._append(entries[position:])
            return

    def _reply_update(self, reply: Any, matched: int) -> None:
        response = UpdateConsensusResponse(
            responder_uuid=self.uuid,
            responder_term=self.term,
            last_received=self.log.last,
            last_received_current_leader=OpId(self._term_or_zero(matched), matched),
            last_committed_index=self.commit_index,
        )
        self._effects.append(ev.Reply(reply, response))

    def _term_or_zero(self, index: int) -> int:
        """The term at `index`; 0 where a snapshot has taken the entry since."""
        return self.log.term_at(index) if index >= self.log.base.index else 0

    def _refuse_update(self, reply: Any, code: ConsensusErrorCode, message: str) -> None:
        response = UpdateConsensusResponse(
            responder_uuid=self.uuid,
            responder_term=self.term,
            last_received=self.log.last,
            last_committed_index=self.commit_index,
            error=ConsensusError(code, message),
        )
        self._effects.append(ev.Reply(reply, response))

    def _fail_acks(self, message: str) -> None:
        """Answer requests of a term that is over; their caller does not lead any more."""
        acks, self._acks = self._acks, deque()
        for ack in acks:
            self._refuse_update(ack.reply, ConsensusErrorCode.INVALID_TERM, message)

    def _on_snapshot_received(self, event: ev.SnapshotReceived) -> None:
        if not self._follow(event.caller_term, event.caller_uuid):
            error = ConsensusError(ConsensusErrorCode.INVALID_TERM, "the term is over")
            response = InstallSnapshotResponse(self.uuid, self.term, error=error)
            self._effects.append(ev.Reply(event.reply, response))
            return
        last = event.last_included
        if last.index > self.commit_index:
            self._fail_acks("a snapshot took the log's place")
            keep_log = self.log.holds(last)
            if keep_log:
                self.log.compact(last.index)
            else:
                self.log.reset(last)
                self._unsynced.clear()
                self.durable_index = last.index
            self.durable_index = max(self.durable_index, last.index)
            self.commit_index = last.index
            self._take_snapshot_config(event.config)
            self._effects.append(
                ev.InstallSnapshot(last, event.config, event.digest, event.data, keep_log)
            )
        response = InstallSnapshotResponse(self.uuid, self.term, installed=True)
        self._effects.append(ev.Reply(event.reply, response))

    def _take_snapshot_config(self, config: RaftConfig) -> None:
        self.configs.reset(config)
        for entry in self.log.between(self.log.base.index + 1, self.log.last_index):
            if entry.kind is EntryKind.CONFIG:
                self.configs.append(entry)
        self._refresh_config()
        self._save_meta()

    def _on_synced(self, event: ev.Synced) -> None:
        """More of the log is durable: send the answers that waited for it."""
        durable_before = self.durable_index
        while self._unsynced and self._unsynced[0][0] <= event.sequence:
            _, last_index = self._unsynced.popleft()
            self.durable_index = max(self.durable_index, last_index)
        assert self.durable_index <= self.log.last_index, "durable beyond the log"
        if self.durable_index == durable_before:
            return
        while self._acks and self._acks[0].matched <= self.durable_index:
            ack = self._acks.popleft()
            self._reply_update(ack.reply, ack.matched)
