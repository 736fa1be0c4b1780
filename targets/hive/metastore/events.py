"""The notification log, whose entries are written in the same transactions as their changes.

As in `DbNotificationListener`, the next id is taken under a row lock (HIVE-16886), so ids rise in
commit order. In the profile `strict`, the times of events rise with the ids; in Hive, they come
from each metastore's own clock. A cleaner removes events that are older than the time to live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from harness.env import Env
from harness.ops import NS_PER_MS
from targets.hive.api import Event, MetastoreError, MetaTable
from targets.hive.bugs import Bug
from targets.hive.metastore.transactions import Transactions
from targets.hive.sql.protocol import Isolation, Row, Session, above, below, equal
from targets.hive.sql.schema import LOG, REQUESTS, SEQUENCE

_ONE: Final = equal(NNI_ID=1)
REQUESTS_TTL_MS: Final = 3_600_000
"""The time for which request ids are remembered. No copy of a request arrives later."""


class _Message(msgspec.Struct, frozen=True):
    before: MetaTable | None
    after: MetaTable | None


_message: Final = msgspec.json.Decoder(_Message)


def now_ms(env: Env) -> int:
    """Return the time of the metastore's wall clock, in ms since the epoch."""
    return env.clock.wall_ns() // NS_PER_MS


def event_of(row: Row) -> Event:
    """Convert a row of the notification log into an event."""
    message = _message.decode(str(row["MESSAGE"]))
    number, time_ms = row["EVENT_ID"], row["EVENT_TIME"]
    assert isinstance(number, int), "ids are numbers"
    assert isinstance(time_ms, int), "times are numbers"
    return Event(number, time_ms, str(row["EVENT_TYPE"]), message.before, message.after)


class Events:
    """The notification log, written and read within the callers' transactions."""

    def __init__(self, env: Env, transactions: Transactions, bugs: frozenset[Bug]) -> None:
        """Use the defects in `bugs`, which change an event's lock, clock or transaction."""
        self._env = env
        self._transactions = transactions
        self._bugs = bugs

    async def add(
        self, session: Session, before: MetaTable | None, after: MetaTable | None
    ) -> None:
        """Log a change. Call this last in a transaction, because it blocks all other changes."""
        if Bug.EVENT_ID_AHEAD in self._bugs:
            number, time_ms = await self._transactions.run(Isolation.READ_COMMITTED, self._next)
        else:
            number, time_ms = await self._next(session)
        kind = "DROP_TABLE" if after is None else "ALTER_TABLE"
        table = after or before
        assert table is not None, "a change concerns a table"
        entry: Row = {
            "EVENT_ID": number,
            "EVENT_TIME": time_ms,
            "EVENT_TYPE": kind if before else "CREATE_TABLE",
            "DB_NAME": table.database,
            "TBL_NAME": table.name,
            "MESSAGE": msgspec.json.encode(_Message(before, after)).decode(),
        }
        await session.insert(LOG, entry)
        self._env.event("change-written", event=number)

    async def _next(self, session: Session) -> tuple[int, int]:
        locked = Bug.HIVE_16886 not in self._bugs
        (row,) = await session.select(SEQUENCE, _ONE, for_update=locked)
        number, last_ms = row["NEXT_EVENT_ID"], row["LAST_TIME"]
        assert isinstance(number, int), "ids are numbers"
        assert isinstance(last_ms, int), "times are numbers"
        time_ms = now_ms(self._env)
        if Bug.HIVE_24468 not in self._bugs:
            time_ms = max(time_ms, last_ms)
        values: Row = {"NEXT_EVENT_ID": number + 1, "LAST_TIME": time_ms}
        await session.update(SEQUENCE, values, _ONE)
        return number, time_ms

    async def current_id(self, session: Session) -> int:
        """Return the id of the newest event; 0 if there is none."""
        (row,) = await session.select(SEQUENCE, _ONE)
        number = row["NEXT_EVENT_ID"]
        assert isinstance(number, int), "ids are numbers"
        return number - 1

    async def after(self, session: Session, last: int, most: int | None) -> Sequence[Event]:
        rows = await session.select(LOG, above("EVENT_ID", last), order="EVENT_ID", limit=most)
        return [event_of(row) for row in rows]


async def clean(env: Env, transactions: Transactions, *, ttl_ms: int, every_s: float) -> None:
    """Remove old events and old request ids periodically, until cancelled."""
    while True:
        await asyncio.sleep(every_s)
        limit_ms = now_ms(env) - ttl_ms

        async def remove(session: Session, limit_ms: int = limit_ms) -> int:
            old = below("MADE_AT", limit_ms + ttl_ms - REQUESTS_TTL_MS)
            await session.delete(REQUESTS, old)
            return await session.delete(LOG, below("EVENT_TIME", limit_ms))

        try:
            removed = await transactions.run(Isolation.READ_COMMITTED, remove)
        except MetastoreError:
            continue  # the database is unreachable: try again in the next round
        if removed:
            env.event("events-cleaned", count=removed)
