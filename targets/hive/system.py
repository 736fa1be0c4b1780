"""The bundled metastores as the harness looks at them while they run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from harness.env import Address, ClientEnv
from harness.errors import UsageError
from harness.plugins import Convergence, NodeRole, Roles, TargetSettings
from targets.hive import api
from targets.hive.bugs import Bug, bugs_of
from targets.hive.client import ClientSettings, MetastoreClient, Selection
from targets.hive.client.calls import NONCE, event_row
from targets.hive.metastore.events import event_of
from targets.hive.metastore.reads import read_tables
from targets.hive.sql.kinds import DatabaseKind, database_at
from targets.hive.sql.protocol import Isolation, Row, Session, SqlError
from targets.hive.sql.schema import LOG, PARAMETERS, SEQUENCE
from targets.hive.wire import Channel, ChannelError

__all__ = [
    "DATABASE",
    "DATABASE_NODE",
    "DATABASE_PORT",
    "METASTORE_PORT",
    "SERVICE",
    "HiveSystem",
    "Layout",
]

R = TypeVar("R")
METASTORE_PORT: Final = 9083
DATABASE_PORT: Final = 5432
DATABASE_NODE: Final = "db"
DATABASE: Final = "database"
SERVICE: Final = "metastore"
"""Groups. All nodes are one service, led by its database: without that nothing is served. The
database is alone in the other, so that no fault may destroy what it has synced.
"""
SIMULATION: Final = "sim"
DATABASES: Final = ("default", "db1", "db2")
OUTSIDE_MAX: Final = 2
_ASK_S: Final = 1.0
_reply: Final = msgspec.msgpack.Decoder(api.Reply)


class Layout:
    """The nodes and clients that the settings ask for."""

    databases = DATABASES

    def __init__(self, settings: TargetSettings) -> None:
        """Raises `UsageError` for impossible settings."""
        options = settings.options
        self.bugs = bugs_of(settings.profile, settings.bugs)
        self.metastores = tuple(
            Address(f"hms{number}", METASTORE_PORT)
            for number in range(1, options["metastores"] + 1)
        )
        self.database = self._database(settings)
        usual = Selection.SEQUENTIAL if settings.profile == "strict" else Selection.RANDOM
        given = options["selection"] or usual.value
        if given not in [*Selection]:
            raise UsageError(
                f"--selection is {given!r}; it must be one of: {', '.join(Selection)}, or leave it "
                f"out: {settings.profile} has {usual.value}"
            )
        delay_s = options["retry_delay_ms"] / 1000
        self.client = ClientSettings(
            selection=Selection(given),
            connect_rounds=options["connect_retries"],
            connect_delay_s=delay_s,
            retries=self._retries(options["failure_retries"]),
            retry_delay_s=delay_s,
            connect_s=options["connect_timeout_ms"] / 1000,
            socket_s=options["socket_timeout_ms"] / 1000,
            lifetime_s=options["socket_lifetime_ms"] / 1000,
        )

    def _database(self, settings: TargetSettings) -> DatabaseKind:
        """As asked, else a real one wherever programs run."""
        usual = DatabaseKind.STORE
        if settings.environment not in (None, SIMULATION):
            usual = DatabaseKind.POSTGRES
        given = settings.options["database"] or usual.value
        if given not in [*DatabaseKind]:
            raise UsageError(
                f"--database is {given!r}; it must be one of: {', '.join(DatabaseKind)}, or leave "
                "it out: it is postgres in processes and containers, and store in simulation"
            )
        return DatabaseKind(given)

    def _retries(self, given: int) -> int:
        """In `strict` a lost call is tried at every metastore; Hive's clients do not count them."""
        if given == 0 or Bug.FAILBACK_FLAP in self.bugs:
            return given
        return max(given, len(self.metastores) - 1)


