"""CreateTable, AlterTable and DeleteTable: runs the planners and writes their plans.

Each operation runs at most once per request id. The master answers a copy with the stored answer,
after waiting for the first request if that one is still running.

Some errors depend on the catalog ("already exists", "not found", "no such column"). Before it
answers with such an error, the master confirms its leadership and plans the request once more
(`confirmed`). Errors that depend only on the request need no confirmation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from targets.kudu.bugs import Bug
from targets.kudu.context import NodeContext
from targets.kudu.master.catalog.alter import plan_alter, plan_delete
from targets.kudu.master.catalog.bug_paths import (
    create_unordered,
    rename_with_gap,
    send_deletes,
    write_split,
)
from targets.kudu.master.catalog.create import (
    check_create,
    check_live,
    check_placement,
    plan_create,
)
from targets.kudu.master.catalog.plan import Plan
from targets.kudu.master.catalog.records import Reply
from targets.kudu.master.errors import RefusedError, busy, invalid_argument
from targets.kudu.master.leader_term import Epoch, Outcome
from targets.kudu.master.tablets.ts_manager import TServerMap, available
from targets.kudu.messages import (
    AlterTableRequest,
    CreateTableRequest,
    DeleteTableRequest,
    RequestId,
    TableIdentifier,
)

IN_FLIGHT_MAX: Final = 512
"""Maximum number of DDL requests that a leader handles at the same time."""

_RESOLVE_ATTEMPTS_MAX: Final = 8
"""Maximum number of attempts to lock the table that has the name in a request.

