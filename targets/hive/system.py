"""The deployed bundled metastores, as the harness observes them during a run."""

from __future__ import annotations

import abc
import asyncio
import enum
import itertools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from harness.env import Address, ClientEnv
from harness.errors import UsageError
from harness.plugins import (
    Convergence,
    NodeRole,
    Restart,
    RestartingOperation,
    Roles,
    System,
    TargetSettings,
    override,
)
from targets.hive import api
from targets.hive.bugs import Bug, bugs_of
from targets.hive.client import ClientSettings, MetastoreClient, Selection, UriList
from targets.hive.client.calls import NONCE, event_row
from targets.hive.client.connection import Connect, Door, ask_once
from targets.hive.members import ADD, REMOVE, START_S, Members
from targets.hive.metastore.events import event_of
from targets.hive.metastore.reads import read_tables
from targets.hive.metastore.warehouse import read_directories
from targets.hive.sql.protocol import Isolation, Row, Session, SqlError
from targets.hive.sql.remote import DatabaseKind, database_at
from targets.hive.sql.schema import LOG, PARAMETERS, SEQUENCE
from targets.hive.tokens.manager import TokenTimes
from targets.hive.tokens.token_stores import StoreKind
from targets.hive.zookeeper.sessions import ZooKeeperKind

R = TypeVar("R")
K = TypeVar("K", bound=enum.StrEnum)
METASTORE_PORT: Final = 9083
DATABASE_PORT: Final = 5432
DATABASE_NODE: Final = "db"
DATABASE: Final = "database"
SERVICE: Final = "metastore"
ZOOKEEPER: Final = "zookeeper"
"""The group of ZooKeeper's nodes.

All nodes form the group `SERVICE`, whose leader is the database, because no request succeeds
without it. The database and ZooKeeper are also groups of their own, whose synced data no fault may
destroy.
"""
ZOOKEEPER_PORT: Final = 2181
SIMULATION: Final = "sim"
DATABASES: Final = ("default", "db1", "db2")
LOOKS_MAX: Final = 5


class Layout:
    """The nodes and the client settings of a deployment, derived from the target's options."""

    databases = DATABASES

    def __init__(self, settings: TargetSettings) -> None:
        """Derive the layout. Raises `UsageError` for impossible settings."""
        options = settings.options
        self.bugs = bugs_of(settings.profile, settings.bugs)
        count, spares = options["metastores"], options["spare_metastores"]
        every = [Address(f"hms{n}", METASTORE_PORT) for n in range(1, count + spares + 1)]
        self.metastores = tuple(every[:count])
        self.spares = tuple(every[count:])
        """Spare metastores. An operation may add them to the clients' list."""
        self.database = _real_or_ours(
            settings, "database", DatabaseKind.POSTGRES, DatabaseKind.STORE
        )
        usual = Selection.SEQUENTIAL if settings.profile == "strict" else Selection.RANDOM
        selection = options["selection"] or usual.value
        if selection not in [*Selection]:
            raise UsageError(
                f"--selection is {selection!r}; it must be one of: {', '.join(Selection)} "
                f"(by default, {settings.profile} has {usual.value})"
            )
        delay_s = options["retry_delay_ms"] / 1000
        self.client = ClientSettings(
            selection=Selection(selection),
            connect_rounds=options["connect_retries"],
            connect_delay_s=delay_s,
            retries=self._retries(options["failure_retries"]),
            retry_delay_s=delay_s,
            connect_s=options["connect_timeout_ms"] / 1000,
            socket_s=options["socket_timeout_ms"] / 1000,
            lifetime_s=options["socket_lifetime_ms"] / 1000,
            rereads=self._uri_list(settings) is UriList.REREAD,
        )
        self.token_store = self._token_store(settings)
        self.zookeeper = _real_or_ours(
            settings, "zookeeper", ZooKeeperKind.ENSEMBLE, ZooKeeperKind.NODE
        )
        self.zookeepers = tuple(
            Address(f"zk{number}", ZOOKEEPER_PORT)
            for number in range(1, self.zookeeper.servers + 1)
            if self.token_store is StoreKind.ZOOKEEPER
        )
        self.token_times = TokenTimes(
            options["token_max_age_ms"],
            options["token_renew_ms"],
            options["token_key_ms"],
            options["token_scan_ms"],
        )

    def _uri_list(self, settings: TargetSettings) -> UriList:
        chosen = settings.options["uri_list"]
        usual = UriList.REREAD if settings.profile == "strict" else UriList.KEPT
        if chosen not in ["", *UriList]:
            raise UsageError(
                f"--uri-list is {chosen!r}; it must be one of: {', '.join(UriList)} "
                f"(by default, {settings.profile} has {usual.value})"
            )
        if chosen and not self.spares:
            raise UsageError(
                f"--uri-list is {chosen!r}, but the list of metastores only changes with "
                "--spare-metastores; add --spare-metastores, or leave --uri-list out"
            )
        return UriList(chosen or usual)

    def _token_store(self, settings: TargetSettings) -> StoreKind:
        chosen = settings.options["token_store"]
        usual = StoreKind.MEMORY if Bug.TOKEN_MEMORY in self.bugs else StoreKind.DB
        if chosen not in ["", *StoreKind]:
            raise UsageError(
                f"--token-store is {chosen!r}; it must be one of: {', '.join(StoreKind)} "
                f"(by default {usual.value})"
            )
        if chosen not in ("", StoreKind.MEMORY) and Bug.TOKEN_MEMORY.id in settings.bugs:
            raise UsageError(
                f"--token-store is {chosen!r}, but the bug TOKEN-MEMORY needs the store 'memory'; "
                "leave out --token-store or the bug"
            )
        return StoreKind(chosen or usual)

    def _retries(self, given: int) -> int:
        """Return how often a client retries a call whose answer was lost.

        In the profile `strict`, a client may try a lost call at every metastore. Hive's clients
        retry `given` times, even if there are more metastores.
        """
        if given == 0 or Bug.FAILBACK_FLAP in self.bugs:
            return given
        return max(given, len(self.metastores) + len(self.spares) - 1)


