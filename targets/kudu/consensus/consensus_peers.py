"""Sends a replica's updates, snapshots, vote requests and other calls to its peers."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from harness.env import FRAME_BYTES_MAX, Env
from targets.kudu.consensus import events as ev
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.consensus_meta import Snapshot
from targets.kudu.consensus.tablet_copy import Snapshots
from targets.kudu.flags import Flags
from targets.kudu.rpc import RpcClient, RpcError

SNAPSHOT_BYTES_MAX: Final = 1 << 28
_BYTES_PER_S_MIN: Final = 64 * 1024
_CHUNK_RETRIES_MAX: Final = 16
_CHUNK_BYTES_MIN: Final = 500
"""The minimum size of a snapshot's chunk. Smaller chunks would take too many requests."""
_MESSAGE_OVERHEAD_BYTES: Final = 64 * 1024
"""The maximum size of a message with one entry, without the entry's payload."""


def entry_limit(flags: Flags) -> int:
    """Return the maximum payload of an entry, in bytes, that fits into a message (KUDU-3036)."""
    return min(flags.rpc_max_message_size, FRAME_BYTES_MAX) - _MESSAGE_OVERHEAD_BYTES


class Senders:
    """Carries out the core's `Send...` effects, and passes each outcome to `step` as an event.

    At most one update or snapshot per peer is in flight. Small requests time out earlier than
    `consensus_rpc_timeout_ms`: updates may be repeated safely, and after a partition has healed, a
    peer should not have to wait until a lost request times out.
    """

    def __init__(
        self,
        env: Env,
        client: RpcClient,
        flags: Flags,
        snapshots: Snapshots,
        *,
        group_id: str,
        local_uuid: str,
        vote_timeout_s: float,
        step: Callable[[ev.Event], None],
        spawn: Callable[[Coroutine[Any, Any, Any], str], object],
        copy_source: Callable[[], bytes] | None,
    ) -> None:
        self._env = env
        self._client = client
        self._flags = flags
        self._snapshots = snapshots
        self._group_id = group_id
        self._local_uuid = local_uuid
        self._vote_timeout_s = vote_timeout_s
        self._step = step
        self._spawn = spawn
        self._copy_source = copy_source
        self._timeout_max_s = flags.consensus_rpc_timeout_ms / 1000
        periods = 2 * flags.leader_failure_max_missed_heartbeat_periods
        self._timeout_base_s = min(
            flags.raft_heartbeat_interval_ms * periods / 1000, self._timeout_max_s
        )
        self._transfers: dict[
            str, asyncio.Task[Any]
        ] = {}  # peer uuid -> snapshot transfer to that peer

    def drop(self) -> None:
        """Cancel the running transfers of snapshots."""
        for transfer in self._transfers.values():
            transfer.cancel()
        self._transfers.clear()

    def _timeout_s(self, size: int) -> float:
        return min(self._timeout_base_s + size / _BYTES_PER_S_MIN, self._timeout_max_s)

    def send_update(self, effect: ev.SendUpdate) -> None:
        entries = effect.request.entries
        timeout_s = self._timeout_base_s
        if entries:
            timeout_s = self._timeout_s(sum(len(entry.payload) for entry in entries))
        self._client.start(
            effect.address,
            effect.request,
            partial(self._update_ended, effect),
            timeout_s=timeout_s,
        )

    def _update_ended(
        self, effect: ev.SendUpdate, outcome: msg.UpdateConsensusResponse | RpcError
    ) -> None:
        # After an error the core tries again with the next heartbeat.
        response = None if isinstance(outcome, RpcError) else outcome
        self._step(ev.UpdateAnswered(effect.peer_uuid, effect.request_id, response))

    def send_snapshot(self, effect: ev.SendSnapshot) -> None:
        before = self._transfers.get(effect.peer_uuid)
        if before is not None:
            before.cancel()
        self._transfers[effect.peer_uuid] = self._env.spawn(
            self._transfer(effect), name=f"snapshot for {effect.peer_uuid}"
        )

    async def _transfer(self, effect: ev.SendSnapshot) -> None:
        snapshot = await self._snapshots.load()
        last_included = msg.OpId(0, 0) if snapshot is None else snapshot.last_included
        response: msg.InstallSnapshotResponse | None = None
        if snapshot is not None and len(snapshot.data) <= SNAPSHOT_BYTES_MAX:
            try:
                response = await self._send_chunks(effect, snapshot)
            except RpcError:
                response = None
        self._step(ev.SnapshotSent(effect.peer_uuid, effect.request_id, last_included, response))

    async def _send_chunks(
        self, effect: ev.SendSnapshot, snapshot: Snapshot
    ) -> msg.InstallSnapshotResponse | None:
        """Send the snapshot in chunks until the peer has installed or refused it.

        Return the peer's last response. If the peer asks again and again for earlier chunks, give
        up and return `None`.
        """
        flags = self._flags
        chunk_bytes = min(flags.consensus_max_batch_size_bytes, flags.rpc_max_message_size)
        chunk_bytes = max(_CHUNK_BYTES_MIN, chunk_bytes)
        crc = zlib.crc32(snapshot.data)
        offset = 0
        for _ in range(len(snapshot.data) // chunk_bytes + 1 + _CHUNK_RETRIES_MAX):
            data = snapshot.data[offset : offset + chunk_bytes]
            request = msg.InstallSnapshotRequest(
                dest_uuid=effect.peer_uuid,
                tablet_id=self._group_id,
                caller_uuid=self._local_uuid,
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
            response = await self._client.call(
                effect.address,
                request,
                timeout_s=self._timeout_s(len(snapshot.data) if is_last else len(data)),
            )
            if response.installed or response.error is not None:
                return response
            self._step(ev.SnapshotProgress(effect.peer_uuid, effect.request_id))
            offset = min(max(0, response.next_offset), len(snapshot.data))
        return None

    def send_vote(self, effect: ev.SendVote) -> None:
        self._spawn(self._ask_vote(effect), "vote")

    async def _ask_vote(self, effect: ev.SendVote) -> None:
        response: msg.RequestConsensusVoteResponse | None = None
        try:
            response = await self._client.call(
                effect.address,
                effect.request,
                timeout_s=self._vote_timeout_s,
            )
        except RpcError:
            # A missing answer is no vote. If the election fails, the timer starts another one.
            response = None
        self._step(ev.VoteAnswered(effect.election_id, effect.peer_uuid, response))

    def send_start_copy(self, effect: ev.SendStartCopy) -> None:
        self._spawn(self._ask_for_replica(effect), "copy")

    async def _ask_for_replica(self, effect: ev.SendStartCopy) -> None:
        assert self._copy_source is not None, "the core asks for a copy that has no source"
        superblock = self._copy_source()
        request = msg.StartTabletCopyRequest(
            dest_uuid=effect.peer_uuid,
            tablet_id=self._group_id,
            caller_uuid=self._local_uuid,
            caller_term=effect.term,
            config=effect.config,
            superblock=superblock,
        )
        error: msg.ConsensusError | None
        try:
            response = await self._client.call(
                effect.address,
                request,
                timeout_s=self._timeout_s(len(superblock)),
            )
            error = response.error
        except RpcError as failure:
            error = msg.ConsensusError(msg.ConsensusErrorCode.UNKNOWN, str(failure))
        self._step(ev.CopyStarted(effect.peer_uuid, effect.request_id, error))

    def send_run_election(self, effect: ev.SendRunElection) -> None:
        """Ask a peer once to run for leader. If the call fails, this leader continues to lead."""
        self._spawn(self._ask_to_run(effect), "hand over")

    async def _ask_to_run(self, effect: ev.SendRunElection) -> None:
        request = msg.RunLeaderElectionRequest(effect.peer_uuid, self._group_id)
        with contextlib.suppress(RpcError):
            await self._client.call(
                effect.address,
                request,
                timeout_s=self._vote_timeout_s,
            )
