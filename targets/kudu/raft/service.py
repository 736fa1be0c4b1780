"""`ConsensusService`: one per server, in front of all its Raft groups.

Calls are routed by group (`tablet_id`) after the server's identity (`dest_uuid`) was checked, so a
request meant for a predecessor at the same address is refused (KUDU-1613 and its kin).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from harness.env import Env
from targets.kudu.flags import Flags
from targets.kudu.raft import messages as msg
from targets.kudu.rpc import Answer, Handler, RpcClient, RpcServer

if TYPE_CHECKING:
    from targets.kudu.raft.replica import Replica

__all__ = ["ConsensusService"]


class _Addressed(Protocol):
    """What every consensus request carries."""

    @property
    def dest_uuid(self) -> str: ...

    @property
    def tablet_id(self) -> str: ...


class ConsensusService:
    """Registers `ConsensusService.*` on `rpc_server` and routes its calls to replicas."""

    def __init__(
        self, env: Env, rpc_server: RpcServer, rpc_client: RpcClient, local_uuid: str, flags: Flags
    ) -> None:
        self.env = env
        self.rpc_client = rpc_client
        self.local_uuid = local_uuid
        self.flags = flags
        self._replicas: dict[str, Replica] = {}
        handlers: dict[str, Handler] = {
            "RequestConsensusVote": self._request_consensus_vote,
            "UpdateConsensus": self._update_consensus,
            "InstallSnapshot": self._install_snapshot,
            "GetConsensusState": self._get_consensus_state,
            "LeaderStepDown": self._leader_step_down,
            "RunLeaderElection": self._run_leader_election,
        }
        for name, handler in handlers.items():
            method = f"ConsensusService.{name}"
            rpc_server.register(method, handler, msg.METHODS[method][0])

    def add(self, replica: Replica) -> None:
        """Route calls for `replica.group_id` to it (`Replica.start` does it by itself)."""
        assert replica.group_id not in self._replicas, f"{replica.group_id} is served already"
        self._replicas[replica.group_id] = replica

    def remove(self, tablet_id: str) -> None:
        """Stop routing; calls are answered with TABLET_NOT_FOUND. Safe to call twice."""
        self._replicas.pop(tablet_id, None)

    def _find(self, request: _Addressed) -> Replica | msg.ConsensusError:
        if request.dest_uuid != self.local_uuid:
            message = f"this is {self.local_uuid}, not {request.dest_uuid}"
            return msg.ConsensusError(msg.ConsensusErrorCode.WRONG_SERVER_UUID, message)
        replica = self._replicas.get(request.tablet_id)
        if replica is None:
            message = f"no tablet {request.tablet_id} here"
            return msg.ConsensusError(msg.ConsensusErrorCode.TABLET_NOT_FOUND, message)
        return replica

    def _request_consensus_vote(
        self, request: msg.RequestConsensusVoteRequest, peer: str
    ) -> msg.RequestConsensusVoteResponse | Answer:
        del peer
        replica = self._find(request)
        if isinstance(replica, msg.ConsensusError):
            return msg.RequestConsensusVoteResponse(self.local_uuid, 0, False, replica)
        return replica.calls.vote(request)

    def _update_consensus(
        self, request: msg.UpdateConsensusRequest, peer: str
    ) -> msg.UpdateConsensusResponse | Answer:
        del peer
        replica = self._find(request)
        if isinstance(replica, msg.ConsensusError):
            return msg.UpdateConsensusResponse(self.local_uuid, 0, error=replica)
        return replica.calls.update(request)

    def _install_snapshot(
        self, request: msg.InstallSnapshotRequest, peer: str
    ) -> msg.InstallSnapshotResponse | Answer:
        del peer
        replica = self._find(request)
        if isinstance(replica, msg.ConsensusError):
            return msg.InstallSnapshotResponse(self.local_uuid, 0, error=replica)
        return replica.calls.snapshot(request)

    def _get_consensus_state(
        self, request: msg.GetConsensusStateRequest, peer: str
    ) -> msg.GetConsensusStateResponse:
        del peer
        replica = self._find(request)
        if isinstance(replica, msg.ConsensusError):
            return msg.GetConsensusStateResponse(self.local_uuid, error=replica)
        return replica.calls.state()

    def _leader_step_down(
        self, request: msg.LeaderStepDownRequest, peer: str
    ) -> msg.LeaderStepDownResponse:
        del peer
        replica = self._find(request)
        if isinstance(replica, msg.ConsensusError):
            return msg.LeaderStepDownResponse(replica)
        if replica.role != "LEADER":
            message = f"not the leader; that is {replica.leader_uuid or 'unknown'}"
            code = msg.ConsensusErrorCode.NOT_THE_LEADER
            return msg.LeaderStepDownResponse(msg.ConsensusError(code, message))
        replica.step_down(new_leader_uuid=request.new_leader_uuid)
        return msg.LeaderStepDownResponse()

    def _run_leader_election(
        self, request: msg.RunLeaderElectionRequest, peer: str
    ) -> msg.RunLeaderElectionResponse:
        del peer
        replica = self._find(request)
        if isinstance(replica, msg.ConsensusError):
            return msg.RunLeaderElectionResponse(replica)
        replica.run_election()
        return msg.RunLeaderElectionResponse()
