"""`ConsensusService`: one per server, in front of all its Raft groups.

Calls are routed by group (`tablet_id`) after the server's identity (`dest_uuid`) was checked, so a
request meant for a predecessor at the same address is refused (KUDU-1613 and its kin).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec

from harness.env import Env
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.incoming import ConsensusCalls
from targets.kudu.flags import Flags
from targets.kudu.rpc import Answer, RpcClient, RpcServer

_Handle = Callable[[ConsensusCalls, Any], msgspec.Struct | Answer]
_Vote = Callable[[msg.RequestConsensusVoteRequest], Answer]
_Refuse = Callable[[str, msg.ConsensusError], msgspec.Struct]

_METHODS: Final[dict[str, tuple[type[msgspec.Struct], _Handle, _Refuse]]] = {
    "RequestConsensusVote": (
        msg.RequestConsensusVoteRequest,
        ConsensusCalls.vote,
        lambda uuid, error: msg.RequestConsensusVoteResponse(uuid, 0, False, error),
    ),
    "UpdateConsensus": (
        msg.UpdateConsensusRequest,
        ConsensusCalls.update,
        lambda uuid, error: msg.UpdateConsensusResponse(uuid, 0, error=error),
    ),
    "InstallSnapshot": (
        msg.InstallSnapshotRequest,
        ConsensusCalls.snapshot,
        lambda uuid, error: msg.InstallSnapshotResponse(uuid, 0, error=error),
    ),
    "GetConsensusState": (
        msg.GetConsensusStateRequest,
        ConsensusCalls.state,
        lambda uuid, error: msg.GetConsensusStateResponse(uuid, error=error),
    ),
    "LeaderStepDown": (
        msg.LeaderStepDownRequest,
        ConsensusCalls.step_down,
        lambda _, error: msg.LeaderStepDownResponse(error),
    ),
    "RunLeaderElection": (
        msg.RunLeaderElectionRequest,
        ConsensusCalls.run_election,
        lambda _, error: msg.RunLeaderElectionResponse(error),
    ),
    "ChangeConfig": (
        msg.ChangeConfigRequest,
        ConsensusCalls.change_config,
        lambda _, error: msg.ChangeConfigResponse(error=error),
    ),
    "BulkChangeConfig": (
        msg.BulkChangeConfigRequest,
        ConsensusCalls.bulk_change_config,
        lambda _, error: msg.ChangeConfigResponse(error=error),
    ),
    "UnsafeChangeConfig": (
        msg.UnsafeChangeConfigRequest,
        ConsensusCalls.unsafe_change_config,
        lambda _, error: msg.UnsafeChangeConfigResponse(error),
    ),
    "ReadIndex": (
        msg.ReadIndexRequest,
        ConsensusCalls.read_index,
        lambda _, error: msg.ReadIndexResponse(error=error),
    ),
    "GetLastOpId": (
        msg.GetLastOpIdRequest,
        ConsensusCalls.last_opid,
        lambda _, error: msg.GetLastOpIdResponse(error=error),
    ),
}
"""Method -> its request, who handles it, and how it is refused where nobody does."""


MissingGroupHook = Callable[[msg.StartTabletCopyRequest], Awaitable[msg.ConsensusError | None]]
"""Makes an empty replica for `request.superblock`, with the first configuration `request.config`,
and starts it; over a tombstone in the same folder, whose `TombstonedVoter` it stops before. Or
returns why not: TABLET_NOT_FOUND for what was deleted here for good, ALREADY_INPROGRESS while
something else is done to the tablet."""


class ConsensusService:
    """Registers `ConsensusService.*` on `rpc_server` and routes its calls to replicas.

    `on_missing_group` is the owner's, where tablets can be copied to this server. Masters have
    none: their system tablet cannot be copied to while they run (KUDU-2748).
    """

    def __init__(
        self, env: Env, rpc_server: RpcServer, rpc_client: RpcClient, local_uuid: str, flags: Flags
    ) -> None:
        self.env = env
        self.rpc_client = rpc_client
        self.local_uuid = local_uuid
        self.flags = flags
        self.on_missing_group: MissingGroupHook | None = None
        self._calls: dict[str, ConsensusCalls] = {}
        self._failed: dict[str, str] = {}
        self._tombstones: dict[str, tuple[_Vote, msg.OpId]] = {}
        for name, (request_type, handle, refuse) in _METHODS.items():
            handler = partial(self._route, handle, refuse)
            rpc_server.register(f"ConsensusService.{name}", handler, request_type)
        method = "ConsensusService.StartTabletCopy"
        rpc_server.register(method, self._start_copy, msg.StartTabletCopyRequest)

    def add(self, group_id: str, calls: ConsensusCalls) -> None:
        """Route the calls of a group (`Replica.start` does it by itself)."""
        assert group_id not in self._calls, f"{group_id} is served already"
        self._failed.pop(group_id, None)
        self._calls[group_id] = calls

    def add_tombstone(self, group_id: str, vote: _Vote, last_logged: msg.OpId) -> None:
        """Let a tombstone vote, and nothing else (`TombstonedVoter.start` does it by itself)."""
        assert group_id not in self._calls, f"{group_id} has a replica"
        self._tombstones[group_id] = (vote, last_logged)

    def remove(self, group_id: str) -> None:
        """Stop routing; calls are answered with TABLET_NOT_FOUND. Safe to call twice."""
        self._calls.pop(group_id, None)
        self._failed.pop(group_id, None)
        self._tombstones.pop(group_id, None)

    def fail(self, group_id: str, reason: str) -> None:
        """Answer with TABLET_FAILED from now on: the replica's leader must have it replaced."""
        self._calls.pop(group_id, None)
        self._failed[group_id] = reason

    def _route(
        self, handle: _Handle, refuse: _Refuse, request: Any, peer: str
    ) -> msgspec.Struct | Answer:
        del peer
        calls = self._calls.get(request.tablet_id)
        if calls is not None and request.dest_uuid == self.local_uuid:
            return handle(calls, request)
        if calls is None and type(request) is msg.RequestConsensusVoteRequest:
            tombstone = self._tombstones.get(request.tablet_id)
            if tombstone is not None and request.dest_uuid == self.local_uuid:
                vote, _ = tombstone
                return vote(request)
        return refuse(self.local_uuid, self._refusal(request))

    def _refusal(self, request: Any) -> msg.ConsensusError:
        """Why nobody here handles it."""
        tablet_id = request.tablet_id
        if request.dest_uuid != self.local_uuid:
            message = f"this is {self.local_uuid}, not {request.dest_uuid}"
            return msg.ConsensusError(msg.ConsensusErrorCode.WRONG_SERVER_UUID, message)
        if tablet_id in self._failed:
            message = f"tablet {tablet_id} failed here: {self._failed[tablet_id]}"
            return msg.ConsensusError(msg.ConsensusErrorCode.TABLET_FAILED, message)
        message = f"no tablet {tablet_id} here"
        return msg.ConsensusError(msg.ConsensusErrorCode.TABLET_NOT_FOUND, message)

    def _stale(self, request: msg.StartTabletCopyRequest) -> msg.ConsensusError | None:
        """Refuse a leader of a term that a tombstone here has outlived."""
        _, last = self._tombstones.get(request.tablet_id, (None, msg.OpId(0, 0)))
        if last.term <= request.caller_term:
            return None
        message = f"the tombstone has logged {last}, the caller leads term {request.caller_term}"
        return msg.ConsensusError(msg.ConsensusErrorCode.INVALID_TERM, message)

    async def _start_copy(
        self, request: msg.StartTabletCopyRequest, peer: str
    ) -> msg.StartTabletCopyResponse:
        """Have the owner make an empty replica, unless there is one."""
        del peer
        error = None
        if request.dest_uuid != self.local_uuid:
            error = self._refusal(request)
        elif self.on_missing_group is None:
            message = "no tablet is copied to this server"
            error = msg.ConsensusError(msg.ConsensusErrorCode.UNKNOWN, message)
        elif request.tablet_id not in self._calls:
            error = self._stale(request) or await self.on_missing_group(request)
        return msg.StartTabletCopyResponse(error)
