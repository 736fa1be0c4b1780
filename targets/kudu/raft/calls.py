"""The incoming side of a replica: votes, updates and snapshots that others send it.

No call needs a task: what waits for the disk is answered from the step that makes it durable.
Snapshots arrive in chunks, in order; what does not fit is asked for again.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from targets.kudu.raft import events as ev
from targets.kudu.raft import messages as msg
from targets.kudu.raft.senders import SNAPSHOT_BYTES_MAX
from targets.kudu.rpc import Answer, RpcHandlerError

if TYPE_CHECKING:
    from targets.kudu.raft.replica import Replica

__all__ = ["ConsensusCalls"]

_WAITING_MAX: Final = 4096


class _Incoming:
    """A snapshot that is being received."""

    __slots__ = ("data", "key")

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key
        self.data = bytearray()


class ConsensusCalls:
    """Handles the consensus calls for one replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._waiting: deque[Answer] = deque()  # those from the first that still waits
        self._incoming: _Incoming | None = None

    def stop(self) -> None:
        """Fail those who wait."""
        while self._waiting:
            self._waiting.popleft().set(RpcHandlerError("the replica was stopped"))

    def vote(self, request: msg.RequestConsensusVoteRequest) -> Answer:
        """A candidate asks for a vote."""
        reply = Answer()
        self._replica.step(ev.VoteRequested(request, reply))
        return self._outcome(reply)

    def update(self, request: msg.UpdateConsensusRequest) -> Answer:
        """A leader's heartbeat or entries; answered at once unless something must be durable."""
        reply = Answer()
        self._replica.step(ev.UpdateRequested(request, reply))
        return self._outcome(reply)

    def _outcome(self, reply: Answer) -> Answer:
        """Remember an answer that is still to come, for `stop`."""
        if reply.response is not None:
            return reply
        waiting = self._waiting
        while waiting and waiting[0].response is not None:
            waiting.popleft()
        if len(waiting) >= _WAITING_MAX:
            raise RpcHandlerError(f"{len(waiting)} calls wait for the disk already")
        waiting.append(reply)
        return reply

    def snapshot(self, request: msg.InstallSnapshotRequest) -> msg.InstallSnapshotResponse | Answer:
        """One chunk of a snapshot; the last one installs it."""
        if request.caller_term < self._replica.term or request.total_size > SNAPSHOT_BYTES_MAX:
            code = msg.ConsensusErrorCode.INVALID_TERM
            message = f"term {request.caller_term} is over"
            if request.caller_term >= self._replica.term:
                code = msg.ConsensusErrorCode.CANNOT_PREPARE
                message = f"{request.total_size} bytes; the limit is {SNAPSHOT_BYTES_MAX}"
            error = msg.ConsensusError(code, message)
            return msg.InstallSnapshotResponse(
                self._replica.local_uuid, self._replica.term, error=error
            )
        self._replica.step(ev.LeaderContact(request.caller_uuid, request.caller_term))
        data = self._collect(request)
        if data is None:
            size = 0 if self._incoming is None else len(self._incoming.data)
            term = max(self._replica.term, request.caller_term)
            return msg.InstallSnapshotResponse(self._replica.local_uuid, term, next_offset=size)
        reply = Answer()
        self._replica.step(
            ev.SnapshotReceived(
                caller_uuid=request.caller_uuid,
                caller_term=request.caller_term,
                last_included=request.last_included,
                config=request.config,
                digest=request.digest,
                data=data,
                reply=reply,
            )
        )
        installed: msg.InstallSnapshotResponse | None = reply.response
        return installed or self._outcome(reply)

    def _collect(self, request: msg.InstallSnapshotRequest) -> bytes | None:
        """Add a chunk; the whole snapshot once it is complete and its checksum is right."""
        key = (
            request.caller_uuid,
            request.caller_term,
            request.last_included,
            request.total_size,
            request.crc,
        )
        if self._incoming is None or self._incoming.key != key:
            self._incoming = _Incoming(key)
        incoming = self._incoming
        if request.offset == len(incoming.data):
            incoming.data += request.data
        if len(incoming.data) < request.total_size:
            return None
        data = bytes(incoming.data)
        self._incoming = None
        if len(data) != request.total_size or zlib.crc32(data) != request.crc:
            return None  # the sender is asked to begin again
        return data

    def state(self) -> msg.GetConsensusStateResponse:
        """How this replica sees its group."""
        core = self._replica.core
        return msg.GetConsensusStateResponse(
            responder_uuid=core.uuid,
            current_term=core.term,
            role=core.role.value,
            leader_uuid=core.leader_uuid,
            config=core.config,
            committed_config_index=core.configs.committed.opid_index,
            last_logged=core.log.last,
            committed_index=core.commit_index,
        )
