"""The guarantees of every database behind the metastores, with one test per guarantee.

Each test is a coroutine over a `Database` that holds only `schema.first_rows`. `CASES` lists the
tests, and the tests of each database run all of them.
"""

import asyncio
import contextlib

import pytest

from targets.hive.sql.protocol import (
    ConnectionLostError,
    DeadlockError,
    RefusedStatementError,
    SerializationError,
    SqlError,
    UniqueKeyError,
    above,
    below,
    equal,
)
from targets.hive.sql.schema import DATABASES, LOG, PARAMETERS, SEQUENCE, TABLES
from tests.hive.databases import READ_COMMITTED, SERIALIZABLE, transaction

ONE = equal(NNI_ID=1)


def table(name, database="d1"):
    return {"DB_NAME": database, "TBL_NAME": name, "COLUMNS": "a"}


async def put(database, *rows, into=TABLES):
    async with transaction(database) as session:
        for row in rows:
            serial = await session.insert(into, row)
        await session.commit()
    return serial


async def seen(database, where=(), of=TABLES, **options):
    async with transaction(database) as session:
        return await session.select(of, where, **options)


async def names(database, where=()):
    return sorted(row["TBL_NAME"] for row in await seen(database, where))


async def waits(task):
    """Whether a task still waits once no other task can make progress."""
    await asyncio.sleep(0.5)
    return not task.done()


@contextlib.asynccontextmanager
async def two(database, isolation):
    async with transaction(database, isolation) as one, transaction(database, isolation) as other:
        yield one, other


async def next_id(session, **options):
    row = (await session.select(SEQUENCE, ONE, **options))[0]
    return row["NEXT_EVENT_ID"]


# --- one transaction ---------------------------------------------------------------------------


async def test_the_schema_begins_with_its_rows(database):
    rows = await seen(database, of=DATABASES, order="DB_ID")
    assert [row["NAME"] for row in rows] == ["d1", "d2"]
    assert [row["NEXT_EVENT_ID"] for row in await seen(database, of=SEQUENCE)] == [1]


async def test_rows_come_and_go(database):
    first = await put(database, table("x"))
    second = await put(database, table("y"))
    assert first < second
    async with transaction(database) as session:
        assert await session.update(TABLES, {"TBL_NAME": "z"}, equal(TBL_ID=first)) == 1
        assert await session.update(TABLES, {"COLUMNS": "b"}, equal(TBL_NAME="none")) == 0
        assert await session.delete(TABLES, equal(TBL_ID=second)) == 1
        # the transaction's own writes, which no other session sees yet
        own = [row["TBL_NAME"] for row in await session.select(TABLES)]
        assert own == ["z"]
        assert await names(database) == ["x", "y"]
        await session.commit()
    assert await names(database) == ["z"]


async def test_conditions_order_and_limit(database):
    rows = [
        {"EVENT_ID": n, "EVENT_TIME": 10 * n, "EVENT_TYPE": "T", "DB_NAME": "d1", "TBL_NAME": "x",
         "MESSAGE": ""}
        for n in (3, 1, 2, 4)
    ]  # fmt: skip
    await put(database, *rows, into=LOG)
    found = await seen(database, above("EVENT_ID", 1), LOG, order="EVENT_ID", limit=2)
    assert [row["EVENT_ID"] for row in found] == [2, 3]
    async with transaction(database) as session:
        assert await session.delete(LOG, below("EVENT_TIME", 30)) == 2
        await session.commit()
    assert len(await seen(database, of=LOG)) == 2


async def test_a_rollback_takes_everything_back(database):
    async with transaction(database) as session:
        await session.insert(TABLES, table("x"))
        await session.update(SEQUENCE, {"NEXT_EVENT_ID": 9}, ONE)
        await session.rollback()
        assert await names(database) == []
        await session.begin(READ_COMMITTED)
        assert await next_id(session) == 1
        await session.commit()


async def test_a_session_that_ends_takes_its_transaction_with_it(database):
    async with transaction(database) as session:
        await session.insert(TABLES, table("x"))
    await put(database, table("x"))  # this succeeds only if the locks were released as well
    assert await names(database) == ["x"]


async def test_unique_keys_hold_within_a_transaction(database):
    await put(database, table("x"))
    async with transaction(database) as session:
        with pytest.raises(UniqueKeyError):
            await session.insert(TABLES, table("x"))
        # after an error, the transaction refuses every statement
        with pytest.raises(RefusedStatementError):
            await session.select(TABLES)
        with pytest.raises(RefusedStatementError):
            await session.commit()
        await session.rollback()
        await session.begin(READ_COMMITTED)
        await session.insert(TABLES, table("x", "d2"))  # the same name in another database
        await session.delete(TABLES, equal(DB_NAME="d1", TBL_NAME="x"))
        await session.insert(TABLES, table("x"))  # the key is free again within the transaction
        with pytest.raises(UniqueKeyError):
            await session.update(TABLES, {"DB_NAME": "d1"}, equal(DB_NAME="d2"))
    assert await names(database) == ["x"]


