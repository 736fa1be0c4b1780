"""The outgoing side of a replica: updates, snapshots, and the votes it asks for."""

from __future__ import annotations

import asyncio
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from targets.kudu.raft import events as ev
from targets.kudu.raft import messages as msg
from targets.kudu.raft.cmeta import Snapshot
from targets.kudu.rpc import RpcError

if TYPE_CHECKING:
    from targets.kudu.raft.replica import Replica

__all__ = ["SNAPSHOT_BYTES_MAX", "Senders", "ask_to_run", "ask_vote"]

SNAPSHOT_BYTES_MAX: Final = 1 << 28
"""The largest snapshot that is sent or accepted."""
_BYTES_PER_S_MIN: Final = 64 * 1024
"""The slowest link a request is given time for, on top of its base timeout."""
_CHUNK_RETRIES_MAX: Final = 16


class Senders:
    """Carries out `SendUpdate` and `SendSnapshot`; the core has one of them under way per peer.

    Time limits are short of `consensus_rpc_timeout_ms` where the request is small: an update may be
    repeated at will, and a request that fell into a black hole must not keep the peer waiting for
    long after the cut has healed.
    """

    def __init__(self, replica: Replica) -> None:
        flags = replica.flags
        self._replica = replica
        self._timeout_max_s = flags.consensus_rpc_timeout_ms / 1000
        periods = 2 * flags.leader_failure_max_missed_heartbeat_periods
        self._timeout_base_s = min(
            flags.raft_heartbeat_interval_ms * periods / 1000, self._timeout_max_s
        )
        self._transfers: dict[str, asyncio.Task[Any]] = {}  # of snapshots, by peer

    def drop(self) -> None:
        """End the transfers of snapshots. Updates under way end by themselves, and the core
        ignores answers to requests it no longer waits for.
        """
        for transfer in self._transfers.values():
            transfer.cancel()
        self._transfers.clear()

    def _timeout_s(self, size: int) -> float:
        return min(self._timeout_base_s + size / _BYTES_PER_S_MIN, self._timeout_max_s)

    def send_update(self, effect: ev.SendUpdate) -> None:
        """Send entries or a heartbeat, without a task."""
        entries = effect.request.entries
        timeout_s = self._timeout_base_s
        if entries:
            timeout_s = self._timeout_s(sum(len(entry.payload) for entry in entries))
        self._replica.rpc_client.start(
            effect.address,
            "ConsensusService.UpdateConsensus",
            effect.request,
            msg.UpdateConsensusResponse,
            partial(self._update_ended, effect),
            timeout_s=timeout_s,
        )

    def _update_ended(
        self, effect: ev.SendUpdate, outcome: msg.UpdateConsensusResponse | RpcError
    ) -> None:
        # After an error the core tries again with the next heartbeat.
        response = None if isinstance(outcome, RpcError) else outcome
        self._replica.step(ev.UpdateAnswered(effect.peer_uuid, effect.request_id, response))

    def send_snapshot(self, effect: ev.SendSnapshot) -> None:
        """Send the snapshot on disk, in chunks, in a task."""
        before = self._transfers.get(effect.peer_uuid)
        if before is not None:
            before.cancel()
        self._transfers[effect.peer_uuid] = self._replica.env.spawn(
            self._transfer(effect), name=f"snapshot for {effect.peer_uuid}"
        )

    async def _transfer(self, effect: ev.SendSnapshot) -> None:
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
