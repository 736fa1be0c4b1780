"""Each token store passes the common cases."""

import asyncio

import pytest

from targets.hive.metastore.transactions import Transactions
from targets.hive.tokens.database import DatabaseTokens
from targets.hive.tokens.token_stores import MemoryTokens
from tests.hive.databases import with_store
from tests.hive.tokens.token_stores import CASES

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


@by_case
def test_the_memory(case):
    store = MemoryTokens()
    asyncio.run(case(store, store))
    assert len(CASES) > 6


def on_the_database(case, **options):
    async def body(database, session):
        both = [DatabaseTokens(session.env, Transactions(session.env, database)) for _ in range(2)]
        await case(*both)

    with_store(body, **options)


@by_case
def test_the_database(case):
    on_the_database(case)