async def test_statements_without_sense_are_refused(database):
    session = await database.connect()
    with pytest.raises(RefusedStatementError):
        await session.select(TABLES)  # no transaction is open
    for ask in (
        lambda: session.select("NO_TABLE"),
        lambda: session.select(TABLES, equal(NO_COLUMN=1)),
        lambda: session.insert(TABLES, {"TBL_NAME": "x"}),
        lambda: session.update(TABLES, {"NO_COLUMN": 1}, ()),
        lambda: session.begin(READ_COMMITTED),
    ):
        await session.begin(READ_COMMITTED)
        with pytest.raises(SqlError):
            await ask()
        await session.rollback()
    session.close()
    with pytest.raises(ConnectionLostError):
        await session.begin(READ_COMMITTED)


# --- two transactions at once: what both levels promise ----------------------------------------


async def test_uncommitted_rows_are_invisible(database):
    async with transaction(database) as session:
        await session.insert(TABLES, table("x"))
        for isolation in (READ_COMMITTED, SERIALIZABLE):
            async with transaction(database, isolation) as other:
                assert list(await other.select(TABLES)) == []


async def test_a_taken_key_is_waited_for_and_then_refused(database):
    async with two(database, READ_COMMITTED) as (one, other):
        await one.insert(TABLES, table("x"))
        second = asyncio.ensure_future(other.insert(TABLES, table("x")))
        assert await waits(second)
        await one.commit()
        with pytest.raises(UniqueKeyError):
            await second
    assert await names(database) == ["x"]


async def test_a_key_that_is_given_back_is_free(database):
    async with two(database, READ_COMMITTED) as (one, other):
        await one.insert(TABLES, table("x"))
        second = asyncio.ensure_future(other.insert(TABLES, table("x")))
        assert await waits(second)
        await one.rollback()
        await second
        await other.commit()
    assert await names(database) == ["x"]


async def test_a_key_that_is_about_to_be_free_is_waited_for(database):
    ident = await put(database, table("x"))
    async with two(database, READ_COMMITTED) as (one, other):
        await one.delete(TABLES, equal(TBL_ID=ident))
        second = asyncio.ensure_future(other.insert(TABLES, table("x")))
        assert await waits(second)
        await one.commit()
        await second
        await other.commit()
    (row,) = await seen(database)
    assert row["TBL_ID"] != ident


async def test_a_locked_row_is_waited_for(database):
    async with two(database, READ_COMMITTED) as (one, other):
        assert await next_id(one, for_update=True) == 1
        second = asyncio.ensure_future(next_id(other, for_update=True))
        assert await waits(second)
        await one.update(SEQUENCE, {"NEXT_EVENT_ID": 2}, ONE)
        await one.commit()
        # the second transaction gets the newest version after the first one has committed
        assert await second == 2


async def test_deadlocks_end_by_one_giving_way(database):
    x, y = await put(database, table("x")), await put(database, table("y"))
    async with two(database, READ_COMMITTED) as (one, other):
        await one.update(TABLES, {"COLUMNS": "1"}, equal(TBL_ID=x))
        await other.update(TABLES, {"COLUMNS": "2"}, equal(TBL_ID=y))
        crossing = (
            one.update(TABLES, {"COLUMNS": "1"}, equal(TBL_ID=y)),
            other.update(TABLES, {"COLUMNS": "2"}, equal(TBL_ID=x)),
        )
        ended = await asyncio.gather(*crossing, return_exceptions=True)
        assert sorted(type(each).__name__ for each in ended) == ["DeadlockError", "int"]
        assert any(isinstance(each, DeadlockError) for each in ended)


# --- what read committed allows, and serializable does not -------------------------------------


async def lost_update(database, isolation):
    """Run two transactions that each write the value they read plus one; one update may be lost."""
    async with two(database, isolation) as (one, other):
        first, second = await next_id(one), await next_id(other)
        await one.update(SEQUENCE, {"NEXT_EVENT_ID": first + 1}, ONE)
        await one.commit()
        await other.update(SEQUENCE, {"NEXT_EVENT_ID": second + 1}, ONE)
        await other.commit()
    return (await seen(database, of=SEQUENCE))[0]["NEXT_EVENT_ID"]


