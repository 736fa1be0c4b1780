"""A cache of table locations, as masters reported them.

Locations are valid for as long as the master specified (`table_locations_ttl_ms`). Afterwards, the
client requests them again in the background, while the operation continues with the cached ones. An
operation waits for a master only if no replica is known or all known replicas refuse: tablet
servers can serve rows while the masters are down.

The cached leader of a tablet may be wrong. It is the replica that a master named as the leader, or
the replica that last answered as the leader.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from typing import Any, Final

from harness.env import Env
from targets.kudu import messages as m
from targets.kudu.client.classify import is_of_another
from targets.kudu.client.leader import LeaderFinder
from targets.kudu.client.session import Deadline, RetryPolicy
from targets.kudu.partitions import key_columns, partition_key, tablet_position
from targets.kudu.rpc import Caller, RpcError

TABLES_MAX: Final = 1000
"""Maximum number of tables in the cache. The table with the oldest locations is evicted."""
TABLETS_MAX: Final = 10_000
_REFRESH_LIMIT_S: Final = 5.0


class Gone(Exception):  # noqa: N818 - an answer, not an error
    """The table does not exist, according to a leading master."""


@dataclasses.dataclass(slots=True)
class Tablet:
    """A tablet. `replicas` are addresses. `leader` is one of these, or `None` if unknown."""

    tablet_id: str
    partition: m.Partition
    replicas: tuple[str, ...]
    leader: str | None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table as a master described it; its `tablets` are in key order."""

    table_id: str
    schema: m.Schema
    partition_schema: m.PartitionSchema
    tablets: tuple[Tablet, ...]
    expires_ns: int

    @functools.cached_property
    def column_ids(self) -> dict[str, int]:
        """Map the names of the columns outside the key to their ids."""
        return {column.name: column.id for column in self.schema.columns if not column.is_key}

    @functools.cached_property
    def _starts(self) -> tuple[bytes, ...]:
        return tuple(tablet.partition.start for tablet in self.tablets)

    @functools.cached_property
    def key(self) -> tuple[m.Column, ...]:
        return key_columns(self.schema)

    def tablet_of(self, key: tuple[Any, ...]) -> Tablet:
        """Return the tablet that owns a key. Raises `ValueError` if it does not fit the columns."""
        place = partition_key(self.partition_schema, self.key, key)
        return self.tablets[tablet_position(self._starts, place)]


class TableCache:
    """One client's cache of tables and their locations."""

    def __init__(self, env: Env, rpc: Caller, leader: LeaderFinder, policy: RetryPolicy) -> None:
        self._env = env
        self._rpc = rpc
        self._leader = leader
        self._policy = policy
        self._tables: dict[str, Table] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}

    def close(self) -> None:
        for task in self._refreshing.values():
            task.cancel()

    async def find(self, name: str, deadline: Deadline) -> Table | None:
        """Return a table from the cache or a master; `None` at the deadline. Raises `Gone`."""
        table = self._tables.get(name)
        if table is None:
            return await self.ask(name, deadline)
        if table.expires_ns <= self._env.clock.monotonic_ns() and name not in self._refreshing:
            task = self._env.spawn(self._refresh(name), name=f"locations of {name}")
            self._refreshing[name] = task
            task.add_done_callback(lambda _: self._refreshing.pop(name, None))
        return table

    async def ask(self, name: str, deadline: Deadline) -> Table | None:
        """Return a table from a leading master; `None` at the deadline. Raises `Gone`."""
        attempt = 0
        while True:
            address = await self._leader.find(deadline)
            if address is None or deadline.left_s <= 0:
                return None
            answer = await self._ask_once(address, name, deadline)
            if answer is not None:
                self._keep(name, answer)
                return answer
            attempt += 1
            if deadline.left_s <= 0:
                return None
            await deadline.pause(self._policy.backoff_s(attempt))

    def _keep(self, name: str, table: Table) -> None:
        self._tables.pop(name, None)
        self._tables[name] = table
        if len(self._tables) > TABLES_MAX:
            del self._tables[next(iter(self._tables))]

    async def _refresh(self, name: str) -> None:
        try:
            await self.ask(name, Deadline(self._env.clock, _REFRESH_LIMIT_S))
        except Gone:
            self._tables.pop(name, None)

    async def _ask_once(self, address: str, name: str, deadline: Deadline) -> Table | None:
        most_s = self._policy.read_attempt_timeout_s
        which = m.TableIdentifier(table_name=name)
        try:
            schema = await self._rpc.call(
                address,
                m.GetTableSchemaRequest(table=which),
                timeout_s=deadline.limit_s(most_s),
            )
            if self._refused(name, schema.error):
                return None
            where = await self._rpc.call(
                address,
                m.GetTableLocationsRequest(
                    table=m.TableIdentifier(table_id=schema.table_id),
                    max_returned_locations=TABLETS_MAX,
                ),
                timeout_s=deadline.limit_s(most_s),
            )
        except RpcError:
            self._leader.forget()
            return None
        if self._refused(name, where.error) or not where.tablets:
            return None
        return Table(
            schema.table_id,
            schema.schema,
            schema.partition_schema,
            tuple(_tablet(tablet) for tablet in where.tablets),
            self._env.clock.monotonic_ns() + where.ttl_ms * 1_000_000,
        )

    def _refused(self, name: str, error: m.MasterError | None) -> bool:
        if error is None:
            return False
        code, status = error.code, error.status
        if code is m.MasterErrorCode.TABLE_NOT_FOUND and status is m.AppStatus.NOT_FOUND:
            self._tables.pop(name, None)
            raise Gone(error.message)
        if is_of_another(error):
            self._leader.forget()
        return True


def _tablet(location: m.TabletLocations) -> Tablet:
    leaders = [replica.address for replica in location.replicas if replica.role == "LEADER"]
    return Tablet(
        location.tablet_id,
        location.partition,
        tuple(r.address for r in location.replicas if r.member_type == "VOTER"),
        leaders[0] if leaders else None,
    )
