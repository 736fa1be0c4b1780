"""Calls to tablet servers, retried for a limited time until they take effect or are obsolete.

The code follows Kudu's `RetryingTSRpcTask` (`master/catalog_manager.cc`). Each attempt looks up the
target again, and builds its message from the catalog committed at that moment. If the tablet server
or the tablet's leader is unknown, the call waits instead of giving up (KUDU-1991). A call that is
already pending is not queued again (KUDU-2992). Pending calls are not stored: the next leader finds
unfinished work in tablet reports.

**CreateTablet** is retried even if the tablet already runs on a majority. Otherwise a replica whose
tablet server never received the call would be missing until the tablet's leader copies it. (Kudu
gives up after `tablet_creation_timeout_ms` and relies on the copy.)

**A change of a tablet's configuration** is retried without a time limit. It ends when the change is
done, or when the newest report of the tablet's leader calls for a different change or none. The
background loop then decides again.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from targets.kudu import rpc
from targets.kudu.bugs import Bug
from targets.kudu.consensus import messages as raft
from targets.kudu.context import NodeContext
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.plan import (
    AlterTablet,
    Call,
    ChangeConfig,
    CreateReplica,
    DeleteReplica,
    config_key,
)
from targets.kudu.master.catalog.records import TabletState
from targets.kudu.master.tablets.replacement import AddPeer, EvictPeer, StepDownLeader
from targets.kudu.master.tablets.rereplication import review
from targets.kudu.master.tablets.tablet_reports import is_first_member
from targets.kudu.master.tablets.ts_manager import TServerMap
from targets.kudu.messages import (
    AlterSchemaRequest,
    CreateTabletRequest,
    DeleteTabletRequest,
    PeerConfig,
    TabletErrorCode,
    TabletServerResponse,
)
from targets.kudu.rpc import RpcError
from targets.kudu.wakeup import Wakeup

PENDING_MAX: Final = 10_000
"""Maximum number of pending calls.

