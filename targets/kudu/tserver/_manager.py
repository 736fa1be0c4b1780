"""The tablets of one server: Kudu's `TSTabletManager` (`tserver/ts_tablet_manager.cc`).

Creating and deleting are the master's to ask for and may be asked twice, so both are idempotent.
At most one such transition of a tablet is under way; a second caller is told so. What is on disk
moves in steps of which each can be finished by the next start:

* create: superblock `READY`, then the Raft group's files;
* delete: superblock `DELETED`, then the group's files go, then the superblock;
* tombstone: the end of the log into the vote state, superblock `TOMBSTONED`, then the log goes.

A deleted id is refused until the server restarts, as in Kudu, since a late CreateTablet would
bring it back. A tombstone keeps the vote state of its group, and votes (KUDU-871).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from targets.kudu import messages as m
from targets.kudu.context import NodeContext
from targets.kudu.hybrid_clock import HybridClock
from targets.kudu.raft.replica import ConsensusService
from targets.kudu.tserver._superblock import (
    DELETED,
    READY,
    TOMBSTONED,
    Superblock,
    SuperblockStore,
)
from targets.kudu.tserver._tablet import Tablet

__all__ = ["TabletManager"]

_Code = m.TabletErrorCode
_DELETED_IDS_MAX: Final = 100_000
"""How many deleted ids are refused; older ones are forgotten, as all are at a restart."""


class TabletManager:
    """Creates, deletes, alters and reports replicas."""

    def __init__(
        self,
        node: NodeContext,
        *,
        consensus: ConsensusService,
        on_dirty: Callable[[str], None],
    ) -> None:
        """Manage the tablets of a server; `on_dirty` hears what masters should know."""
        self._node = node
        self._env = node.env
        self._uuid = node.uuid
        self._consensus = consensus
        self._on_dirty = on_dirty
        self._clock = HybridClock(node.env.clock, max_error_us=node.flags.max_clock_sync_error_usec)
        self._store = SuperblockStore(node.env.disk)
        self._tablets: dict[str, Tablet] = {}
        self._in_transition: dict[str, str] = {}  # tablet id -> what is being done
        self._deleted: dict[str, None] = {}  # ids deleted since this start, in order

    async def open_all(self) -> None:
        """Reopen every replica found on disk, and finish deletions that a crash cut short."""
        started = []
        for superblock in await self._store.load_all():
            tablet = self._tablet(superblock)
            if superblock.data_state == DELETED:
                await self._remove_files(tablet)
                continue
            self._tablets[tablet.tablet_id] = tablet
            started.append(tablet)
        await asyncio.gather(*(tablet.start() for tablet in started))

    # --- TabletServerAdminService ------------------------------------------------------------

    async def create_tablet(self, request: m.CreateTabletRequest) -> m.TabletError | None:
        """Create a replica; a second request for it is TABLET_ALREADY_EXISTS."""
        wrong = self._check(request.dest_uuid, request.tablet_id)
        if wrong is not None:
            return wrong
        tablet_id = request.tablet_id
        if tablet_id in self._deleted:
            return _error(
                _Code.TABLET_NOT_FOUND, f"{tablet_id} was deleted here and does not come back"
            )
        if tablet_id in self._tablets:
            return _error(_Code.TABLET_ALREADY_EXISTS, f"{tablet_id} is here already")
        if all(peer.uuid != self._uuid for peer in request.config.peers):
            return _error(
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
        self._in_transition[tablet_id] = "creating"
        try:
            await self._store.write(superblock)
            tablet = self._tablet(superblock)
            self._tablets[tablet_id] = tablet
            await tablet.start()
        finally:
            del self._in_transition[tablet_id]
        self._on_dirty(tablet_id)
        return None

    async def delete_tablet(self, request: m.DeleteTabletRequest) -> m.TabletError | None:
        """Delete a replica for good, or leave a tombstone.

        CAS_FAILED when its committed configuration is newer than the caller's: a deletion decided
        on old news must not hit a replica that was added again since (KUDU-1129).
        """
        wrong = self._check(request.dest_uuid, request.tablet_id)
        if wrong is not None:
            return wrong
        if request.delete_type not in {DELETED, TOMBSTONED}:
            return _error(
                _Code.UNKNOWN_ERROR,
                f"the delete type {request.delete_type!r} is not DELETED or TOMBSTONED",
            )
        tablet_id = request.tablet_id
        tablet = self._tablets.get(tablet_id)
        if tablet is None:
            return _error(_Code.TABLET_NOT_FOUND, f"{tablet_id} is not here")
        expected = request.cas_config_opid_index
        if expected is not None and tablet.committed_config_index > expected:
            return _error(
                _Code.CAS_FAILED,
                f"the configuration of {tablet_id} is at {tablet.committed_config_index}, "
                f"newer than the caller's {expected}",
            )
        if request.delete_type == TOMBSTONED and not tablet.has_data:
            return None
        self._in_transition[tablet_id] = "deleting"
        try:
            if request.delete_type == TOMBSTONED:
                await self._tombstone(tablet)
            else:
                await self._delete(tablet)
        finally:
            del self._in_transition[tablet_id]
        self._on_dirty(tablet_id)
        return None

    async def alter_schema(self, request: m.AlterSchemaRequest) -> m.TabletError | None:
        """Change a tablet's schema on its whole group; only its leader can."""
        wrong = self._check(request.dest_uuid, request.tablet_id)
        if wrong is not None:
            return wrong
        tablet = self._tablets.get(request.tablet_id)
        if tablet is None:
            return _error(_Code.TABLET_NOT_FOUND, f"{request.tablet_id} is not here")
        return await tablet.alter_schema(request)

    def find(self, tablet_id: str) -> Tablet | m.TabletError:
        """The replica, if it serves; else TABLET_NOT_FOUND or TABLET_NOT_RUNNING."""
        tablet = self._tablets.get(tablet_id)
        if tablet is None:
            return _error(_Code.TABLET_NOT_FOUND, f"{tablet_id} is not here")
        if not tablet.is_serving:
            return _error(_Code.TABLET_NOT_RUNNING, f"the replica of {tablet_id} is not up")
        return tablet

    def _check(self, dest_uuid: str, tablet_id: str) -> m.TabletError | None:
        if dest_uuid != self._uuid:
            return _error(
                _Code.WRONG_SERVER_UUID, f"this is {self._uuid}, the request is for {dest_uuid}"
            )
        doing = self._in_transition.get(tablet_id)
        if doing is not None:
            return _error(_Code.ALREADY_INPROGRESS, f"{tablet_id} is {doing}")
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

    async def _delete(self, tablet: Tablet) -> None:
        self._deleted[tablet.tablet_id] = None
        if len(self._deleted) > _DELETED_IDS_MAX:
            oldest = next(iter(self._deleted))
            del self._deleted[oldest]
            self._env.event("deleted-id-forgotten", tablet=oldest, limit=_DELETED_IDS_MAX)
        deleted = msgspec.structs.replace(tablet.superblock, data_state=DELETED)
        await self._store.write(deleted)
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
        """How many replicas hold data."""
        return sum(tablet.superblock.data_state == READY for tablet in self._tablets.values())

    def report(
        self, tablet_ids: Sequence[str] | None
    ) -> tuple[tuple[m.ReportedTablet, ...], tuple[str, ...]]:
        """These tablets, or all for `None`, as they are now, and the ids that are gone."""
        asked = sorted(self._tablets) if tablet_ids is None else tablet_ids
        here = [self._tablets[tablet_id] for tablet_id in asked if tablet_id in self._tablets]
        gone = tuple(tablet_id for tablet_id in asked if tablet_id not in self._tablets)
        return tuple(tablet.report() for tablet in here), gone

    def list_tablets(self) -> m.ListTabletsResponse:
        """All replicas."""
        hosted = (tablet.hosted() for _, tablet in sorted(self._tablets.items()))
        return m.ListTabletsResponse(self._uuid, tuple(hosted))

    def dump(self) -> dict[str, Any]:
        """Everything this server holds, as plain JSON data."""
        return {
            "uuid": self._uuid,
            "counters": {"tablets in transition": len(self._in_transition)},
            "tablets": [tablet.dump() for _, tablet in sorted(self._tablets.items())],
        }

    def status(self) -> dict[str, Any]:
        """Its replicas as people want to know of them."""
        tablets = [tablet.status() for _, tablet in sorted(self._tablets.items())]
        return {"uuid": self._uuid, "tablets": tablets}


def _error(code: m.TabletErrorCode, message: str) -> m.TabletError:
    return m.TabletError(code, message)
