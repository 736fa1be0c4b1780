"""`ConsensusService`: one per server, in front of all its Raft groups.

Calls are routed by group (`tablet_id`) after the server's identity (`dest_uuid`) was checked, so a
request meant for a predecessor at the same address is refused (KUDU-1613 and its kin).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from harness.env import Env
from targets.kudu.flags import Flags
from targets.kudu.raft import messages as msg
from targets.kudu.raft.calls import ConsensusCalls
from targets.kudu.rpc import Answer, RpcClient, RpcServer

__all__ = ["ConsensusService"]

_Handle = Callable[[ConsensusCalls, Any], msgspec.Struct | Answer]
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
}
"""Method -> its request, who handles it, and how it is refused where nobody does."""


class ConsensusService:
    """Registers `ConsensusService.*` on `rpc_server` and routes its calls to replicas."""

    def __init__(
        self, env: Env, rpc_server: RpcServer, rpc_client: RpcClient, local_uuid: str, flags: Flags
    ) -> None:
        self.env = env
        self.rpc_client = rpc_client
        self.local_uuid = local_uuid
        self.flags = flags
        self._calls: dict[str, ConsensusCalls] = {}
        for name, (request_type, handle, refuse) in _METHODS.items():
            handler = partial(self._route, handle, refuse)
            rpc_server.register(f"ConsensusService.{name}", handler, request_type)

    def add(self, group_id: str, calls: ConsensusCalls) -> None:
        """Route the calls of a group (`Replica.start` does it by itself)."""
        assert group_id not in self._calls, f"{group_id} is served already"
        self._calls[group_id] = calls

    def remove(self, group_id: str) -> None:
        """Stop routing; calls are answered with TABLET_NOT_FOUND. Safe to call twice."""
        self._calls.pop(group_id, None)

    def _route(
        self, handle: _Handle, refuse: _Refuse, request: Any, peer: str
    ) -> msgspec.Struct | Answer:
        del peer
        if request.dest_uuid != self.local_uuid:
            message = f"this is {self.local_uuid}, not {request.dest_uuid}"
            error = msg.ConsensusError(msg.ConsensusErrorCode.WRONG_SERVER_UUID, message)
            return refuse(self.local_uuid, error)
        calls = self._calls.get(request.tablet_id)
        if calls is None:
            message = f"no tablet {request.tablet_id} here"
            error = msg.ConsensusError(msg.ConsensusErrorCode.TABLET_NOT_FOUND, message)
            return refuse(self.local_uuid, error)
        return handle(calls, request)