def _real_or_ours(settings: TargetSettings, option: str, real: K, ours: K) -> K:
    kinds = type(real)
    usual = ours if settings.environment in (None, SIMULATION) else real
    chosen = settings.options[option] or usual.value
    if chosen not in [*kinds]:
        raise UsageError(
            f"--{option} is {chosen!r}; it must be one of: {', '.join(kinds)} (by default "
            f"{real.value} in processes and containers, and {ours.value} in simulations)"
        )
    return kinds(chosen)


class MetastoreSystem(System):
    """The metastores and the database of one deployment, bundled or real."""

    ask_s = 1.0
    outside_max = 2
    """Maximum number of metastores that may fail at once."""
    bugs: frozenset[Bug] = frozenset()
    """Defects of clients, in addition to the layout's defects."""
    no_token = "nobody:nobody:0:0:0:0:none"  # noqa: S105 - an invalid token
    """An invalid token in the right format, for which a metastore searches its token store."""

    def __init__(
        self,
        env: ClientEnv,
        layout: Layout,
        connect: Connect,
        *,
        more_groups: Mapping[str, Sequence[str]],
        start_s: float = START_S,
    ) -> None:
        """Observe the metastores of `layout`. `more_groups` maps further groups to their nodes.

        An added metastore must serve within `start_s`.
        """
        self._env = env
        self._layout = layout
        self._connect = connect
        zookeepers = [address.node for address in layout.zookeepers]
        self._more_groups = {**more_groups, **({ZOOKEEPER: zookeepers} if zookeepers else {})}
        self._others = (DATABASE_NODE, *itertools.chain.from_iterable(self._more_groups.values()))
        self._members = Members(layout.metastores, layout.spares, self._serves, start_s=start_s)

    def client(self, process: int) -> MetastoreClient:
        layout, members = self._layout, self._members
        return MetastoreClient(
            self._env,
            members.listed,
            layout.client,
            process=process,
            bugs=layout.bugs | self.bugs,
            connect=self._connect,
            listed=(lambda: members.listed) if layout.spares else None,
        )

    def core(self, rng: random.Random) -> Sequence[str]:
        """Draw enough nodes to serve: the database, ZooKeeper, the KDC and some metastores.

        At least one listed metastore is drawn. At most `outside_max` are not drawn, because a
        client only tries a few metastores.
        """
        names = [address.node for address in self._members.listed]
        core = rng.sample(names, max(1, len(names) - self.outside_max))
        return [*(name for name in names if name in core), *self._others]

    @override
    def restarting(self) -> Mapping[str, RestartingOperation]:
        return {ADD: self._members.add, REMOVE: self._members.remove}

    @override
    async def restore(self, restart: Restart) -> None:
        await self._members.restore(restart)

    async def groups(self) -> Mapping[str, Roles]:
        """Return the roles in each group: the database leads, and metastores that answer follow."""
        active = {name: NodeRole("follower") for name in await self._alive()}
        leads = {DATABASE_NODE: NodeRole("leader")} if await self._database_answers() else {}
        every = tuple(address.node for address in self._members.listed)
        return {
            SERVICE: Roles({**active, **leads}, (*every, *self._others)),
            DATABASE: Roles(leads, (DATABASE_NODE,)),
            **{name: Roles({}, tuple(nodes)) for name, nodes in self._more_groups.items()},
        }

    @abc.abstractmethod
    async def _alive(self) -> Sequence[str]:
        """Return the names of the listed metastores that answer."""

    @abc.abstractmethod
    async def _database_answers(self) -> bool: ...

    @abc.abstractmethod
    async def _dump(self) -> dict[str, Any] | None:
        """Return one snapshot of the database, or `None` if the database does not answer."""

    @override
    async def snapshot(self) -> dict[str, Any]:
        """Return the database's rows, the tables that each metastore shows, and the failover bound.

        An operation that a client gave up may still change tables. So the database is read before
        and after the metastores are asked, repeatedly until both reads agree. If they never agree,
        the metastores' tables are left out.
        """
        layout, listed = self._layout, self._members.listed
        rows, views = await self._dump(), {}
        for _ in range(LOOKS_MAX):
            before = rows
            views = await self._ask_all(api.GetTableMeta())
            rows = await self._dump()
            if rows == before:
                break
        else:
            views = dict.fromkeys(views)
        bound_s, count = layout.client.failover_s, len(layout.metastores) + len(layout.spares)
        more = {
            "members": [address.node for address in listed],
            "failover_by_uris_s": [bound_s(n + 1) for n in range(count)],
        }
        return {
            "rows": rows,
            "at": None if rows is None else {"event": rows["next_event"] - 1},
            "metastores": {
                name: None if tables is None else [".".join(table) for table in tables]
                for name, tables in views.items()
            },
            "failover_s": bound_s(len(listed)),
            **(more if layout.spares else {}),
            "tokens": {
                "max_age_ms": layout.token_times.max_age_ms,
                "renew_ms": layout.token_times.renew_ms,
            },
        }

    # --- calls -------------------------------------------------------------------------------

    async def _without_tokens(self) -> list[str]:
        every = self._members.listed
        replies = await asyncio.gather(
            *(self._reply(address, api.Authenticate(self.no_token)) for address in every)
        )
        return [
            f"{address.node} does not reach ZooKeeper"
            for address, reply in zip(every, replies, strict=True)
            if reply is None or reply.error != api.INVALID_TOKEN
        ]

    async def _serves(self, address: Address) -> bool:
        reply = await self._reply(address, api.GetCurrentEventId())
        return reply is not None and not reply.error

    async def _ask_all(self, call: api.ApiCall) -> dict[str, Any]:
        every = self._members.listed
        replies = await asyncio.gather(*(self._reply(address, call) for address in every))
        return {
            address.node: None if reply is None or reply.error else reply.result
            for address, reply in zip(every, replies, strict=True)
        }

    async def _reply(self, address: Address, call: api.ApiCall) -> api.Reply | None:
        return await ask_once(self._connect, address, call, timeout_s=self.ask_s)


