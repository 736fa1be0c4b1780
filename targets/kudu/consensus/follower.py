"""The follower's part of the Raft core: appends a leader's entries and answers once durable.

The code follows Kudu's `UpdateReplica` (`consensus/raft_consensus.cc`). It checks the preceding
entry, skips entries that the log already has, drops a conflicting tail, appends, and commits.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from targets.kudu.consensus import events as ev
from targets.kudu.consensus.log_cache import COMMITTED_LOST
from targets.kudu.consensus.messages import (
    ConsensusError,
    ConsensusErrorCode,
    Entry,
    InstallSnapshotResponse,
    OpId,
    UpdateConsensusRequest,
    UpdateConsensusResponse,
)
from targets.kudu.consensus.state import RaftState

_LEFT_OUT = "you were removed from this group"


class Follower:
    """Receives entries and snapshots from leaders whose term the core has accepted.

    The follower holds back the answer to a request until the request's entries are durable.
    """

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._log = state.log
        self._acks: deque[tuple[int, Any]] = deque()  # (index that must become durable, reply)

    @property
    def waits_for_disk(self) -> bool:
        return bool(self._acks)

    def update(self, event: ev.UpdateRequested) -> None:
        """Append a leader's entries, if any; acknowledge them once they are durable."""
        request = event.request
        preceding, entries = request.preceding, request.entries
        if entries or preceding.index < self._log.base.index:
            preceding, entries = self._above_base(request)
        matches = preceding == self._log.last or self._matches(preceding)
        if (
            (entries or not matches)
            and self._state.is_stranger(request.caller_uuid)
            and self._contradicts(preceding, entries)
        ):
            # The sender was removed by force, but still leads other removed members.
            self.refuse(event.reply, ConsensusErrorCode.INVALID_TERM, _LEFT_OUT)
            return
        if not matches:
            assert preceding.index > self._log.commit_index, (
                f"{COMMITTED_LOST}: the leader of {self._state.term} has {preceding}, "
                f"here {self._log}"
            )
            message = f"preceding {preceding}, here {self._log!r}"
            self.refuse(event.reply, ConsensusErrorCode.PRECEDING_ENTRY_DIDNT_MATCH, message)
            return
        if entries:
            self._append_missing(entries)
        matched = preceding.index + len(entries)
        self._state.commit_to(min(request.committed_index, matched))
        if matched <= self._log.durable_index:
            self._acknowledge(event.reply, matched)
        elif request.entries:
            self._acks.append((matched, event.reply))
        else:
            # Answer a heartbeat at once. Otherwise a slow disk would make this node look dead.
            self._acknowledge(event.reply, self._log.durable_index)

    def _above_base(self, request: UpdateConsensusRequest) -> tuple[OpId, tuple[Entry, ...]]:
        """Return the preceding entry and the entries of a request, without entries up to `base`.

        The snapshot covers the omitted entries, so they are committed and thus equal in both logs.
        """
        preceding, entries = request.preceding, request.entries
        for position, entry in enumerate(entries, start=1):
            assert entry.index == preceding.index + position, "the entries of a request have a gap"
        covered = self._log.base.index - preceding.index
        if covered <= 0:
            return preceding, entries
        return self._log.base, entries[covered:]

    def _matches(self, preceding: OpId) -> bool:
        return self._log.holds(preceding)

    def _contradicts(self, preceding: OpId, entries: tuple[Entry, ...]) -> bool:
        opids = (preceding, *(OpId(entry.term, entry.index) for entry in entries))
        return any(o.index <= self._log.commit_index and not self._log.holds(o) for o in opids)

    def _append_missing(self, entries: tuple[Entry, ...]) -> None:
        for position, entry in enumerate(entries):
            if entry.index <= self._log.last_index:
                if self._log.term_at(entry.index) == entry.term:
                    continue
                self._log.truncate_from(entry.index)
            self._state.append(entries[position:])
            return

    def _acknowledge(self, reply: Any, matched: int) -> None:
        # A snapshot may have replaced the entry at `matched`, whose term is then unknown.
        term = self._log.term_at(matched) if matched >= self._log.base.index else 0
        response = UpdateConsensusResponse(
            responder_uuid=self._state.uuid,
            responder_term=self._state.term,
            last_received=self._log.last,
            last_received_current_leader=OpId(term, matched),
            last_committed_index=self._log.commit_index,
        )
        self._state.effects.append(ev.Reply(reply, response))

    def refuse(self, reply: Any, code: ConsensusErrorCode, message: str) -> None:
        response = UpdateConsensusResponse(
            responder_uuid=self._state.uuid,
            responder_term=self._state.term,
            last_received=self._log.last,
            last_committed_index=self._log.commit_index,
            error=ConsensusError(code, message),
        )
        self._state.effects.append(ev.Reply(reply, response))

    def fail_acks(self, message: str) -> None:
        """Refuse all requests whose answers wait for the disk; `message` says why."""
        acks, self._acks = self._acks, deque()
        for _, reply in acks:
            self.refuse(reply, ConsensusErrorCode.INVALID_TERM, message)

    def send_durable_acks(self) -> None:
        """Answer the waiting requests whose entries are durable now."""
        while self._acks and self._acks[0][0] <= self._log.durable_index:
            matched, reply = self._acks.popleft()
            self._acknowledge(reply, matched)

    def install(self, event: ev.SnapshotReceived) -> None:
        """Install a leader's snapshot, unless this log has committed the entries that it covers."""
        state, last = self._state, event.last_included
        committed = self._log.term_at(self._log.commit_index)
        if last.term < committed and state.is_stranger(event.caller_uuid):
            error = ConsensusError(ConsensusErrorCode.INVALID_TERM, _LEFT_OUT)
            response = InstallSnapshotResponse(state.uuid, state.term, error=error)
            state.effects.append(ev.Reply(event.reply, response))
            return
        if last.index > self._log.commit_index:
            self.fail_acks("a snapshot replaced the log")
            keep_log = self._log.install(last, event.config)
            state.save_meta()
            state.effects.append(
                ev.InstallSnapshot(last, event.config, event.digest, event.data, keep_log)
            )
        response = InstallSnapshotResponse(state.uuid, state.term, installed=True)
        state.effects.append(ev.Reply(event.reply, response))
