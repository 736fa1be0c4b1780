"""The incoming side of a replica: votes, updates and snapshots that others send it, and what
administrators ask for.

No call needs a task: what waits for the disk is answered from the step that makes it durable.
Snapshots arrive in chunks, in order; what does not fit is asked for again.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from targets.kudu.consensus import events as ev
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.consensus_peers import SNAPSHOT_BYTES_MAX
from targets.kudu.consensus.errors import ConfigRefusedError, IndeterminateError, RaftError
from targets.kudu.consensus.raft_core import RaftCore, Role
from targets.kudu.rpc import Answer, RpcHandlerError

_WAITING_MAX: Final = 4096


@dataclasses.dataclass(slots=True)
class _Incoming:
    """A snapshot that is being received."""

    key: tuple[Any, ...]
    data: bytearray = dataclasses.field(default_factory=bytearray)


class ConsensusCalls:
    """Handles the consensus calls for one replica: it reads `core`, and changes it by `step`."""

    def __init__(self, core: RaftCore, step: Callable[[ev.Event], None]) -> None:
        self._core = core
        self._step = step
        self._waiting: deque[Answer] = deque()  # those from the first that still waits
        self._incoming: _Incoming | None = None

    def stop(self) -> None:
        """Fail those who wait."""
        while self._waiting:
            self._waiting.popleft().set(RpcHandlerError("the replica was stopped"))

    def vote(self, request: msg.RequestConsensusVoteRequest) -> Answer:
        """A candidate asks for a vote."""
        reply = Answer()
        self._step(ev.VoteRequested(request, reply))
        return self._outcome(reply)

    def update(self, request: msg.UpdateConsensusRequest) -> Answer:
        """A leader's heartbeat or entries; answered at once unless something must be durable."""
        reply = Answer()
        self._step(ev.UpdateRequested(request, reply))
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
        if request.caller_term < self._core.term or request.total_size > SNAPSHOT_BYTES_MAX:
            code = msg.ConsensusErrorCode.INVALID_TERM
            message = f"term {request.caller_term} is over"
            if request.caller_term >= self._core.term:
                code = msg.ConsensusErrorCode.CANNOT_PREPARE
                message = f"{request.total_size} bytes; the limit is {SNAPSHOT_BYTES_MAX}"
            error = msg.ConsensusError(code, message)
            return msg.InstallSnapshotResponse(self._core.uuid, self._core.term, error=error)
        self._step(ev.LeaderContact(request.caller_uuid, request.caller_term))
        data = self._collect(request)
        if data is None:
            size = 0 if self._incoming is None else len(self._incoming.data)
            term = max(self._core.term, request.caller_term)
            return msg.InstallSnapshotResponse(self._core.uuid, term, next_offset=size)
        reply = Answer()
        self._step(
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

    def step_down(self, request: msg.LeaderStepDownRequest) -> msg.LeaderStepDownResponse:
        """An administrator asks the leader to give up its role, or to hand it over."""
        error = self._not_leading() or self._bad_successor(request)
        if error is None and request.new_leader_uuid != self._core.uuid:
            self._step(ev.StepDown(request.mode, request.new_leader_uuid))
        return msg.LeaderStepDownResponse(error)

    def _not_leading(self) -> msg.ConsensusError | None:
        if self._core.role is Role.LEADER:
            return None
        message = f"not the leader; that is {self._core.leader_uuid or 'unknown'}"
        return msg.ConsensusError(msg.ConsensusErrorCode.NOT_THE_LEADER, message)

    def _bad_successor(self, request: msg.LeaderStepDownRequest) -> msg.ConsensusError | None:
        """As Kudu's `TransferLeadership` has it."""
        uuid, voters = request.new_leader_uuid, self._core.configs.voters
        if request.mode is msg.StepDownMode.ABRUPT:
            message = "an ABRUPT step-down names no successor; ask for GRACEFUL"
            bad = uuid is not None
        elif uuid is None:
            message = "nobody else votes"
            bad = not set(voters) - {self._core.uuid}
        else:
            message = f"{uuid} does not vote, so it cannot lead"
            bad = uuid not in voters
        code = msg.ConsensusErrorCode.INVALID_CONFIG
        return msg.ConsensusError(code, message) if bad else None

    def run_election(self, request: msg.RunLeaderElectionRequest) -> msg.RunLeaderElectionResponse:
        """Run for leader now, in spite of a live one; nothing happens on a leader."""
        del request
        self._step(ev.RunElection())
        return msg.RunLeaderElectionResponse()

    def change_config(self, request: msg.ChangeConfigRequest) -> Answer:
        """Change one member; answered when that has committed."""
        return self._change((request.change,), request.cas_config_opid_index)

    def bulk_change_config(self, request: msg.BulkChangeConfigRequest) -> Answer:
        """Change several members in one step."""
        return self._change(request.changes, request.cas_config_opid_index)

    def _change(self, changes: tuple[msg.PeerChange, ...], cas: int | None) -> Answer:
        waiter = _ChangeWaiter(self._core)
        self._step(ev.ChangeConfig(changes, cas, waiter))
        return self._outcome(waiter.answer)

    def unsafe_change_config(self, request: msg.UnsafeChangeConfigRequest) -> Answer:
        """Leave all other members out; answered when that is durable here."""
        waiter = _ForceWaiter()
        self._step(ev.ForceConfig(request.member_uuids, waiter))
        return self._outcome(waiter.answer)

    def read_index(self, request: msg.ReadIndexRequest) -> Answer:
        """Confirm leadership for a follower's read; answered once a majority has."""
        del request
        waiter = _ReadWaiter(self._core)
        self._step(ev.ReadRequested(waiter))
        return self._outcome(waiter.answer)

    def last_opid(self, request: msg.GetLastOpIdRequest) -> msg.GetLastOpIdResponse:
        """How far the log goes here."""
        log = self._core.log
        if request.opid_type is msg.OpIdType.RECEIVED:
            return msg.GetLastOpIdResponse(log.last)
        return msg.GetLastOpIdResponse(msg.OpId(log.term_at(log.commit_index), log.commit_index))

    def state(self, request: msg.GetConsensusStateRequest) -> msg.GetConsensusStateResponse:
        """How this replica sees its group."""
        del request
        core, configs = self._core, self._core.configs
        return msg.GetConsensusStateResponse(
            responder_uuid=core.uuid,
            current_term=core.term,
            role=core.role.value,
            leader_uuid=core.leader_uuid,
            committed_config=configs.committed,
            pending_config=configs.active if configs.pending else None,
            last_logged=core.log.last,
            committed_index=core.commit_index,
            peer_health=core.peer_health(),
        )


class _ReadWaiter:
    """The answer to a follower, as somebody who waits to read (see `machine.Waiter`)."""

    def __init__(self, core: RaftCore) -> None:
        self.answer = Answer()
        self._core = core

    def finish(self, outcome: Any) -> None:
        """`outcome` is the index, or why there is none."""
        if not isinstance(outcome, RaftError):
            self.answer.set(msg.ReadIndexResponse(self._core.term, outcome))
            return
        error = msg.ConsensusError(msg.ConsensusErrorCode.NOT_THE_LEADER, str(outcome))
        self.answer.set(msg.ReadIndexResponse(error=error))


class _ForceWaiter:
    """The answer to an administrator who overrules votes (see `machine.Waiter`)."""

    def __init__(self) -> None:
        self.answer = Answer()
        self.term = 0

    def finish(self, outcome: Any) -> None:
        """It is durable, or `outcome` is the error."""
        error = _error_of(outcome) if isinstance(outcome, RaftError) else None
        self.answer.set(msg.UnsafeChangeConfigResponse(error))


class _ChangeWaiter:
    """The answer to a change, as somebody who waits for it (see `machine.Waiter`)."""

    def __init__(self, core: RaftCore) -> None:
        self.answer = Answer()
        self.term = 0
        self._core = core

    def finish(self, outcome: Any) -> None:
        """The change has committed, or `outcome` is the error."""
        if not isinstance(outcome, RaftError):
            self.answer.set(msg.ChangeConfigResponse(self._core.configs.committed))
            return
        self.answer.set(msg.ChangeConfigResponse(error=_error_of(outcome)))


def _error_of(outcome: RaftError) -> msg.ConsensusError:
    """Why a configuration was not changed, or may not have been."""
    if isinstance(outcome, ConfigRefusedError):
        code = outcome.code
    elif isinstance(outcome, IndeterminateError):
        code = msg.ConsensusErrorCode.ABORTED
    else:
        code = msg.ConsensusErrorCode.NOT_THE_LEADER
    return msg.ConsensusError(code, str(outcome))
