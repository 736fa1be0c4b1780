"""A master's access to the metastores: a client, and per leadership a log listener and a repair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.hms.client import HaClient, HmsSettings
from targets.kudu.hms.entries import HmsCatalog
from targets.kudu.hms.notification_log_listener import Creating, Listener
from targets.kudu.hms.repair import Repair
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.errors import not_yet_ready
from targets.kudu.master.leader_term import Epoch


class HmsSide:
    """A master's client of the metastores, and its current listener and repair.

    `voters` returns the addresses of the masters in the committed configuration. `start_list` has
    the masters with which this master was started; with the defect STALE-MASTER-ADDRS, entries name
    the latter.
    """

    def __init__(
        self,
        node: NodeContext,
        rows: SystemTablet,
        settings: HmsSettings,
        *,
        voters: Callable[[], Sequence[str]],
        start_list: Sequence[str],
    ) -> None:
        self._node = node
        self._rows = rows
        self._settings = settings
        self._voters = voters
        self._client = HaClient(node.env, settings)
        stale = Bug.STALE_MASTER_ADDRS in node.bugs
        self.catalog = HmsCatalog(
            self._client,
            cluster_id=lambda: rows.cluster_id or "",
            addresses=(lambda: start_list) if stale else voters,
            new_id=node.new_id,
        )
        self._epoch: Epoch | None = None
        self._listener: Listener | None = None
        self._repair: Repair | None = None
        self._creating: dict[str, Creating] = {}

    def serve(self, epoch: Epoch) -> None:
        env = self._node.env
        self._epoch, self._creating = epoch, {}
        self._listener = Listener(
            self._node, epoch, self._rows, self.catalog, self._settings, self._creating
        )
        epoch.adopt(env.spawn(self._listener.run(), name=f"hms-listener-{epoch.term}"))
        self._repair = Repair(self._node, epoch, self.catalog, self._settings, self._creating)
        epoch.adopt(env.spawn(self._repair.run(), name=f"hms-repair-{epoch.term}"))

    async def wait_caught_up(self, epoch: Epoch) -> None:
        await self._listener_of(epoch).wait_caught_up()

    async def wait_turn(self, epoch: Epoch, create: Creating) -> None:
        await self._listener_of(epoch).wait_turn(create)

    def applied(self, epoch: Epoch, table_id: str, marker: str) -> tuple[int, int] | None:
        return self._listener_of(epoch).applied(table_id, marker)

    def creating(self, epoch: Epoch) -> dict[str, Creating]:
        """Map table ids to the unfinished creates of this leadership."""
        return self._creating if epoch is self._epoch else {}

    def _listener_of(self, epoch: Epoch) -> Listener:
        if self._listener is None or epoch is not self._epoch:
            raise not_yet_ready()
        return self._listener

    def dump(self) -> dict[str, Any]:
        """Return data for dumps: the last event, recent events, and the leader's last check."""
        leads = self._epoch is not None and self._epoch.is_current()
        checked = self._repair.checked if leads and self._repair is not None else None
        return {
            "last_event": self._rows.hms_event,
            "events": [list(pair) for pair in self._rows.hms_events],
            "changing": self._client.changing,
            "checked_event": None if checked is None else checked[0],
            "checked_masters": None if checked is None else list(checked[1]),
            "masters": list(self._voters()),
        }

    def close(self) -> None:
        self._client.close()
