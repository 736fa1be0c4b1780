"""Helpers that start a database without metastores, and open sessions with it."""

import asyncio
import contextlib

from harness.cluster import NodeSpec
from harness.env import Address
from harness.plugins import DeploymentPlan
from harness.registry import load_plugin
from targets.hive.sql.protocol import ConnectionLostError, Isolation
from targets.hive.sql.remote import DatabaseKind, database_at
from targets.hive.sql.server import postgres_node

PORT = 5432
READ_COMMITTED, SERIALIZABLE = Isolation.READ_COMMITTED, Isolation.SERIALIZABLE


def with_store(body, *, seed=1, environment="sim", **config):
    """Run `body(database, session)` against a node with the bundled database."""
    spec = NodeSpec(
        name="db",
        role="db",
        ports=(PORT,),
        entry="targets.hive.sql.node:main",
        config={"port": PORT, "databases": ["d1", "d2"], **config},
    )
    return _with_database(body, spec, DatabaseKind.STORE, seed, environment)


def with_postgres(body, *, seed=1, environment="process", **settings):
    """Run `body(database, session)` against a PostgreSQL."""
    spec = postgres_node("db", PORT, ("d1", "d2"), **settings)
    return _with_database(body, spec, DatabaseKind.POSTGRES, seed, environment)


def _with_database(body, spec, kind, seed, environment):
    plan = DeploymentPlan(run_id="sql", nodes=(spec,), seed=seed, knobs={}, folder=None)

    async def main(session):
        database = database_at(session.env, Address("db", PORT), kind)
        await answers(database)
        return await body(database, session)

    return load_plugin("environments", environment).execute(plan, main)


async def answers(database):
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ConnectionLostError):
                async with transaction(database):
                    return
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def transaction(database, isolation=READ_COMMITTED):
    """Open a session and a transaction, which the body may end; close the session afterwards."""
    session = await database.connect()
    try:
        await session.begin(isolation)
        yield session
    finally:
        session.close()
