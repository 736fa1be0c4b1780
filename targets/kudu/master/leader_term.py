"""One term of leadership: the catalog loaded for it, its locks, its writes and its tasks.

All state of a leader lives in one `Epoch` and ends with it. A request works on the epoch in which
it began and checks after every wait that this epoch still leads. A write that misses a change of
leadership is void, because its batch names the term in which it was planned. This replaces Kudu's
`leader_lock_`, which blocks requests while the maps are reloaded (d1d3cfe77): here a reload creates
new maps, and the old ones are never served again.

Locks are per table and cover its tablets (Kudu locks tablets one by one). Several are taken in the
order of table ids, so that they cannot deadlock; `asyncio.Lock` is fair.

The write contract (top of Kudu's `catalog_manager.cc`) is: lock, mutate copies, replicate ONE
batch, commit and publish, then call tablet servers. Here the step that applies the batch also
commits and publishes it, so the maps always equal the applied prefix of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import msgspec

from targets.kudu.bugs import Bug
from targets.kudu.consensus.consensus_peers import entry_limit
from targets.kudu.consensus.errors import IndeterminateError, NotLeaderError, OverloadedError
from targets.kudu.consensus.raft_consensus import Replica
from targets.kudu.context import NodeContext
from targets.kudu.master.catalog.batches import encode_batch
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.plan import Call
from targets.kudu.master.catalog.records import (
    Batch,
    HmsBatch,
    Reply,
    TableRecord,
    TabletRecord,
    TServerRecord,
)
from targets.kudu.master.catalog.sys_catalog import Applied
from targets.kudu.master.errors import (
    RefusedError,
    busy,
    invalid_argument,
    not_the_leader,
    overloaded,
    unconfirmed,
    write_lost,
)
from targets.kudu.master.tablets.async_rpc_tasks import Tasks
from targets.kudu.wakeup import Wakeup

LOCK_WAITERS_MAX: Final = 1000

Outcome = Reply | RefusedError
"""The end of a DDL request."""


class Epoch:
    """The state of one leadership. `close` ends it for good."""

    def __init__(self, node: NodeContext, replica: Replica, catalog: Catalog, tasks: Tasks) -> None:
        self.term: Final = catalog.term
        self.catalog: Final = catalog
        self.tasks: Final = tasks
        self.in_flight: Final[dict[tuple[str, int], asyncio.Future[Outcome]]] = {}
        self.ready_ns: Final = node.env.clock.monotonic_ns()
        self.wake: Final = Wakeup()  # wakes the background loop
        self._node = node
        self._replica = replica
        self._closed = False
        self._outlasts = Bug.RELOAD_NO_LOCK in node.bugs
        self._locks: dict[str, asyncio.Lock] = {}
        self._lock_users: dict[str, int] = {}
        self._waiters = 0
        self._background: list[asyncio.Task[None]] = []

    # --- life --------------------------------------------------------------------------------

    def is_current(self) -> bool:
        """Whether this leadership still lasts, as far as this master knows."""
        replica = self._replica
        if self._outlasts:  # it lasts in any term, and after any reload
            return replica.role == "LEADER"
        return not self._closed and replica.role == "LEADER" and replica.term == self.term

    def check(self) -> None:
        """Raise `RefusedError` 7(a) unless this leadership lasts; call this after every wait."""
        if not self.is_current():
            raise not_the_leader()

    def adopt(self, task: asyncio.Task[None]) -> None:
        self._background.append(task)

    def counters(self) -> dict[str, int]:
        """Amounts that grow with the pending work and must shrink with it."""
        return {
            "locks": len(self._locks),
            "requests in flight": len(self.in_flight),
            "reserved names": len(self.catalog.reserved),
            "calls to tablet servers": len(self.tasks),
        }

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.tasks.abort_all()
        for task in self._background:
            task.cancel()

    # --- waits -------------------------------------------------------------------------------

    async def confirm(self) -> None:
        """Make sure that the maps are at least as new as this call."""
        self.check()
        if Bug.NO_LEASE in self._node.bugs:
            return
        try:
            await self._replica.confirm_leadership(
                timeout_s=self._node.flags.master_read_confirm_timeout_ms / 1000
            )
        except NotLeaderError as error:
            raise not_the_leader() from error
        except TimeoutError as error:
            raise unconfirmed() from error
        self.check()

    @contextlib.asynccontextmanager
    async def locked(self, table_ids: Iterable[str]) -> AsyncIterator[None]:
        """Hold the write locks of these tables and their tablets, all in one global order."""
        held: list[str] = []
        try:
            for table_id in sorted(table_ids):
                await self._acquire(table_id)
                held.append(table_id)
                self.check()
            yield
        finally:
            for table_id in reversed(held):
                self._locks[table_id].release()
                self._forget_user(table_id)

    async def _acquire(self, table_id: str) -> None:
        if self._waiters >= LOCK_WAITERS_MAX:
            raise busy("requests that wait for a table", LOCK_WAITERS_MAX)
        lock = self._locks.setdefault(table_id, asyncio.Lock())
        self._lock_users[table_id] = self._lock_users.get(table_id, 0) + 1
        self._waiters += 1
        acquired = False
        try:
            acquired = await lock.acquire()
        finally:
            self._waiters -= 1
            if not acquired:
                self._forget_user(table_id)

    def _forget_user(self, table_id: str) -> None:
        self._lock_users[table_id] -= 1
        if self._lock_users[table_id] == 0:
            del self._lock_users[table_id], self._locks[table_id]

    # --- writes ------------------------------------------------------------------------------

    async def write(
        self,
        tables: Sequence[TableRecord] = (),
        tablets: Sequence[TabletRecord] = (),
        *,
        reply: Reply | None = None,
        cluster_id: str | None = None,
        tservers: Sequence[TServerRecord] = (),
        hms_event: int | None = None,
    ) -> Applied:
        """Replicate one batch and wait until it is applied here, hence published.

        There is no time limit, as in Kudu: only the end of the leadership ends the wait, and then
        `RefusedError` says whether the batch may still commit.
        """
        self.check()
        self._assert_locked(tables, tablets)
        batch = Batch(
            self._replica.term if self._outlasts else self.term,
            self._node.env.clock.wall_ns(),
            tuple(tables),
            tuple(tablets),
            reply,
            cluster_id,
            tuple(tservers),
        )
        if hms_event is not None:
            batch = HmsBatch(**msgspec.structs.asdict(batch), hms_event=hms_event)
        payload = encode_batch(batch)
        limit = entry_limit(self._node.flags)
        if len(payload) > limit:  # KUDU-3036: followers would never accept it
            raise invalid_argument(
                f"the operation needs {len(payload)} bytes in the system tablet; the limit is "
                f"{limit} (flag rpc_max_message_size, less what a message adds)"
            )
        try:
            _, _, applied = await self._replica.replicate(payload)
        except NotLeaderError as error:
            raise not_the_leader() from error
        except OverloadedError as error:
            raise overloaded(error) from error
        except IndeterminateError as error:
            if Bug.KUDU_495_ABORT in self._node.bugs:
                self._node.check_failed(f"writing to the sys-catalog failed: {error}")
            self._abandon()
            raise write_lost(error) from error
        assert isinstance(applied, Applied)
        if applied.void:
            raise not_the_leader()
        return applied

    def _assert_locked(
        self, tables: Sequence[TableRecord], tablets: Sequence[TabletRecord]
    ) -> None:
        """Only a new table, not visible yet, is written without its lock."""
        for table_id in [t.id for t in tables] + [t.table_id for t in tablets]:
            if table_id in self.catalog.tables:
                lock = self._locks.get(table_id)
                assert lock is not None, f"table {table_id} is written without its lock"
                assert lock.locked(), f"table {table_id} is written without its lock"

    def _abandon(self) -> None:
        """End this leadership after a write of unknown outcome: the next one, here or elsewhere,
        loads the catalog that really committed.
        """
        lasts = self.is_current()
        self.close()
        if lasts:
            self._replica.step_down()

    def after_commit(self, calls: Iterable[Call]) -> None:
        """Call tablet servers about a committed write, and wake the background loop."""
        if self.is_current():
            self.tasks.submit(calls)
            self.wake.set()
