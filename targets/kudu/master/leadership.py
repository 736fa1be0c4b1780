"""Elections of masters: when this master may serve, and with which catalog.

The code follows Kudu's `PrepareForLeadershipTask`. If this master leads a new term, it waits until
an operation of that term has committed and is applied, because it has then applied all operations
of older terms as well. Then it loads the catalog, only once per term (otherwise: bug
SPURIOUS-RELOAD). The wait is the fix of KUDU-765. If it takes longer than
`master_failover_catchup_timeout_ms`, Kudu exits; in the profile `strict`, the master steps down and
stays up.

Every master also keeps maps for reads in any role (`view`). The master updates these maps with
every batch that it applies, and reloads them only after a snapshot. All maps must always equal a
scan of the rows, which every dump checks.
"""

from __future__ import annotations

from collections.abc import Callable

from targets.kudu.bugs import Bug
from targets.kudu.consensus.errors import NotLeaderError
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.context import NodeContext
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID, Batch, TabletState
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.errors import (
    RefusedError,
    not_initialized,
    not_the_leader,
    not_yet_ready,
)
from targets.kudu.master.leader_term import Epoch
from targets.kudu.master.tablets.assignment import create_replicas
from targets.kudu.master.tablets.async_rpc_tasks import Tasks


class Leadership:
    """Keeps the current `Epoch`, following the role of the system tablet's replica.

    `make_tasks` creates the `Tasks` of an epoch. `serve` is called with each epoch that becomes
    ready.
    """

    def __init__(
        self,
        node: NodeContext,
        rows: SystemTablet,
        make_tasks: Callable[[Catalog], Tasks],
        serve: Callable[[Epoch], None],
    ) -> None:
        self._node = node
        self._env = node.env
        self._rows = rows
        self._make_tasks = make_tasks
        self._serve = serve
        self._replica: Replica | None = None
        # Set before `_is_ready`, because writing the cluster id requires an epoch.
        self._epoch: Epoch | None = None
        self._is_ready = False
        self._last_term: int = -1  # newest term for which this master has begun to load the catalog
        self._view = Catalog.load(rows, 0)
        rows.observer = self._publish
        rows.on_restore = self._scan

    @property
    def replica(self) -> Replica | None:
        return self._replica

    @property
    def cluster_id(self) -> str | None:
        return self._rows.cluster_id

    @property
    def view(self) -> Catalog:
        """The maps of all rows that this master has applied, for reads in any role."""
        return self._view

    @property
    def epoch(self) -> Epoch | None:
        """The epoch that serves requests now; `None` unless this master leads and is ready."""
        epoch = self._epoch
        return epoch if epoch is not None and self._is_ready and epoch.is_current() else None

    def ready(self) -> Epoch:
        """Return the `epoch`. Raise `RefusedError` if this master does not lead or is not ready."""
        epoch = self.epoch
        if epoch is not None:
            return epoch
        if self._replica is None:
            raise not_initialized()
        leads = self._replica.role == "LEADER"
        raise not_yet_ready() if leads else not_the_leader()

    def on_role_change(self, replica: Replica) -> None:
        """Handle a change of role, term or leader; the replica of the system tablet calls this."""
        self._replica = replica
        epoch = self._epoch
        if epoch is not None and not epoch.is_current():
            epoch.close()
            self._epoch, self._is_ready = None, False
        if replica.role == "LEADER" and replica.term != self._last_term:
            self._last_term = replica.term
            self._env.spawn(
                self._prepare(replica, replica.term), name=f"prepare-leadership-{replica.term}"
            )

    def close(self) -> None:
        if self._epoch is not None:
            self._epoch.close()

    async def _prepare(self, replica: Replica, term: int) -> None:
        waits = Bug.KUDU_765 not in self._node.bugs
        if waits and not await self._wait_caught_up(replica):
            return
        if replica.role != "LEADER" or replica.term != term:
            return  # this master was deposed meanwhile; if it wins again, another task starts
        catalog = Catalog.load(self._rows, term)
        if Bug.KUDU_1353 in self._node.bugs:
            catalog.heard = {}
        epoch = Epoch(self._node, replica, catalog, self._make_tasks(catalog))
        self._epoch, self._is_ready = epoch, False
        if self._rows.cluster_id is None:
            try:
                await epoch.write(cluster_id=self._node.new_id())
            except RefusedError:
                if epoch.is_current():
                    # otherwise this term would have a leader that never becomes ready
                    replica.step_down()
                return
        if not epoch.is_current():
            return
        self._is_ready = True
        self._env.event(
            "catalog-ready",
            group=SYSTEM_TABLET_ID,
            term=term,
            tables=len(catalog.by_name),
            revision=catalog.revision,
        )
        # The previous leader may have left CreateTablet calls undone: make all of them again.
        for _, tablet in sorted(catalog.tablets.items()):
            if tablet.state is TabletState.CREATING:
                epoch.tasks.submit(create_replicas(tablet))
        self._serve(epoch)

    async def _wait_caught_up(self, replica: Replica) -> bool:
        try:
            await replica.confirm_leadership(
                timeout_s=self._node.flags.master_failover_catchup_timeout_ms / 1000
            )
        except NotLeaderError:
            return False
        except TimeoutError:
            self._env.event("catch-up-timed-out", group=SYSTEM_TABLET_ID, term=replica.term)
            if Bug.CATCH_UP_EXIT in self._node.bugs:
                self._node.check_failed("failed to catch up with older terms in time")
            elif replica.role == "LEADER":
                replica.step_down()
            return False
        return True

    def _scan(self) -> None:
        self._view = Catalog.load(self._rows, 0)

    def _publish(self, batch: Batch, index: int, term: int) -> None:
        """Add a batch to the maps, in the step that changes the rows.

        The leader's maps have all operations of older terms, because `_prepare` waited for these
        operations. With the defect KUDU-765, `_prepare` does not wait, and the maps miss
        operations.
        """
        self._view.publish(batch, index)
        if self._epoch is not None and self._epoch.term == term:
            self._epoch.catalog.publish(batch, index)