Further calls are dropped. Tablet reports and the creation timeout will request them again.
"""

_DONE_CREATE: Final = (TabletErrorCode.TABLET_ALREADY_EXISTS,)
_DONE_DELETE: Final = (
    # ALREADY_INPROGRESS is not final, unlike in Kudu. A deletion during the replica's creation also
    # gets this code, and without a retry the replica would never be deleted.
    TabletErrorCode.TABLET_NOT_FOUND,
    TabletErrorCode.CAS_FAILED,  # the replica has a newer configuration, so the call is outdated
    TabletErrorCode.WRONG_SERVER_UUID,  # the replica's server no longer exists (KUDU-3341)
)
_DONE_ALTER: Final = (
    TabletErrorCode.TABLET_NOT_FOUND,
    TabletErrorCode.MISMATCHED_SCHEMA,
    TabletErrorCode.TABLET_HAS_A_NEWER_SCHEMA,
)


_DONE_CONFIG: Final = (
    raft.ConsensusErrorCode.CAS_FAILED,
    raft.ConsensusErrorCode.INVALID_CONFIG,
)


class _Step(enum.Enum):
    DONE = "done"
    AGAIN = "again"  # the table already has a newer schema version: send it at once
    RETRY = "retry"


@dataclass(slots=True)
class _Pending:
    call: Call
    table_id: str
    wake: Wakeup = field(default_factory=Wakeup)
    task: asyncio.Task[None] | None = None


def retry_delay_ms(retry: int, rng: random.Random) -> int:
    """Return the wait before retry number `retry` (from 1), in ms.

    The wait is 2^(`retry` + 3) ms plus a random 0 to 49 ms. From the 13th retry on, it is a minute.
    """
    base = 60_000 if retry > 12 else 1 << (retry + 3)
    return base + rng.randrange(50)


class Tasks:
    """The pending calls of one leadership to tablet servers."""

    def __init__(self, node: NodeContext, tservers: TServerMap, catalog: Catalog) -> None:
        self._env = node.env
        self._client = node.rpc
        self._tservers = tservers
        self._catalog = catalog
        self._flags = node.flags
        self._bugs = node.bugs
        self._pending: dict[tuple[str, ...], _Pending] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def submit(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if self._closed or call.key in self._pending:
                continue
            if len(self._pending) >= PENDING_MAX:
                self._env.event("task-dropped", call=list(call.key), limit=PENDING_MAX)
                return
            entry = _Pending(call, self._table_of(call))
            self._pending[call.key] = entry
            entry.task = self._env.spawn(self._run(entry), name=f"task-{call.key[0]}")

    def abort_table(self, table_id: str) -> None:
        self._abort([e for e in self._pending.values() if e.table_id == table_id])

    def abort_all(self) -> None:
        self._closed = True
        self._abort(list(self._pending.values()))

    def kick(self, ts_uuid: str) -> None:
        """Retry all pending calls that may go to `ts_uuid` now, because it answers again."""
        for entry in self._pending.values():
            if isinstance(entry.call, AlterTablet | ChangeConfig) or entry.call.ts_uuid == ts_uuid:
                entry.wake.set()

    def retarget(self, tablet_id: str) -> None:
        """Restart the pending calls to a tablet's leader, because the tablet has a new leader."""
        for key in (AlterTablet(tablet_id).key, self._config_key(tablet_id)):
            if key in self._pending:
                call = self._pending[key].call
                self._abort([self._pending[key]])
                self.submit([call])

    def unplaced(self) -> int:
        """Return the number of calls that wait until their tablet is placed, possibly forever."""
        tablets = self._catalog.tablets
        return sum(
            isinstance(call, AlterTablet)
            and call.tablet_id in tablets
            and tablets[call.tablet_id].state is TabletState.PREPARING
            for call in (entry.call for entry in self._pending.values())
        )

    def tablets(self) -> frozenset[str]:
        """Return the ids of the tablets with pending calls."""
        return frozenset(entry.call.tablet_id for entry in self._pending.values())

    def changes_config(self, tablet_id: str) -> bool:
        """Whether a change of this tablet's stored configuration is pending."""
        return self._config_key(tablet_id) in self._pending

    def _config_key(self, tablet_id: str) -> tuple[str, ...]:
        consensus = self._catalog.tablets[tablet_id].consensus
        return config_key(tablet_id, -1 if consensus is None else consensus.config.opid_index)

    def _abort(self, entries: list[_Pending]) -> None:
        for entry in entries:
            self._pending.pop(entry.call.key, None)
            if entry.task is not None:
                entry.task.cancel()

    def _table_of(self, call: Call) -> str:
        if isinstance(call, DeleteReplica):
            return call.table_id
        tablet = self._catalog.tablets.get(call.tablet_id)
        return "" if tablet is None else tablet.table_id

    async def _run(self, entry: _Pending) -> None:
        clock, call = self._env.clock, entry.call
        total_ms = self._flags.unresponsive_ts_rpc_timeout_ms
        deadline_ns = clock.monotonic_ns() + total_ms * 1_000_000
        has_limit = not isinstance(call, ChangeConfig)
        retry = 0
        try:
            while True:
                step = await self._try(call)
                if step is _Step.DONE:
                    return
                if step is _Step.AGAIN:
                    retry = 0
                    continue
                retry += 1
                delay_s = retry_delay_ms(retry, self._env.random) / 1000
                if has_limit and clock.monotonic_ns() + int(delay_s * 1e9) > deadline_ns:
                    self._env.event("task-gave-up", call=list(call.key), after_ms=total_ms)
                    return
                await self._pause(entry, delay_s)
        finally:
            if self._pending.get(call.key) is entry:
                del self._pending[call.key]

    async def _pause(self, entry: _Pending, delay_s: float) -> None:
        entry.wake.clear()
        await entry.wake.wait(delay_s)

    async def _try(self, call: Call) -> _Step:
        match call:
            case CreateReplica():
                return await self._create(call)
            case DeleteReplica():
                return await self._delete(call)
            case AlterTablet():
                return await self._alter(call)
            case ChangeConfig():
                return await self._change_config(call)

    async def _create(self, call: CreateReplica) -> _Step:
        tablet = self._catalog.tablets.get(call.tablet_id)
        if tablet is None or tablet.consensus is None or tablet.origin is None:
            return _Step.DONE  # the tablet was deleted
        config, origin = tablet.consensus.config, tablet.origin
        if not is_first_member(config, call.ts_uuid):
            return _Step.DONE
        table = self._catalog.tables[tablet.table_id]
        request = CreateTabletRequest(
            dest_uuid=call.ts_uuid,
            table_id=tablet.table_id,
            table_name=origin.table_name,
            tablet_id=tablet.id,
            partition=tablet.partition,
            schema=origin.schema,
            schema_version=origin.schema_version,
            config=config,
            partition_schema=table.partition_schema,
        )
        return await self._send(call.ts_uuid, request, _DONE_CREATE)

    async def _delete(self, call: DeleteReplica) -> _Step:
        request = DeleteTabletRequest(
            dest_uuid=call.ts_uuid,
            tablet_id=call.tablet_id,
            delete_type=call.delete_type,
            reason=call.reason,
            cas_config_opid_index=call.cas_config_opid_index,
        )
        return await self._send(call.ts_uuid, request, _DONE_DELETE)

    async def _alter(self, call: AlterTablet) -> _Step:
        tablet = self._catalog.tablets.get(call.tablet_id)
        if tablet is None or not tablet.is_live:
            return _Step.DONE
        table = self._catalog.tables.get(tablet.table_id)
        if table is None or not table.is_live:
            return _Step.DONE
        if self._catalog.reported_versions.get(tablet.id, -1) >= table.version:
            return _Step.DONE
        leader = None if tablet.consensus is None else tablet.consensus.leader_uuid
        if leader is None or all(peer.uuid != leader for peer in self._catalog.peers(tablet)):
            return _Step.RETRY
        request = AlterSchemaRequest(
            dest_uuid=leader,
            tablet_id=tablet.id,
            schema=table.schema,
            schema_version=table.version,
            new_table_name=table.name,
        )
        step = await self._send(leader, request, _DONE_ALTER)
        if step is _Step.DONE and Bug.ALTER_REPLY in self._bugs:
            self._catalog.note_reported_version(tablet.id, table.version)
        newest = self._catalog.tables.get(table.id)
        if step is _Step.DONE and newest is not None and newest.version > table.version:
            return _Step.AGAIN
        return step

    async def _change_config(self, call: ChangeConfig) -> _Step:
        tablet = self._catalog.tablets.get(call.tablet_id)
        if tablet is None or tablet.consensus is None:
            return _Step.DONE
        if tablet.consensus.config.opid_index != call.cas_config_opid_index:
            return _Step.DONE  # a newer configuration is stored
        if review(self._catalog, tablet.id, self._flags, self._bugs) != call.decision:
            return _Step.DONE  # the decision is outdated, or its cause is not reported yet
        leader_uuid = tablet.consensus.leader_uuid
        leader = None if leader_uuid is None else self._tservers.get(leader_uuid)
        if leader_uuid is None or leader is None:
            return _Step.RETRY
        error = await self._ask_leader(leader.address, leader_uuid, call)
        return _Step.DONE if error is None or error.code in _DONE_CONFIG else _Step.RETRY

    async def _ask_leader(
        self, address: str, leader_uuid: str, call: ChangeConfig
    ) -> raft.ConsensusError | None:
        """Send `call` to a tablet's leader; return the error of the answer or of the RPC.

        A call whose answer is lost may be retried: the compare-and-set prevents a second effect.
        """
        request = _config_request(call, leader_uuid)
        timeout_s = self._flags.master_ts_rpc_timeout_ms / 1000
        try:
            response = await self._client.call(address, request, timeout_s=timeout_s)
        except RpcError as error:
            return raft.ConsensusError(raft.ConsensusErrorCode.UNKNOWN, str(error))
        return response.error

    async def _send(
        self,
        ts_uuid: str,
        request: rpc.Call[TabletServerResponse],
        final: tuple[TabletErrorCode, ...],
    ) -> _Step:
        server = self._tservers.get(ts_uuid)
        if server is None:
            return _Step.RETRY  # the server is not registered with this master yet (KUDU-1991)
        timeout_s = self._flags.master_ts_rpc_timeout_ms / 1000
        try:
            response = await self._client.call(server.address, request, timeout_s=timeout_s)
        except RpcError:
            # Retry even if the server may have handled the call, because all calls are idempotent.
            return _Step.RETRY
        if response.error is None or response.error.code in final:
            return _Step.DONE
        return _Step.RETRY


def _config_request(
    call: ChangeConfig, leader_uuid: str
) -> raft.ConsensusCall[raft.ChangeConfigResponse | raft.LeaderStepDownResponse]:
    match call.decision:
        case StepDownLeader():
            mode = raft.StepDownMode.GRACEFUL
            return raft.LeaderStepDownRequest(leader_uuid, call.tablet_id, mode)
        case AddPeer(member_type, promote):
            assert call.server is not None, "an addition names its server"
            peer = PeerConfig(*call.server, member_type, promote)
            change = raft.PeerChange(raft.ChangeType.ADD_PEER, peer)
        case EvictPeer(uuid):
            change = raft.PeerChange(raft.ChangeType.REMOVE_PEER, PeerConfig(uuid, ""))
    return raft.ChangeConfigRequest(leader_uuid, call.tablet_id, change, call.cas_config_opid_index)
