"""The kinds of databases behind the protocol, and sessions with them."""

from __future__ import annotations

import enum

from harness.env import Address, Env
from targets.hive.sql.protocol import Database
from targets.hive.sql.remote import StoreDatabase


class DatabaseKind(enum.StrEnum):
    """The database programs that the node `db` can run."""

    STORE = "store"
    POSTGRES = "postgres"


def database_at(env: Env, address: Address, kind: DatabaseKind, **bounds: float) -> Database:
    """The database at an address; `bounds` are the timeouts `connect_s` and `answer_s`."""
    if kind is DatabaseKind.STORE:
        return StoreDatabase(env, address, **bounds)
    from targets.hive.sql.postgres import PostgresDatabase  # never in simulation

    return PostgresDatabase(env, address, **bounds)
