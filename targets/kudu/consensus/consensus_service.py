"""The receiving side of consensus: one `ConsensusService` per server, `ConsensusCalls` per group.

The service checks that a call is for this server (`dest_uuid`), and routes it to its group
(`tablet_id`). It thereby refuses a call for a former server at the same address (KUDU-1613).

Handling a call needs no task: if an answer must wait for the disk, the step that handles the end of
the sync sends the answer. Snapshots arrive in chunks. The receiver asks again for a missing chunk.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec

from harness.env import Env
from targets.kudu.consensus import events as ev
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.consensus_peers import SNAPSHOT_BYTES_MAX
from targets.kudu.consensus.errors import ConfigRefusedError, IndeterminateError, RaftError
from targets.kudu.consensus.raft_core import RaftCore, Role
from targets.kudu.flags import Flags
from targets.kudu.rpc import Answer, RpcClient, RpcHandlerError, RpcServer
from targets.kudu.rpc.server import request_type_of

_WAITING_MAX: Final = 4096
_Handle = Callable[["ConsensusCalls", Any], msgspec.Struct | Answer]
_Vote = Callable[[msg.RequestConsensusVoteRequest], Answer]
_Code = msg.ConsensusErrorCode

MissingGroupHook = Callable[[msg.StartTabletCopyRequest], Awaitable[msg.ConsensusError | None]]
"""A hook that creates an empty replica from `request.superblock`, with `request.config`.

The server's owner provides the hook. The hook first stops the tablet's `TombstonedVoter`, if there
is one. It returns None, or the reason why it created no replica: TABLET_NOT_FOUND if the tablet was
deleted on this server for good, ALREADY_INPROGRESS during another transition of the tablet.
"""


class ConsensusService:
    """Serves `ConsensusService.*` on `rpc_server`, and routes calls to replicas.

    The owner sets `on_missing_group` if tablets can be copied to this server. Masters leave it
    unset, because their system tablet cannot be replaced by a copy while they run (KUDU-2748).
    """

    def __init__(
        self,
        env: Env,
        rpc_server: RpcServer,
        rpc_client: RpcClient,
        local_uuid: str,
        flags: Flags,
        *,
        leaders_need_names: bool = False,
    ) -> None:
        """Serve no group at first.

        With `leaders_need_names` (the defect KUDU-2302), a replica ends the node if it cannot
        resolve a peer's address during an election.
        """
        self.env = env
        self.leaders_need_names = leaders_need_names
        self.rpc_client = rpc_client
        self.local_uuid = local_uuid
        self.flags = flags
        self.on_missing_group: MissingGroupHook | None = None
        self._calls: dict[str, ConsensusCalls] = {}
        self._failed: dict[str, str] = {}
        self._put_off = rpc_server.put_off
        self._tombstones: dict[str, tuple[_Vote, msg.OpId]] = {}
        for handle, request_type in _HANDLERS:
            rpc_server.serve(partial(self._route, handle), request_type)
        rpc_server.serve(self._start_copy)

    def add(self, group_id: str, calls: ConsensusCalls) -> None:
        """Route the group's calls to `calls` from now on (`Replica.start` calls this method)."""
        assert group_id not in self._calls, f"{group_id} is served already"
        self._failed.pop(group_id, None)
        self._calls[group_id] = calls

    def add_tombstone(self, group_id: str, vote: _Vote, last_logged: msg.OpId) -> None:
        """Let the group's tombstone answer vote requests, and refuse the group's other calls."""
        assert group_id not in self._calls, f"{group_id} has a replica"
        self._tombstones[group_id] = (vote, last_logged)

    def remove(self, group_id: str) -> None:
        """Answer the group's calls with TABLET_NOT_FOUND from now on. Safe to call twice."""
        self._calls.pop(group_id, None)
        self._failed.pop(group_id, None)
        self._tombstones.pop(group_id, None)

    def fail(self, group_id: str, reason: str) -> None:
        """Answer the group's calls with TABLET_FAILED, so that its leader replaces this replica."""
        self._calls.pop(group_id, None)
        self._failed[group_id] = reason

    def _route(self, handle: _Handle, request: Any, _peer: str) -> msgspec.Struct | Answer:
        calls = self._calls.get(request.tablet_id)
        if calls is not None and request.dest_uuid == self.local_uuid:
            answer = handle(calls, request)
            if isinstance(answer, msg.InstallSnapshotResponse) and not answer.installed:
                self._put_off[request.method] += 1  # one of several chunks, or a refusal
            return answer
        if calls is None and type(request) is msg.RequestConsensusVoteRequest:
            tombstone = self._tombstones.get(request.tablet_id)
            if tombstone is not None and request.dest_uuid == self.local_uuid:
                vote, _ = tombstone
                return vote(request)
        answer_type, error = request.answer_type, self._refusal(request)
        if "responder_uuid" in answer_type.__struct_fields__:
            return answer_type(self.local_uuid, error=error)  # type: ignore[no-any-return]
        return answer_type(error=error)  # type: ignore[no-any-return]

    def _refusal(self, request: msg.ConsensusCall[Any]) -> msg.ConsensusError:
        tablet_id = request.tablet_id
        if request.dest_uuid != self.local_uuid:
            message = f"this is {self.local_uuid}, not {request.dest_uuid}"
            return msg.ConsensusError(_Code.WRONG_SERVER_UUID, message)
        if tablet_id in self._failed:
            message = f"tablet {tablet_id} failed here: {self._failed[tablet_id]}"
            return msg.ConsensusError(_Code.TABLET_FAILED, message)
        return msg.ConsensusError(_Code.TABLET_NOT_FOUND, f"no tablet {tablet_id} here")

    def _stale(self, request: msg.StartTabletCopyRequest) -> msg.ConsensusError | None:
        """Refuse a caller whose term is older than the last entry of the removed log."""
        _, last = self._tombstones.get(request.tablet_id, (None, msg.OpId(0, 0)))
        if last.term <= request.caller_term:
            return None
        message = f"the tombstone has logged {last}, the caller leads term {request.caller_term}"
        return msg.ConsensusError(_Code.INVALID_TERM, message)

    async def _start_copy(
        self, request: msg.StartTabletCopyRequest, _peer: str
    ) -> msg.StartTabletCopyResponse:
        error = None
        if request.dest_uuid != self.local_uuid:
            error = self._refusal(request)
        elif self.on_missing_group is None:
            error = msg.ConsensusError(_Code.UNKNOWN, "this server accepts no tablet copies")
        elif request.tablet_id not in self._calls:
            error = self._stale(request) or await self.on_missing_group(request)
        if error is not None:
            self._put_off[request.method] += 1
        return msg.StartTabletCopyResponse(error)


