"""The auto-rebalancer: the leading master moves replicas from full tablet servers to empty ones.

The code follows Kudu's `master/auto_rebalancer.cc`, which is off by default
(`auto_rebalancing_enabled`). Each round plans moves, asks the tablets' leaders for them, and waits
until every move has ended. A move marks the old replica `replace`, and adds the new one as a
non-voter that will be promoted. The masters' re-replication then evicts the old replica. If the
answer to the request for a move is lost, the move counts as not begun, as in Kudu.

A move has failed once its new replica is no longer a member, for example because its server died.
The mark must then be removed, or the masters would still replace the old replica. The tablet's
leader may be busy or unreachable at that moment, so later rounds try again. (Kudu tried only once:
KUDU-3789.) Marks from a former leader of the masters are not removed, as in Kudu: the masters
complete such a replacement.
"""

from __future__ import annotations

import asyncio
from typing import Final

from targets.kudu.bugs import Bug
from targets.kudu.consensus import messages as raft
from targets.kudu.context import NodeContext
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.tablets.rebalancing import Progress, ReplicaMove, plan_moves, progress_of
from targets.kudu.master.tablets.ts_manager import TServerMap, available
from targets.kudu.messages import PeerConfig
from targets.kudu.rpc import R_co, RpcError

CLEAR_ATTEMPTS: Final = 3
_CLEAR_PAUSE_S: Final = 0.1
_NOTHING_TO_CLEAR: Final = raft.ConsensusErrorCode.INVALID_CONFIG


class AutoRebalancer:
    """The rebalancer of one leadership of the masters."""

    def __init__(self, node: NodeContext, epoch: Epoch, tservers: TServerMap) -> None:
        self._node = node
        self._epoch = epoch
        self._tservers = tservers
        self._timeout_s = float(node.flags.auto_rebalancing_rpc_timeout_seconds)
        self._marked: list[ReplicaMove] = []  # failed moves whose mark must still be removed

    async def run(self) -> None:
        """Run rounds until the leadership ends."""
        flags = self._node.flags
        while self._epoch.is_current():
            await asyncio.sleep(flags.auto_rebalancing_interval_seconds)
            self._marked = [move for move in self._marked if not await self._clear(move)]
            moves = [move for move in self._plan() if await self._begin(move)]
            while moves and self._epoch.is_current():
                await asyncio.sleep(flags.auto_rebalancing_wait_for_replica_moves_seconds)
                moves = [move for move in moves if await self._goes_on(move)]

    def _plan(self) -> list[ReplicaMove]:
        node, catalog = self._node, self._epoch.catalog
        now_ns = node.env.clock.monotonic_ns()
        servers = available(catalog, self._tservers, node.flags, now_ns)
        return plan_moves(
            catalog, [server.uuid for server in servers], node.flags, rng=node.env.random
        )

    async def _begin(self, move: ReplicaMove) -> bool:
        target = self._tservers.get(move.target)
        if target is None:
            return False
        newcomer = PeerConfig(move.target, target.address, "NON_VOTER", promote=True)
        changes = (
            raft.PeerChange(raft.ChangeType.MODIFY_PEER, _source(move, replace=True)),
            raft.PeerChange(raft.ChangeType.ADD_PEER, newcomer),
        )
        names = {"source": move.source, "target": move.target}
        self._node.env.event("replica-move", tablet=move.tablet_id, **names)
        answer = await self._change(move.tablet_id, changes, move.config_index)
        return answer is None

    async def _goes_on(self, move: ReplicaMove) -> bool:
        match progress_of(self._epoch.catalog, move):
            case Progress.DONE:
                return False
            case Progress.LEADER_MUST_GO:
                mode = raft.StepDownMode.GRACEFUL
                await self._ask(raft.LeaderStepDownRequest(move.source, move.tablet_id, mode))
                return True
            case Progress.FAILED:
                self._node.env.event("replica-move-failed", tablet=move.tablet_id)
                await self._end_failed(move)
                return False
            case Progress.UNDER_WAY:
                return True

    async def _end_failed(self, move: ReplicaMove) -> None:
        if Bug.KUDU_3789 in self._node.bugs:
            await self._unmark(move, None)
            return
        for attempt in range(CLEAR_ATTEMPTS):
            if await self._clear(move):
                return
            await asyncio.sleep(_CLEAR_PAUSE_S * 2**attempt)
        self._marked.append(move)

    async def _clear(self, move: ReplicaMove) -> bool:
        """Remove the mark of a failed move; return whether it is certainly gone.

        The change applies only to the leader's configuration that was read just before. A mark that
        was set meanwhile, for another reason, therefore remains.
        """
        leader = self._leader(move.tablet_id)
        if leader is None:
            return False
        seen = await self._ask(raft.GetConsensusStateRequest(leader, move.tablet_id))
        if seen is None or seen.error is not None or seen.committed_config is None:
            return False
        config = seen.committed_config
        if not any(peer.uuid == move.source and peer.replace for peer in config.peers):
            return True
        return await self._unmark(move, config.opid_index)

    async def _unmark(self, move: ReplicaMove, config_index: int | None) -> bool:
        change = raft.PeerChange(raft.ChangeType.MODIFY_PEER, _source(move, replace=False))
        code = await self._change(move.tablet_id, (change,), config_index)
        return code in {None, _NOTHING_TO_CLEAR}

    async def _change(
        self, tablet_id: str, changes: tuple[raft.PeerChange, ...], config_index: int | None
    ) -> raft.ConsensusErrorCode | None:
        leader = self._leader(tablet_id)
        if leader is None:
            return raft.ConsensusErrorCode.NOT_THE_LEADER
        answer = await self._ask(
            raft.BulkChangeConfigRequest(leader, tablet_id, changes, config_index)
        )
        if answer is None:
            return raft.ConsensusErrorCode.UNKNOWN
        return None if answer.error is None else answer.error.code

    def _leader(self, tablet_id: str) -> str | None:
        tablet = self._epoch.catalog.tablets.get(tablet_id)
        return None if tablet is None or tablet.consensus is None else tablet.consensus.leader_uuid

    async def _ask(self, request: raft.ConsensusCall[R_co]) -> R_co | None:
        server = self._tservers.get(request.dest_uuid)
        if server is None:
            return None
        try:
            return await self._node.rpc.call(server.address, request, timeout_s=self._timeout_s)
        except RpcError:
            return None


def _source(move: ReplicaMove, *, replace: bool) -> PeerConfig:
    return PeerConfig(move.source, "", "VOTER", replace=replace)