class HiveSystem:
    """Metastores and database of one deployment (`harness.plugins.System`)."""

    def __init__(self, env: ClientEnv, layout: Layout) -> None:
        """Nothing is asked yet."""
        self._env = env
        self._layout = layout
        self._database = database_at(
            env,
            Address(DATABASE_NODE, DATABASE_PORT),
            layout.database,
            connect_s=_ASK_S,
            answer_s=_ASK_S,
        )

    def client(self, process: int) -> MetastoreClient:
        """A client with a connection of its own, like a process of its own."""
        layout = self._layout
        return MetastoreClient(
            self._env, layout.metastores, layout.client, process=process, bugs=layout.bugs
        )

    def core(self, rng: random.Random) -> Sequence[str]:
        """The database, and any metastore; of many all but two, as clients have time for three."""
        names = [address.node for address in self._layout.metastores]
        core = rng.sample(names, max(1, len(names) - OUTSIDE_MAX))
        return [*(name for name in names if name in core), DATABASE_NODE]

    async def groups(self) -> Mapping[str, Roles]:
        """The database leads where it answers; metastores follow, and are all alike."""
        answers = await self._ask_all(api.GetStatus())
        alive = [name for name, answer in answers.items() if answer == "ALIVE"]
        active = {name: NodeRole("follower") for name in alive}
        serves = await self._look(Isolation.READ_COMMITTED, _sequence) is not None
        leads = {DATABASE_NODE: NodeRole("leader")} if serves else {}
        every = tuple(address.node for address in self._layout.metastores)
        return {
            SERVICE: Roles({**active, **leads}, (*every, DATABASE_NODE)),
            DATABASE: Roles(leads, (DATABASE_NODE,)),
        }

    async def ready(self) -> Convergence:
        """Whether every metastore reaches the database, and which event was the last then."""
        answers = await self._ask_all(api.GetCurrentEventId())
        pending = tuple(f"{name} does not answer" for name, a in answers.items() if a is None)
        at = {"event": max(a for a in answers.values() if a is not None)} if not pending else None
        return Convergence(ok=not pending, pending=pending, at=at)

    converged = ready

    async def snapshot(self) -> dict[str, Any]:
        """The rows of the database, what each metastore shows, and the clients' bound."""
        shown = await self._ask_all(api.GetTableMeta())
        uris = len(self._layout.metastores)
        rows = await self._dump()
        return {
            "rows": rows,
            "at": None if rows is None else {"event": rows["next_event"] - 1},
            "metastores": {
                name: None if tables is None else [".".join(table) for table in tables]
                for name, tables in shown.items()
            },
            "failover_s": self._layout.client.failover_s(uris),
        }

    async def _dump(self) -> dict[str, Any] | None:
        """What the database holds, of one moment; `None` where it does not answer."""
        return await self._look(Isolation.SERIALIZABLE, _dumped)

    async def _look(
        self, isolation: Isolation, look: Callable[[Session], Awaitable[R]]
    ) -> R | None:
        try:
            session = await self._database.connect()
        except SqlError:
            return None
        try:
            await session.begin(isolation)
            return await look(session)
        except SqlError:
            return None
        finally:
            session.close()

    # --- calls -------------------------------------------------------------------------------

    async def _ask_all(self, call: api.ApiCall) -> dict[str, Any]:
        """What each metastore answers; `None` for those that do not."""
        every = self._layout.metastores
        answers = await asyncio.gather(*(self._ask(address, call) for address in every))
        return {address.node: one for address, one in zip(every, answers, strict=True)}

    async def _ask(self, address: Address, call: api.ApiCall) -> Any:
        try:
            channel = await Channel.open(self._env, address, timeout_s=_ASK_S)
            raw = await channel.call(call, timeout_s=_ASK_S)
        except ChannelError:
            return None
        channel.close()
        reply = _reply.decode(raw)
        return None if reply.error else reply.result


async def _sequence(session: Session) -> Row:
    """The one row that is always there."""
    (row,) = await session.select(SEQUENCE)
    return row


async def _dumped(session: Session) -> dict[str, Any]:
    tables = await read_tables(session)
    parameters = await session.select(PARAMETERS)
    events = await session.select(LOG, order="NL_ID")
    sequence = await _sequence(session)
    idents = [table.ident for table in tables]
    return {
        "tables": [[t.full_name, t.ident, t.parameters.get(NONCE)] for t in tables],
        "orphans": [row["TBL_ID"] for row in parameters if row["TBL_ID"] not in idents],
        "events": [event_row(event_of(row)) for row in events],
        "next_event": sequence["NEXT_EVENT_ID"],
    }
