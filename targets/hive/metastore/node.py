"""The node `hmsN`: a metastore, which has all its state in the database and none on its disk.

The keys of `config` are: `port`, `database` (its address), `database_kind`, `profile`, `bugs`,
`event_ttl_ms`, `clean_every_s`, `token_store`, `token_times`, `zookeeper` (the servers' addresses),
`zookeeper_kind`, `kudu` (whether Kudu's plug-in is configured), and `serves`. Without `serves`, the
metastore waits until it is added (`targets.hive.members`).
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from harness.env import Address, Env
from targets.hive.bugs import bugs_of
from targets.hive.channel import configured, listening, serve, until_stopped
from targets.hive.metastore.events import clean
from targets.hive.metastore.service import Service
from targets.hive.metastore.transactions import Transactions
from targets.hive.sql.remote import DatabaseKind, database_at
from targets.hive.tokens.manager import DEFAULT_TIMES, TokenManager, TokenTimes
from targets.hive.tokens.token_stores import StoreKind, open_store
from targets.hive.zookeeper.sessions import ZooKeeperKind, session_with

CONNECTIONS_MAX = 1000
"""Maximum number of concurrent clients, like `hive.metastore.server.max.threads`."""


class MetastoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of a metastore."""

    port: int
    database: tuple[str, int]
    database_kind: DatabaseKind = DatabaseKind.STORE
    profile: str = "strict"
    bugs: tuple[str, ...] = ()
    event_ttl_ms: int = 86_400_000
    clean_every_s: float = 0.5
    token_store: StoreKind = StoreKind.DB
    token_times: TokenTimes = DEFAULT_TIMES
    zookeeper: tuple[tuple[str, int], ...] = ()
    zookeeper_kind: ZooKeeperKind = ZooKeeperKind.NODE
    kudu: bool = False
    serves: bool = True


async def main(env: Env, config: dict[str, Any]) -> None:
    """Run a metastore until it is cancelled. Raises `UsageError` for a bad `config`."""
    settings = configured(MetastoreConfig, config, "a metastore")
    if not settings.serves:
        env.event("metastore-idle", port=settings.port)
        await until_stopped()
    database = database_at(env, Address(*settings.database), settings.database_kind)
    transactions = Transactions(env, database)
    bugs = bugs_of(settings.profile, settings.bugs)
    servers = [Address(*server) for server in settings.zookeeper]
    store = open_store(
        env,
        settings.token_store,
        transactions,
        lambda: session_with(env, servers, settings.zookeeper_kind),
    )
    tokens = TokenManager(env, store, settings.token_times, bugs)
    service = Service(env, transactions, tokens, bugs, kudu=settings.kudu)
    converse = functools.partial(serve, handle=service.answer)
    try:
        async with listening(env, settings.port, converse, sessions_max=CONNECTIONS_MAX):
            ttl_ms, every_s = settings.event_ttl_ms, settings.clean_every_s
            env.spawn(clean(env, transactions, ttl_ms=ttl_ms, every_s=every_s), name="cleaner")
            env.spawn(tokens.keep(), name="tokens")
            env.event("metastore-started", port=settings.port)
            await until_stopped()
    finally:
        transactions.close()
