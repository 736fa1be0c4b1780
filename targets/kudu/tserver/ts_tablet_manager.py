"""The tablets of one server: Kudu's `TSTabletManager` (`tserver/ts_tablet_manager.cc`).

Masters may send CreateTablet and DeleteTablet twice, so both calls are idempotent. A *transition*
is the creation, deletion or copy of a tablet. A tablet has at most one transition at a time; a
second request is refused with ALREADY_INPROGRESS. A transition changes the files on disk in steps.
If a crash comes between two steps, the next start finishes the transition:

* Creation: the superblock `READY` is written, then the Raft group's files.
* Deletion: the superblock `DELETED` is written, then the group's files are removed, and finally the
  superblock.
* Tombstone: the end of the log is stored in the vote state, then the superblock `TOMBSTONED` is
  written, then the log is removed.

As in Kudu, a server refuses CreateTablet for a deleted tablet until it restarts, because the call
may be late. A tombstone keeps the vote state of its group, and votes (KUDU-871).

If a leader finds that a member's server has no replica, it asks the server to create one
(`start_copy`), possibly in place of a tombstone. The new replica is empty at first. It is `COPYING`
until it has committed the configuration with which it began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from targets.kudu import messages as m
from targets.kudu.consensus import messages as raft
from targets.kudu.consensus.consensus_service import ConsensusService
from targets.kudu.context import SOFTWARE_VERSION, NodeContext
from targets.kudu.hybrid_clock import HybridClock
from targets.kudu.tserver.errors import TabletRefusedError
from targets.kudu.tserver.tablet_metadata import (
    COPYING,
    DELETED,
    READY,
    TOMBSTONED,
    Superblock,
    SuperblockStore,
)
from targets.kudu.tserver.tablet_replica import Tablet

_Code = m.TabletErrorCode
_DELETED_IDS_MAX: Final = 100_000
"""Maximum number of deleted tablet ids that a server remembers until its next start."""
_COPY_LOOK_S: Final = 0.2


class TabletManager:
    """Manages the replicas on one server: creates, deletes, alters and reports them."""

    def __init__(
        self,
        node: NodeContext,
        *,
        consensus: ConsensusService,
        on_dirty: Callable[[str], None],
    ) -> None:
        """Manage no replicas yet; `on_dirty(tablet_id)` is called when a new report is needed."""
        self._node = node
        self._env = node.env
        self._uuid = node.uuid
        self._consensus = consensus
        self._on_dirty = on_dirty
        self._clock = HybridClock(node.env.clock, max_error_us=node.flags.max_clock_sync_error_usec)
        self._store = SuperblockStore(node.env.disk)
        self._tablets: dict[str, Tablet] = {}
        self._in_transition: dict[str, str] = {}  # tablet id -> the running transition
        self._deleted: dict[str, None] = {}  # ids of tablets deleted since the start, oldest first

    async def open_all(self) -> None:
        """Reopen every replica on disk, and finish deletions that a crash interrupted."""
        started = []
        for superblock in await self._store.load_all():
            tablet = self._tablet(superblock)
            if superblock.data_state == DELETED:
                await self._remove_files(tablet)
                continue
            self._tablets[tablet.tablet_id] = tablet
            started.append(tablet)
        await asyncio.gather(*(tablet.start() for tablet in started))
        for tablet in started:
            self._watch_copy(tablet)

    # --- TabletServerAdminService ------------------------------------------------------------

    async def create_tablet(self, request: m.CreateTabletRequest) -> None:
        """Create a replica. A repeated request is answered with TABLET_ALREADY_EXISTS."""
        self._check(request.dest_uuid, request.tablet_id)
        tablet_id = request.tablet_id
        if tablet_id in self._deleted:
            raise TabletRefusedError(
                _Code.TABLET_NOT_FOUND, f"{tablet_id} was deleted here, so it cannot be created"
            )
        if tablet_id in self._tablets:
            raise TabletRefusedError(_Code.TABLET_ALREADY_EXISTS, f"{tablet_id} exists here")
        if all(peer.uuid != self._uuid for peer in request.config.peers):
            raise TabletRefusedError(
                _Code.UNKNOWN_ERROR, f"{self._uuid} is not in the configuration of {tablet_id}"
            )
        superblock = Superblock(
            tablet_id=tablet_id,
            table_id=request.table_id,
            table_name=request.table_name,
            partition=request.partition,
            schema=request.schema,
            schema_version=request.schema_version,
            initial_config=request.config,
            partition_schema=request.partition_schema,
        )
        await self._make(superblock, "creating")

    async def delete_tablet(self, request: m.DeleteTabletRequest) -> None:
        """Delete a replica for good, or leave a tombstone.

        A request gets CAS_FAILED if the replica's committed configuration is newer than the index
        in the request: the replica may have been added again after the decision (KUDU-1129).
        """
        self._check(request.dest_uuid, request.tablet_id)
        if request.delete_type not in {DELETED, TOMBSTONED}:
            raise TabletRefusedError(
                _Code.UNKNOWN_ERROR,
                f"the delete type {request.delete_type!r} is not DELETED or TOMBSTONED",
            )
        tablet_id = request.tablet_id
        tablet = self._tablets.get(tablet_id)
        if tablet is None:
            raise TabletRefusedError(_Code.TABLET_NOT_FOUND, f"{tablet_id} is not here")
        expected = request.cas_config_opid_index
        if expected is not None and tablet.committed_config_index > expected:
            raise TabletRefusedError(
                _Code.CAS_FAILED,
                f"the configuration of {tablet_id} is at {tablet.committed_config_index}, "
                f"newer than the caller's {expected}",
            )
        if request.delete_type == TOMBSTONED and not tablet.has_data:
            return
        self._in_transition[tablet_id] = "deleting"
        try:
            if request.delete_type == TOMBSTONED:
                await self._tombstone(tablet)
            else:
                await self._delete(tablet)
        finally:
            del self._in_transition[tablet_id]
        self._on_dirty(tablet_id)

    async def alter_schema(self, request: m.AlterSchemaRequest) -> None:
        """Replicate a schema change in a tablet's group. Refused unless this replica leads."""
        self._check(request.dest_uuid, request.tablet_id)
        tablet = self._tablets.get(request.tablet_id)
        if tablet is None:
            raise TabletRefusedError(_Code.TABLET_NOT_FOUND, f"{request.tablet_id} is not here")
        await tablet.alter_schema(request)

    def find(self, tablet_id: str) -> Tablet:
        tablet = self._tablets.get(tablet_id)
        if tablet is None:
            raise TabletRefusedError(_Code.TABLET_NOT_FOUND, f"Tablet not found: {tablet_id}")
        if not tablet.has_data:  # Kudu tells clients that a tombstone does not exist
            raise TabletRefusedError(
                _Code.TABLET_NOT_FOUND, f"Tablet not found: {tablet_id} is tombstoned"
            )
        if not tablet.is_serving:
            raise TabletRefusedError(_Code.TABLET_NOT_RUNNING, f"Tablet not RUNNING: {tablet_id}")
        return tablet

    def _check(self, dest_uuid: str, tablet_id: str) -> None:
        if dest_uuid != self._uuid:
            raise TabletRefusedError(
                _Code.WRONG_SERVER_UUID, f"this is {self._uuid}, the request is for {dest_uuid}"
            )
        doing = self._in_transition.get(tablet_id)
        if doing is not None:
            raise TabletRefusedError(_Code.ALREADY_INPROGRESS, f"{doing} {tablet_id} already")

    async def start_copy(self, request: raft.StartTabletCopyRequest) -> raft.ConsensusError | None:
        """Create an empty replica, which the calling leader then fills (`MissingGroupHook`).

        The replica may replace a tombstone, whose vote state it keeps. The request is refused if
        this server has deleted the tablet for good.
        """
        code, tablet_id = raft.ConsensusErrorCode, request.tablet_id
        doing = self._in_transition.get(tablet_id)
        if doing is not None:
            return raft.ConsensusError(code.ALREADY_INPROGRESS, f"{tablet_id} is {doing}")
        if tablet_id in self._deleted:
            return raft.ConsensusError(code.TABLET_NOT_FOUND, f"{tablet_id} was deleted here")
        present = self._tablets.get(tablet_id)
        if present is not None and present.has_data:
            return raft.ConsensusError(code.ALREADY_INPROGRESS, f"{tablet_id} is starting")
        superblock = msgspec.structs.replace(
            msgspec.json.decode(request.superblock, type=Superblock),
            initial_config=request.config,
            data_state=COPYING,
            copied_at=request.config.opid_index,
        )
        await self._make(superblock, "copying", present)
        self._env.event("tablet-copy-started", tablet=tablet_id, source=request.caller_uuid)
        return None

    # --- steps -------------------------------------------------------------------------------

    def _tablet(self, superblock: Superblock) -> Tablet:
        return Tablet(
            self._node,
            superblock,
            consensus=self._consensus,
            clock=self._clock,
            on_dirty=self._on_dirty,
        )

    async def _make(
        self, superblock: Superblock, doing: str, tombstone: Tablet | None = None
    ) -> None:
        tablet_id = superblock.tablet_id
        self._in_transition[tablet_id] = doing
        try:
            if tombstone is not None:
                await tombstone.stop()
            await self._store.write(superblock)
            self._env.point("superblock-written", tablet=tablet_id, state=superblock.data_state)
            tablet = self._tablet(superblock)
            self._tablets[tablet_id] = tablet
            await tablet.start()
        finally:
            del self._in_transition[tablet_id]
        self._watch_copy(tablet)
        self._on_dirty(tablet_id)

    def _watch_copy(self, tablet: Tablet) -> None:
        if tablet.superblock.data_state == COPYING:
            self._env.spawn(self._finish_copy(tablet), name=f"copy-{tablet.tablet_id}")

    async def _finish_copy(self, tablet: Tablet) -> None:
        tablet_id = tablet.tablet_id
        while not tablet.is_copied or tablet_id in self._in_transition:
            await asyncio.sleep(_COPY_LOOK_S)  # poll, because applying an entry triggers no event
            if tablet.superblock.data_state != COPYING:
                return  # the replica was deleted or tombstoned during the wait
        self._in_transition[tablet_id] = "copying"
        try:
            ready = msgspec.structs.replace(tablet.superblock, data_state=READY)
            await self._store.write(ready)
            tablet.superblock = ready
        finally:
            del self._in_transition[tablet_id]
        self._env.event("tablet-copy-done", tablet=tablet_id)
        self._on_dirty(tablet_id)

    async def _delete(self, tablet: Tablet) -> None:
        self._deleted[tablet.tablet_id] = None
        if len(self._deleted) > _DELETED_IDS_MAX:
            oldest = next(iter(self._deleted))
            del self._deleted[oldest]
            self._env.event("deleted-id-forgotten", tablet=oldest, limit=_DELETED_IDS_MAX)
        tablet.superblock = msgspec.structs.replace(tablet.superblock, data_state=DELETED)
        await self._store.write(tablet.superblock)
        self._env.point("superblock-written", tablet=tablet.tablet_id, state=DELETED)
        await tablet.stop()
        await self._remove_files(tablet)
        del self._tablets[tablet.tablet_id]

    async def _remove_files(self, tablet: Tablet) -> None:
        await tablet.delete_data()
        await self._store.remove(tablet.tablet_id)

    async def _tombstone(self, tablet: Tablet) -> None:
        tombstone = msgspec.structs.replace(
            tablet.superblock,
            data_state=TOMBSTONED,
            tombstone_config_index=tablet.committed_config_index,
        )
        await tablet.bury(tombstone, self._store)

    # --- reports and dumps -------------------------------------------------------------------

    @property
    def live_tablets(self) -> int:
        return len([tablet for tablet in self._tablets.values() if tablet.has_data])

    def report(
        self, tablet_ids: Sequence[str] | None
    ) -> tuple[tuple[m.ReportedTablet, ...], tuple[str, ...]]:
        asked = sorted(self._tablets) if tablet_ids is None else tablet_ids
        here = [self._tablets[tablet_id] for tablet_id in asked if tablet_id in self._tablets]
        gone = tuple(tablet_id for tablet_id in asked if tablet_id not in self._tablets)
        return tuple(tablet.report() for tablet in here), gone

    def list_tablets(self) -> m.ListTabletsResponse:
        hosted = (tablet.hosted() for _, tablet in sorted(self._tablets.items()))
        return m.ListTabletsResponse(self._uuid, tuple(hosted), SOFTWARE_VERSION)

    def dump(self) -> dict[str, Any]:
        return {
            "uuid": self._uuid,
            "counters": {"tablets in transition": len(self._in_transition)},
            "tablets": [tablet.dump() for _, tablet in sorted(self._tablets.items())],
        }

    def status(self) -> dict[str, Any]:
        tablets = [tablet.status() for _, tablet in sorted(self._tablets.items())]
        return {"uuid": self._uuid, "tablets": tablets}