An attempt fails if the name moves to another table while the request waits for the lock.
"""
Seen = TypeVar("Seen")


class Ddl:
    """The three DDL operations, each in the leadership `epoch`. All raise `RefusedError`."""

    def __init__(self, node: NodeContext, tservers: TServerMap) -> None:
        self._node = node
        self._env = node.env
        self._flags = node.flags
        self._tservers = tservers

    async def create(self, epoch: Epoch, request: CreateTableRequest) -> Reply:
        """Create a table; return once the table is committed, before its tablets run."""
        return await self._once(epoch, request.request_id, lambda: self._create(epoch, request))

    async def alter(self, epoch: Epoch, request: AlterTableRequest) -> Reply:
        """Alter or rename a table; return once the change is committed, before tablets apply it."""

        def plan() -> Plan:
            now_ns = self._env.clock.wall_ns()
            return plan_alter(
                epoch.catalog,
                request,
                self._flags,
                now_ns=now_ns,
                new_id=self._node.new_id,
                stores_own_hash=Bug.KUDU_3723 in self._node.bugs,
            )

        async def execute() -> Reply:
            replicas = request.num_replicas
            if replicas is not None:
                await self._wait_alive(epoch, lambda alive: check_live(replicas, alive))
            return await self._on_table(epoch, request.table, request.request_id, plan)

        return await self._once(epoch, request.request_id, execute)

    async def delete(self, epoch: Epoch, request: DeleteTableRequest) -> Reply:
        """Delete a table; return once the deletion is committed, before replicas are deleted."""

        def plan() -> Plan:
            return plan_delete(epoch.catalog, request, now_ns=self._env.clock.wall_ns())

        return await self._once(
            epoch,
            request.request_id,
            lambda: self._on_table(epoch, request.table, request.request_id, plan, is_delete=True),
        )

    # --- exactly once ------------------------------------------------------------------------

    async def _once(
        self, epoch: Epoch, request_id: RequestId, execute: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        if Bug.KUDU_1537 in self._node.bugs:  # with this defect, the master ignores request ids
            return await execute()
        key = (request_id.client_id, request_id.seq_no)
        stored = epoch.catalog.find_reply(*key)
        if stored is not None:
            if stored.nonce != request_id.nonce:
                raise invalid_argument(
                    f"the request id {key} was used with nonce {stored.nonce!r} before, now with "
                    f"{request_id.nonce!r}; give every operation a new sequence number"
                )
            return stored
        first = epoch.in_flight.get(key)
        if first is not None:
            return _unwrap(await asyncio.shield(first))
        if len(epoch.in_flight) >= IN_FLIGHT_MAX:
            raise busy("DDL requests in flight", IN_FLIGHT_MAX)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        epoch.in_flight[key] = future
        try:
            reply = await execute()
            future.set_result(reply)
        except RefusedError as refusal:
            future.set_result(refusal)
            raise
        except BaseException:
            future.cancel()
            raise
        finally:
            # Drop `future`: a refusal's traceback refers to this frame, so the two would form a
            # cycle.
            del epoch.in_flight[key], future
        return reply

    # --- the operations ----------------------------------------------------------------------

    async def _create(self, epoch: Epoch, request: CreateTableRequest) -> Reply:
        check_create(request, self._flags)
        await self._wait_alive(epoch, lambda alive: check_placement(request, self._flags, alive))

        def plan_again() -> Plan:
            return plan_create(
                epoch.catalog,
                request,
                self._flags,
                new_id=self._node.new_id,
                now_ns=self._env.clock.wall_ns(),
            )

        plan = await confirmed(epoch, plan_again)
        if Bug.ORDER_CREATE in self._node.bugs:
            reply = _reply(plan, request.request_id)
            await create_unordered(self._env, epoch, plan, reply)
            stored = epoch.catalog.find_reply(*reply.key)
            assert stored is not None, "the batch was applied without its answer"
            return stored
        return await self._commit(epoch, plan, request.request_id)

    async def _wait_alive(self, epoch: Epoch, check: Callable[[int], None]) -> None:
        """Repeat `check(number of available tablet servers)` until it raises no `RefusedError`.

        A refusal is final only once this leader has been ready for two heartbeat intervals. A
        master that has just started does not know the tablet servers yet (KUDU-1358).
        """
        interval_ns = self._flags.heartbeat_interval_ms * 1_000_000
        waits = not self._node.bugs & {Bug.KUDU_1358, Bug.PLACE_AT_ONCE}
        until_ns = epoch.ready_ns + 2 * interval_ns * waits
        while True:
            now_ns = self._env.clock.monotonic_ns()
            try:
                check(len(available(epoch.catalog, self._tservers, self._flags, now_ns)))
            except RefusedError:
                if now_ns >= until_ns:
                    raise
            else:
                return
            await asyncio.sleep(min(interval_ns / 4, until_ns - now_ns) / 1e9)
            epoch.check()

    async def _on_table(
        self,
        epoch: Epoch,
        identifier: TableIdentifier,
        request_id: RequestId,
        plan_again: Callable[[], Plan],
        *,
        is_delete: bool = False,
    ) -> Reply:
        for _ in range(_RESOLVE_ATTEMPTS_MAX):
            table = await confirmed(epoch, lambda: epoch.catalog.find(identifier))
            async with epoch.locked([table.id]):
                plan = await confirmed(epoch, plan_again)
                if plan.table_id == table.id:
                    return await self._commit(epoch, plan, request_id, is_delete=is_delete)
            # The name now belongs to another table, whose lock this request does not hold.
        raise busy(f"attempts to lock the table {identifier}", _RESOLVE_ATTEMPTS_MAX)

    async def _commit(
        self, epoch: Epoch, plan: Plan, request_id: RequestId, *, is_delete: bool = False
    ) -> Reply:
        reply = _reply(plan, request_id)
        if not plan.tables:  # an alter that changes nothing writes nothing
            await epoch.confirm()
            return replace(reply, index=epoch.catalog.revision, term=epoch.term)
        bugs, is_new = self._node.bugs, plan.table_id not in epoch.catalog.tables
        if is_delete and Bug.ORDER_DELETE in bugs:
            send_deletes(self._env, epoch, plan)
        if plan.reserve is not None:
            epoch.catalog.reserve(plan.reserve, f"the operation {request_id.nonce!r}")
        try:
            if Bug.KUDU_495_SPLIT in bugs:
                applied = await write_split(self._env, epoch, plan, reply, is_delete=is_delete)
            elif Bug.RENAME_GAP in bugs and plan.reserve is not None and not is_new:
                applied = await rename_with_gap(epoch, plan, reply)
            else:
                applied = await epoch.write(plan.tables, plan.tablets, reply=reply)
        finally:
            if plan.reserve is not None:
                epoch.catalog.release(plan.reserve)
        if not (is_delete and Bug.ORDER_DELETE in bugs):
            if is_delete:
                epoch.tasks.abort_table(plan.table_id)
            epoch.after_commit(plan.calls)
        return replace(reply, index=applied.index, term=epoch.term)


def _reply(plan: Plan, request_id: RequestId) -> Reply:
    return Reply(
        request_id.client_id,
        request_id.seq_no,
        request_id.nonce,
        plan.table_id,
        plan.schema_version,
    )


def _unwrap(outcome: Outcome) -> Reply:
    if isinstance(outcome, RefusedError):
        raise outcome
    return outcome


async def confirmed(epoch: Epoch, look: Callable[[], Seen]) -> Seen:
    """Return `look()`; if it raises `RefusedError`, confirm leadership and call it again."""
    try:
        return look()
    except RefusedError:
        await epoch.confirm()
        return look()