class HiveSystem(MetastoreSystem):
    """The deployed bundled metastores and their database."""

    def __init__(self, env: ClientEnv, layout: Layout) -> None:
        super().__init__(env, layout, Door(env), more_groups={})
        self._database = database_at(
            env,
            Address(DATABASE_NODE, DATABASE_PORT),
            layout.database,
            connect_s=self.ask_s,
            answer_s=self.ask_s,
        )

    async def ready(self) -> Convergence:
        """Check that every metastore reaches the database and, if it stores tokens, ZooKeeper."""
        answers = await self._ask_all(api.GetCurrentEventId())
        pending = [f"{name} does not answer" for name, a in answers.items() if a is None]
        at = {"event": max(a for a in answers.values() if a is not None)} if not pending else None
        if self._layout.zookeepers and not pending:
            pending = await self._without_tokens()
        return Convergence(ok=not pending, pending=tuple(pending), at=at)

    converged = ready

    @override
    async def _alive(self) -> Sequence[str]:
        answers = await self._ask_all(api.GetStatus())
        return [name for name, answer in answers.items() if answer == "ALIVE"]

    @override
    async def _database_answers(self) -> bool:
        return await self._look(Isolation.READ_COMMITTED, _sequence) is not None

    @override
    async def _dump(self) -> dict[str, Any] | None:
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


async def _sequence(session: Session) -> Row:
    (row,) = await session.select(SEQUENCE)
    return row


async def _dumped(session: Session) -> dict[str, Any]:
    tables = await read_tables(session)
    parameters = await session.select(PARAMETERS)
    events = await session.select(LOG, order="NL_ID")
    sequence = await _sequence(session)
    directories = await read_directories(session)
    idents = [table.ident for table in tables]
    return {
        "tables": [[t.full_name, t.ident, t.parameters.get(NONCE)] for t in tables],
        "orphans": [row["TBL_ID"] for row in parameters if row["TBL_ID"] not in idents],
        "directories": directories,
        "events": [event_row(event_of(row)) for row in events],
        "next_event": sequence["NEXT_EVENT_ID"],
    }
