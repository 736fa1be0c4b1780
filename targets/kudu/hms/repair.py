"""Repair of the metastore's entries by the leader, in the profile `strict`.

A master may die after the metastore created an entry and before the master wrote the table. The
entry is then an orphan; Kudu leaves it to `kudu hms fix` (HMS-ORPHAN). After a change of the
masters, entries still name the former masters (STALE-MASTER-ADDRS). The leader therefore compares
the catalogs periodically.

An entry is dropped as an orphan if two conditions hold. First, a leader has no such table in its
catalog, and a majority confirmed that leader *after* the entries were listed. So no write of an
earlier leader can still arrive, and there was no later leader. Second, the leader itself has no
running create for the table. The drop names the table's id, so that it cannot hit another entry.
"""

from __future__ import annotations

import asyncio
import contextlib

from targets.hive.api import MetaTable
from targets.hive.metastore.kudu_rules import MASTER_ADDRESSES, TABLE_ID
from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.hms.client import HmsError, HmsSettings
from targets.kudu.hms.entries import HmsCatalog
from targets.kudu.hms.notification_log_listener import Creating
from targets.kudu.master.errors import RefusedError
from targets.kudu.master.leader_term import Epoch


class Repair:
    """Periodic comparison of the metastore's entries with the catalog, in one leadership."""

    def __init__(
        self,
        node: NodeContext,
        epoch: Epoch,
        catalog: HmsCatalog,
        settings: HmsSettings,
        creating: dict[str, Creating],
    ) -> None:
        self._env = node.env
        self._epoch = epoch
        self._catalog = catalog
        self._settings = settings
        self._creating = creating
        # Both defects leave entries behind on purpose, so the repair must not drop them.
        self._drops = not {Bug.HMS_ORPHAN, Bug.HMS_CREATE_RETRY} & node.bugs
        self._corrects = Bug.STALE_MASTER_ADDRS not in node.bugs
        self.checked: tuple[int, tuple[str, ...]] | None = None
        """The newest event and the masters at the last check that found all entries right."""

    async def run(self) -> None:
        while self._epoch.is_current():
            with contextlib.suppress(HmsError, RefusedError):
                await self._round()
            await asyncio.sleep(self._settings.repair_s)

    async def _round(self) -> None:
        event = await self._catalog.current_event()
        addresses = tuple(self._catalog.addresses())
        entries = await self._catalog.entries()
        await self._epoch.confirm()
        wrong = [entry for entry in entries if not await self._is_right(entry, addresses)]
        if not wrong:
            self.checked = event, addresses

    async def _is_right(self, entry: MetaTable, addresses: tuple[str, ...]) -> bool:
        table_id = entry.parameters.get(TABLE_ID, "")
        table = self._epoch.catalog.tables.get(table_id)
        if table is None or not table.is_live:
            if not self._drops:
                return True
            if table_id not in self._creating:
                await self._catalog.drop(entry.full_name, table_id)
                self._env.event("hms-entry-dropped", table=table_id, name=entry.full_name)
            return False
        if not self._corrects or entry.parameters.get(MASTER_ADDRESSES) == ",".join(addresses):
            return True
        if entry.full_name == table.name:  # if not, the event of a rename will follow
            await self._catalog.alter(entry.full_name, table)
            self._env.event("hms-addresses-corrected", table=table_id, addresses=addresses)
        return False
