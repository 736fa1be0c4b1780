"""Operators' requests to the leader: maintenance of tablet servers, replacement of lost tablets.

Each request is a single write, and an operator may repeat it. A repeated change of maintenance
succeeds. A repeated replacement gets NOT_FOUND, because the old tablet is already gone.
"""

from __future__ import annotations

from typing import Final

from targets.kudu.context import NodeContext
from targets.kudu.master.catalog.records import TServerRecord
from targets.kudu.master.errors import RefusedError
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.tablets.assignment import plan_replacement
from targets.kudu.master.tablets.ts_manager import TServerMap
from targets.kudu.messages import (
    AppStatus,
    ChangeTServerStateRequest,
    MasterErrorCode,
    ReplaceTabletRequest,
    TServerStateChange,
)

_ENTER: Final = TServerStateChange.ENTER_MAINTENANCE_MODE


class Admin:
    """Administrative operations, each in the leadership `epoch`. All raise `RefusedError`."""

    def __init__(self, node: NodeContext, tservers: TServerMap) -> None:
        self._node = node
        self._tservers = tservers

    async def change_tserver_state(self, epoch: Epoch, request: ChangeTServerStateRequest) -> None:
        """Turn maintenance of a tablet server on or off.

        At the end of maintenance, every tablet server must send a full report. The leader then
        reviews the replicas that it ignored during maintenance, as in Kudu.
        """
        record = epoch.catalog.tservers.get(request.ts_uuid)
        if record is None and self._tservers.get(request.ts_uuid) is None:
            raise _not_found(f"no tablet server {request.ts_uuid!r} has registered here")
        enters = request.change is _ENTER
        if (record is not None and record.in_maintenance) == enters:
            await epoch.confirm()
            return
        now_ns = self._node.env.clock.wall_ns()
        await epoch.write(tservers=[TServerRecord(request.ts_uuid, enters, now_ns)])
        if not enters:
            for server in self._tservers:
                server.full_report_term = -1
        epoch.after_commit(())

    async def replace_tablet(self, epoch: Epoch, request: ReplaceTabletRequest) -> str:
        """Replace a tablet with an empty tablet and return the new id. All rows are lost."""
        tablet = epoch.catalog.tablets.get(request.tablet_id)
        if tablet is not None:
            async with epoch.locked([tablet.table_id]):
                now_ns = self._node.env.clock.wall_ns()
                new_id = self._node.new_id()
                plan = plan_replacement(epoch.catalog, tablet.id, new_id, now_ns)
                if plan is not None:
                    await epoch.write(tablets=plan.tablets)
                    epoch.after_commit(plan.calls)
                    return new_id
        await epoch.confirm()
        raise _not_found(f"no live tablet has the id {request.tablet_id!r}")


def _not_found(message: str) -> RefusedError:
    return RefusedError(MasterErrorCode.UNKNOWN_ERROR, AppStatus.NOT_FOUND, message)
