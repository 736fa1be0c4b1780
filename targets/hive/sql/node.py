"""The node `db`: the bundled store as a server, with one session per connection.

When a connection ends, its transaction is rolled back. The keys of `config` are `port`, `databases`
(Hive's databases, which the first start creates), `fsync`, `log_bytes_max` (a checkpoint replaces a
larger log), and `idle_s`.

A session with an open transaction that sends nothing for `idle_s` is closed, as with PostgreSQL's
`idle_in_transaction_session_timeout`. Otherwise a paused metastore would keep its locks and block
all other metastores. `idle_s` is shorter than a client's timeout, so a call that waits for such a
lock still succeeds in time.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.env import Conn, Env
from targets.hive.channel import IdleError, configured, listening, serve, until_stopped
from targets.hive.sql.engine import Engine, SessionState
from targets.hive.sql.journal import LOG_BYTES_MAX, Journal
from targets.hive.sql.protocol import RefusedStatementError, SqlError, Statement
from targets.hive.sql.remote import Reply
from targets.hive.sql.schema import first_rows

_statement: Final = msgspec.msgpack.Decoder(Statement)
SESSIONS_MAX: Final = 100
"""Maximum number of connections, like PostgreSQL's `max_connections`."""


class StoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of the node `db`."""

    port: int
    databases: tuple[str, ...]
    fsync: bool = True
    idle_s: float = 1.0
    log_bytes_max: int = LOG_BYTES_MAX


async def main(env: Env, config: dict[str, Any]) -> None:
    """Run the database until it is cancelled. Raises `UsageError` for a bad `config`."""
    settings = configured(StoreConfig, config, "the database")
    journal = Journal(
        env.disk,
        sync=settings.fsync,
        log_bytes_max=settings.log_bytes_max,
        announce=env.point,
    )
    await journal.open(first_rows(settings.databases))
    engine = Engine(journal.store, journal.write)

    async def converse(conn: Conn) -> None:
        session = SessionState()
        try:
            await serve(
                conn,
                lambda body: _answer(engine, session, body),
                idle_s=lambda: settings.idle_s if session.transaction else None,
            )
        except IdleError:
            env.event("session-idle", peer=conn.peer)
        finally:
            engine.abort(session)

    async with listening(env, settings.port, converse, sessions_max=SESSIONS_MAX):
        env.event("database-started", rows=sum(map(len, journal.store.rows.values())))
        await until_stopped()


async def _answer(engine: Engine, session: SessionState, body: msgspec.Raw) -> Reply:
    try:
        return Reply(await engine.execute(session, _statement.decode(body)))
    except SqlError as error:
        return Reply(None, error.code, str(error))
    except msgspec.MsgspecError as error:
        return Reply(None, RefusedStatementError.code, f"not a statement: {error}")