@dataclasses.dataclass(slots=True)
class _Incoming:
    """The chunks of a snapshot that have arrived so far."""

    key: tuple[Any, ...]
    data: bytearray = dataclasses.field(default_factory=bytearray)


class ConsensusCalls:
    """Handles the consensus calls to one replica; changes its `core` only through `step`."""

    def __init__(self, core: RaftCore, step: Callable[[ev.Event], None]) -> None:
        self._core = core
        self._step = step
        self._waiting: deque[Answer] = deque()
        self._incoming: _Incoming | None = None

    def stop(self) -> None:
        while self._waiting:
            self._waiting.popleft().set(RpcHandlerError("the replica was stopped"))

    def vote(self, request: msg.RequestConsensusVoteRequest) -> Answer:
        reply = Answer()
        self._step(ev.VoteRequested(request, reply))
        return self._outcome(reply)

    def update(self, request: msg.UpdateConsensusRequest) -> Answer:
        """Handle a leader's heartbeat or entries; acknowledge entries once they are durable."""
        reply = Answer()
        self._step(ev.UpdateRequested(request, reply))
        return self._outcome(reply)

    def _outcome(self, reply: Answer) -> Answer:
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
        """Handle one chunk of a leader's snapshot; after the last chunk install the snapshot."""
        if request.caller_term < self._core.term or request.total_size > SNAPSHOT_BYTES_MAX:
            code, message = _Code.INVALID_TERM, f"term {request.caller_term} has ended"
            if request.caller_term >= self._core.term:
                code = _Code.CANNOT_PREPARE
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
            return None  # the answer tells the sender to begin again at offset 0
        return data

    def step_down(self, request: msg.LeaderStepDownRequest) -> msg.LeaderStepDownResponse:
        """Give up or transfer leadership at an administrator's request."""
        error = self._not_leading() or self._bad_successor(request)
        if error is None and request.new_leader_uuid != self._core.uuid:
            self._step(ev.StepDown(request.mode, request.new_leader_uuid))
        return msg.LeaderStepDownResponse(error)

    def _not_leading(self) -> msg.ConsensusError | None:
        if self._core.role is Role.LEADER:
            return None
        message = f"not the leader; that is {self._core.leader_uuid or 'unknown'}"
        return msg.ConsensusError(_Code.NOT_THE_LEADER, message)

    def _bad_successor(self, request: msg.LeaderStepDownRequest) -> msg.ConsensusError | None:
        """Return an error if the successor is invalid (checks of Kudu's `TransferLeadership`)."""
        uuid, voters = request.new_leader_uuid, self._core.configs.voters
        if request.mode is msg.StepDownMode.ABRUPT:
            message = "an ABRUPT step-down cannot name a successor; use GRACEFUL"
            bad = uuid is not None
        elif uuid is None:
            message = "there is no other voter"
            bad = not set(voters) - {self._core.uuid}
        else:
            message = f"{uuid} is not a voter, so it cannot lead"
            bad = uuid not in voters
        return msg.ConsensusError(_Code.INVALID_CONFIG, message) if bad else None

    def run_election(self, request: msg.RunLeaderElectionRequest) -> msg.RunLeaderElectionResponse:
        """Run for leader now, even if the leader is alive; ignored if this replica leads."""
        del request
        self._step(ev.RunElection())
        return msg.RunLeaderElectionResponse()

    def change_config(self, request: msg.ChangeConfigRequest) -> Answer:
        """Change one member of the group. The answer is sent once the change has committed."""
        return self._change((request.change,), request.cas_config_opid_index)

    def bulk_change_config(self, request: msg.BulkChangeConfigRequest) -> Answer:
        return self._change(request.changes, request.cas_config_opid_index)

    def _change(self, changes: tuple[msg.PeerChange, ...], cas: int | None) -> Answer:
        def answer_of(outcome: object) -> msg.ChangeConfigResponse:
            if isinstance(outcome, RaftError):
                return msg.ChangeConfigResponse(error=_error_of(outcome))
            return msg.ChangeConfigResponse(self._core.configs.committed)

        waiter = _AnswerWaiter(answer_of)
        self._step(ev.ChangeConfig(changes, cas, waiter))
        return self._outcome(waiter.answer)

    def unsafe_change_config(self, request: msg.UnsafeChangeConfigRequest) -> Answer:
        """Remove all members except `member_uuids` by force.

        The answer is sent when the change is durable on this replica.
        """

        def answer_of(outcome: object) -> msg.UnsafeChangeConfigResponse:
            error = _error_of(outcome) if isinstance(outcome, RaftError) else None
            return msg.UnsafeChangeConfigResponse(error)

        waiter = _AnswerWaiter(answer_of)
        self._step(ev.ForceConfig(request.member_uuids, waiter))
        return self._outcome(waiter.answer)

    def read_index(self, request: msg.ReadIndexRequest) -> Answer:
        """Confirm for a follower's read that this replica leads, by asking a majority."""
        del request

        def answer_of(outcome: Any) -> msg.ReadIndexResponse:
            if not isinstance(outcome, RaftError):
                return msg.ReadIndexResponse(self._core.term, outcome)
            error = msg.ConsensusError(_Code.NOT_THE_LEADER, str(outcome))
            return msg.ReadIndexResponse(error=error)

        waiter = _AnswerWaiter(answer_of)
        self._step(ev.ReadRequested(waiter))
        return self._outcome(waiter.answer)

    def last_opid(self, request: msg.GetLastOpIdRequest) -> msg.GetLastOpIdResponse:
        """Return the `OpId` of the last entry of this log, or of its committed part."""
        log = self._core.log
        if request.opid_type is msg.OpIdType.RECEIVED:
            return msg.GetLastOpIdResponse(log.last)
        return msg.GetLastOpIdResponse(msg.OpId(log.term_at(log.commit_index), log.commit_index))

    def state(self, request: msg.GetConsensusStateRequest) -> msg.GetConsensusStateResponse:
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


_HANDLERS: Final = tuple(
    (handle, request_type_of(handle))
    for handle in (
        ConsensusCalls.vote,
        ConsensusCalls.update,
        ConsensusCalls.snapshot,
        ConsensusCalls.state,
        ConsensusCalls.step_down,
        ConsensusCalls.run_election,
        ConsensusCalls.change_config,
        ConsensusCalls.bulk_change_config,
        ConsensusCalls.unsafe_change_config,
        ConsensusCalls.read_index,
        ConsensusCalls.last_opid,
    )
)


class _AnswerWaiter:
    """Like `applier.Waiter`, but sends the core's outcome as the answer to a call."""

    def __init__(self, answer_of: Callable[[Any], msgspec.Struct]) -> None:
        self.answer = Answer()
        self.term = 0
        self._answer_of = answer_of

    def finish(self, outcome: object) -> None:
        self.answer.set(self._answer_of(outcome))


def _error_of(outcome: RaftError) -> msg.ConsensusError:
    if isinstance(outcome, ConfigRefusedError):
        code = outcome.code
    elif isinstance(outcome, IndeterminateError):
        code = _Code.ABORTED
    else:
        code = _Code.NOT_THE_LEADER
    return msg.ConsensusError(code, str(outcome))
