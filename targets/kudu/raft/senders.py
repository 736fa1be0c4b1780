"""The outgoing side of a replica: one task per peer while it leads, one per vote it asks for."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Final

from targets.kudu.raft import events as ev
from targets.kudu.raft import messages as msg
from targets.kudu.raft.cmeta import Snapshot
from targets.kudu.rpc import RpcError

if TYPE_CHECKING:
    from targets.kudu.raft.replica import Replica

__all__ = ["SNAPSHOT_BYTES_MAX", "PeerSender", "ask_to_run", "ask_vote"]

SNAPSHOT_BYTES_MAX: Final = 1 << 28
"""The largest snapshot that is sent or accepted."""
_BYTES_PER_S_MIN: Final = 64 * 1024
"""The slowest link a request is given time for, on top of its base timeout."""
_CHUNK_RETRIES_MAX: Final = 16


class PeerSender:
    """Carries out `SendUpdate` and `SendSnapshot` for one peer, one after another.

    Time limits are short of `consensus_rpc_timeout_ms` where the request is small: an update may be
    repeated at will, and a request that fell into a black hole must not keep the peer waiting for
    long after the cut has healed.
    """

    def __init__(self, replica: Replica, peer_uuid: str) -> None:
        self._replica = replica
        self._peer_uuid = peer_uuid
        self._effect: ev.SendUpdate | ev.SendSnapshot | None = None
        self._wake: asyncio.Future[None] | None = None
        self._task = replica.env.spawn(self._run(), name=f"peer {peer_uuid}")

    def put(self, effect: ev.SendUpdate | ev.SendSnapshot) -> None:
        """Send next; the core has one outstanding request per peer, so at most one waits."""
        self._effect = effect
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def cancel(self) -> None:
        """End the task; an answer under way is lost."""
        self._task.cancel()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if self._effect is None:
                self._wake = loop.create_future()
                await self._wake
                self._wake = None
                continue
            effect, self._effect = self._effect, None
            if isinstance(effect, ev.SendUpdate):
                await self._send_update(effect)
            else:
                await self._send_snapshot(effect)

    def _timeout_s(self, size: int) -> float:
        flags = self._replica.flags
        base_s = (
            2 * flags.raft_heartbeat_interval_ms * flags.leader_failure_max_missed_heartbeat_periods
        ) / 1000
        return min(base_s + size / _BYTES_PER_S_MIN, flags.consensus_rpc_timeout_ms / 1000)

    async def _send_update(self, effect: ev.SendUpdate) -> None:
        size = sum(len(entry.payload) for entry in effect.request.entries)
        response: msg.UpdateConsensusResponse | None = None
        try:
            response = await self._replica.rpc_client.call(
                effect.address,
                "ConsensusService.UpdateConsensus",
                effect.request,
                msg.UpdateConsensusResponse,
                timeout_s=self._timeout_s(size),
            )
        except RpcError:
            response = None  # the core tries again with the next heartbeat
        self._replica.step(ev.UpdateAnswered(effect.peer_uuid, effect.request_id, response))

    async def _send_snapshot(self, effect: ev.SendSnapshot) -> None:
        snapshot = await self._replica.load_snapshot()
        last_included = msg.OpId(0, 0) if snapshot is None else snapshot.last_included
        response: msg.InstallSnapshotResponse | None = None
        if snapshot is not None and len(snapshot.data) <= SNAPSHOT_BYTES_MAX:
            try:
                response = await self._send_chunks(effect, snapshot)
            except RpcError:
                response = None  # as above
        self._replica.step(
            ev.SnapshotSent(effect.peer_uuid, effect.request_id, last_included, response)
        )

    async def _send_chunks(
        self, effect: ev.SendSnapshot, snapshot: Snapshot
    ) -> msg.InstallSnapshotResponse | None:
        """Send until installed or refused; None when the peer keeps asking for the same."""
        flags = self._replica.flags
        chunk_bytes = max(1, min(flags.consensus_max_batch_size_bytes, flags.rpc_max_message_size))
        crc = zlib.crc32(snapshot.data)
        offset = 0
        for _ in range(len(snapshot.data) // chunk_bytes + 1 + _CHUNK_RETRIES_MAX):
            data = snapshot.data[offset : offset + chunk_bytes]
            request = msg.InstallSnapshotRequest(
                dest_uuid=effect.peer_uuid,
                tablet_id=self._replica.group_id,
                caller_uuid=self._replica.local_uuid,
                caller_term=effect.term,
                last_included=snapshot.last_included,
                config=snapshot.config,
                digest=snapshot.digest,
                total_size=len(snapshot.data),
                crc=crc,
                offset=offset,
                data=data,
            )
            is_last = offset + len(data) >= len(snapshot.data)
            response = await self._replica.rpc_client.call(
                effect.address,
                "ConsensusService.InstallSnapshot",
                request,
                msg.InstallSnapshotResponse,
                timeout_s=self._timeout_s(len(snapshot.data) if is_last else len(data)),
            )
            if response.installed or response.error is not None:
                return response
            self._replica.step(ev.SnapshotProgress(effect.peer_uuid, effect.request_id))
            offset = min(max(0, response.next_offset), len(snapshot.data))
        return None


async def ask_vote(replica: Replica, effect: ev.SendVote, timeout_s: float) -> None:
    """Ask one voter, once."""
    response: msg.RequestConsensusVoteResponse | None = None
    try:
        response = await replica.rpc_client.call(
            effect.address,
            "ConsensusService.RequestConsensusVote",
            effect.request,
            msg.RequestConsensusVoteResponse,
            timeout_s=timeout_s,
        )
    except RpcError:
        response = None  # silence is neither yes nor no; the election timer goes on
    replica.step(ev.VoteAnswered(effect.election_id, effect.peer_uuid, response))


async def ask_to_run(replica: Replica, effect: ev.SendRunElection, timeout_s: float) -> bool:
    """Ask a peer to run for leader; false when it could not be asked (then a timer elects)."""
    request = msg.RunLeaderElectionRequest(effect.peer_uuid, replica.group_id)
    try:
        response = await replica.rpc_client.call(
            effect.address,
            "ConsensusService.RunLeaderElection",
            request,
            msg.RunLeaderElectionResponse,
            timeout_s=timeout_s,
        )
    except RpcError:
        return False
    return response.error is None
