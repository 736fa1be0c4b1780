"""One term of a master's leadership: its catalog, its locks, its writes and its tasks.

All state of a leader is in one `Epoch`, and a new leadership creates a new `Epoch`. A request works
on the epoch in which it began, and checks after every wait that this epoch still leads. A batch
names the term in which it was planned. If it is replicated after a change of leadership, it is
void. Kudu has `leader_lock_` for the same purpose, which blocks requests while the maps are
reloaded (commit d1d3cfe77).

A lock covers a table and its tablets. A request takes several locks in the order of table ids, so
requests cannot deadlock.

The write contract (at the top of Kudu's `catalog_manager.cc`) is: lock, mutate copies, replicate
ONE batch, commit and publish, then call tablet servers. Here the step that applies the batch also
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
    CleanupBatch,
    Forgotten,
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


class Epoch:
    """The state of one leadership of this master. `close` ends the epoch for good."""

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
        if self._outlasts:  # with the defect RELOAD-NO-LOCK, an epoch outlasts its term
            return replica.role == "LEADER"
        return not self._closed and replica.leads(self.term)

    def check(self) -> None:
        """Raise `not_the_leader()` if this leadership has ended. Call this after every wait."""
        if not self.is_current():
            raise not_the_leader()

    def adopt(self, task: asyncio.Task[None]) -> None:
        self._background.append(task)

    def counters(self) -> dict[str, int]:
        """Return counters of pending work. They must fall to zero once the work is done."""
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
        """Wait until a majority confirms this leader and the maps have all acknowledged operations.

        Raises `RefusedError` if the leadership is lost or not confirmed in time.
        """
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
        """Hold the write locks of the tables `table_ids`, taken in the order of their ids.

        A table's lock covers its tablets. Raises `RefusedError`.
        """
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
        forgotten: Forgotten | None = None,
    ) -> Applied:
        """Replicate one batch and wait until this master has applied and published it.

        The wait has no time limit, as in Kudu. If the leadership ends first, the `RefusedError`
        says whether the batch may still commit.
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
        if forgotten is not None:
            assert not tables, "a batch of cleanup only removes rows"
            assert not tablets, "a batch of cleanup only removes rows"
            batch = CleanupBatch(**msgspec.structs.asdict(batch), forgotten=forgotten)
        elif hms_event is not None:
            batch = HmsBatch(**msgspec.structs.asdict(batch), hms_event=hms_event)
        payload = encode_batch(batch)
        limit = entry_limit(self._node.flags)
        if len(payload) > limit:  # followers would never accept so large an entry (KUDU-3036)
            raise invalid_argument(
                f"the operation needs {len(payload)} bytes in the system tablet; the limit is "
                f"{limit} (flag rpc_max_message_size, minus the overhead of a message)"
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
        for table_id in [t.id for t in tables] + [t.table_id for t in tablets]:
            if table_id in self.catalog.tables:
                lock = self._locks.get(table_id)
                assert lock is not None, f"table {table_id} is written without its lock"
                assert lock.locked(), f"table {table_id} is written without its lock"

    def _abandon(self) -> None:
        """End this leadership after a write of unknown outcome.

        The next leader, which may be this master again, loads the catalog that was really
        committed.
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