async def write_skew(database, isolation):
    """Run two transactions that each add a table if the other's table is missing."""
    async with two(database, isolation) as (one, other):
        assert not await one.select(TABLES, equal(TBL_NAME="y"))
        assert not await other.select(TABLES, equal(TBL_NAME="x"))
        await one.insert(TABLES, table("x"))
        await other.insert(TABLES, table("y"))
        await one.commit()
        await other.commit()
    return await names(database)


async def two_reads(database, isolation):
    """Run one transaction that reads twice, while another commits in between."""
    await put(database, table("x"))
    async with transaction(database, isolation) as session:
        before = await session.select(TABLES)
        await put(database, table("y"))
        async with transaction(database) as other:
            await other.update(TABLES, {"COLUMNS": "b"}, equal(TBL_NAME="x"))
            await other.commit()
        after = await session.select(TABLES)
        await session.commit()
    return list(before) == list(after)


async def two_deletes(database, isolation):
    """Run two transactions that delete the same row; return how many rows each deleted."""
    ident = await put(database, table("x"))
    async with two(database, isolation) as (one, other):
        assert await one.select(TABLES)
        assert await other.select(TABLES)
        first = await one.delete(TABLES, equal(TBL_ID=ident))
        second = asyncio.ensure_future(other.delete(TABLES, equal(TBL_ID=ident)))
        assert await waits(second)
        await one.commit()
        return first, await second


async def test_read_committed_loses_updates(database):
    assert await lost_update(database, READ_COMMITTED) == 2


async def test_serializable_loses_no_updates(database):
    with pytest.raises(SerializationError):
        await lost_update(database, SERIALIZABLE)
    assert (await seen(database, of=SEQUENCE))[0]["NEXT_EVENT_ID"] == 2


async def test_read_committed_has_write_skew(database):
    assert await write_skew(database, READ_COMMITTED) == ["x", "y"]


async def test_serializable_has_no_write_skew(database):
    with pytest.raises(SerializationError):
        await write_skew(database, SERIALIZABLE)
    assert await names(database) == ["x"]


async def test_read_committed_reads_are_not_repeatable(database):
    assert not await two_reads(database, READ_COMMITTED)


async def test_serializable_reads_are_of_one_moment(database):
    assert await two_reads(database, SERIALIZABLE)


async def test_read_committed_deletes_say_how_many(database):
    assert await two_deletes(database, READ_COMMITTED) == (1, 0)


async def test_serializable_deletes_fail_where_the_row_went(database):
    with pytest.raises(SerializationError):
        await two_deletes(database, SERIALIZABLE)


async def test_read_committed_updates_find_the_newest_version(database):
    """A row that was renamed in between is deleted by its id; DROP-RENAME relies on this."""
    ident = await put(database, table("x"))
    async with two(database, READ_COMMITTED) as (one, other):
        assert await other.select(TABLES, equal(TBL_NAME="x"))
        await one.update(TABLES, {"TBL_NAME": "z"}, equal(TBL_ID=ident))
        by_id = asyncio.ensure_future(other.delete(TABLES, equal(TBL_ID=ident)))
        assert await waits(by_id)
        await one.commit()
        assert await by_id == 1
        await other.commit()
    assert await names(database) == []


async def test_read_committed_updates_skip_rows_that_no_longer_match(database):
    ident = await put(database, table("x"))
    async with two(database, READ_COMMITTED) as (one, other):
        await one.update(TABLES, {"TBL_NAME": "z"}, equal(TBL_ID=ident))
        by_name = asyncio.ensure_future(other.delete(TABLES, equal(TBL_ID=ident, TBL_NAME="x")))
        assert await waits(by_name)
        await one.commit()
        assert await by_name == 0
        await other.commit()
    assert await names(database) == ["z"]


async def test_serializable_transactions_that_only_read_never_fail(database):
    async with transaction(database, SERIALIZABLE) as session:
        await session.select(TABLES)
        await put(database, table("x"))
        await session.commit()


async def test_serializable_transactions_add_up(database):
    async def add():
        while True:
            async with transaction(database, SERIALIZABLE) as session:
                with contextlib.suppress(SerializationError, DeadlockError):
                    number = await next_id(session)
                    await session.update(SEQUENCE, {"NEXT_EVENT_ID": number + 1}, ONE)
                    row = {"TBL_ID": number, "PARAM_KEY": "k", "PARAM_VALUE": "v"}
                    await session.insert(PARAMETERS, row)
                    await session.commit()
                    return

    await asyncio.gather(*(add() for _ in range(12)))
    assert (await seen(database, of=SEQUENCE))[0]["NEXT_EVENT_ID"] == 13
    taken = await seen(database, of=PARAMETERS, order="TBL_ID")
    assert [row["TBL_ID"] for row in taken] == list(range(1, 13))


CASES = [body for name, body in globals().items() if name.startswith("test_")]
