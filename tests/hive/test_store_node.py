"""The bundled store as a node, after kills, power cuts and lost sessions."""

import asyncio

import pytest

from harness.errors import TargetError
from targets.hive.sql import journal
from targets.hive.sql.protocol import ConnectionLostError
from targets.hive.sql.schema import TABLES
from tests.hive.conformance import names, put, seen, table
from tests.hive.databases import answers, transaction, with_store
from tests.support.env import MemoryDisk


async def after(session, database, *, power_cut, torn=False):
    await session.cluster.kill("db", lose_unsynced=power_cut, torn=torn)
    await session.cluster.start("db")
    await answers(database)
    return await names(database)


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("seed", range(1, 9))
def test_what_was_committed_stays(seed, power_cut):
    async def body(database, session):
        wanted = []
        for number in range(5):
            await put(database, table(f"t{number}"))
            wanted.append(f"t{number}")
            async with transaction(database) as open_one:
                await open_one.insert(TABLES, table("open"))
                assert wanted == await after(session, database, power_cut=power_cut, torn=True)
        # serial numbers continue after the highest one
        rows = await seen(database, order="TBL_ID")
        assert len({row["TBL_ID"] for row in rows}) == len(rows)

    with_store(body, seed=seed)


def lost_by(*, power_cut, seeds=range(1, 13)):
    """Count the acknowledged tables that are lost with `fsync=off`, over several seeds."""

    async def body(database, session):
        for number in range(6):
            await put(database, table(f"t{number}"))
        return 6 - len(await after(session, database, power_cut=power_cut))

    return sum(with_store(body, seed=seed, fsync=False) for seed in seeds)


def test_without_fsync_a_power_cut_loses_acknowledged_rows_and_a_kill_does_not():
    assert lost_by(power_cut=True) > 0
    assert lost_by(power_cut=False) == 0


def test_a_long_log_becomes_a_checkpoint():
    async def body(database, session):
        wanted = []
        for number in range(30):
            await put(database, table(f"t{number:02d}"))
            wanted.append(f"t{number:02d}")
            if number % 7 == 0:
                assert wanted == await after(session, database, power_cut=True)
        assert wanted == await names(database)

    with_store(body, log_bytes_max=500)


async def opened(disk):
    found = journal.Journal(disk, sync=True)
    await found.open({})
    return found


async def written(disk, *numbers):
    log = await opened(disk)
    for number in numbers:
        row = {"TBL_ID": number, **table(f"t{number}")}
        change = (journal.Change((TABLES, number), None, row),)
        await log.write(change)
        log.store.commit(change, keep=False)


async def test_a_record_cut_short_is_cut_off_and_a_wrong_one_refused():
    disk = MemoryDisk()
    await written(disk, 1, 2)
    (log,) = await disk.list("wal-")
    whole = bytes(disk.files[log])
    for cut in range(1, len(whole)):
        disk.files[log] = bytearray(whole[:-cut])
        rows = (await opened(disk)).store.rows[TABLES]
        assert len(rows) == (1 if cut <= len(whole) // 2 else 0)
    for place in range(0, len(whole), 5):
        disk.files[log] = bytearray(whole)
        disk.files[log][place] ^= 1
        with pytest.raises(TargetError):
            await opened(disk)
    checkpoint = bytes(disk.files["checkpoint"])
    disk.files["checkpoint"] = bytearray(checkpoint[:-1])
    with pytest.raises(TargetError):
        await opened(disk)


def test_a_session_that_keeps_its_transaction_open_is_ended():
    async def body(database, session):
        del session
        async with transaction(database) as idle:
            await idle.insert(TABLES, table("x"))
            await asyncio.sleep(1.5)
            await put(database, table("x"))
            with pytest.raises(ConnectionLostError):
                await idle.commit()

    with_store(body, idle_s=1.0)


def test_a_session_without_a_transaction_may_wait():
    async def body(database, session):
        del session
        waiting = await database.connect()
        await asyncio.sleep(60.0)
        await waiting.rollback()
        waiting.close()

    with_store(body, idle_s=1.0)


def test_a_paused_database_is_given_up():
    async def body(database, session):
        async with transaction(database) as waiting:
            await session.cluster.pause("db", lease_s=60)
            with pytest.raises(ConnectionLostError):
                await waiting.select(TABLES)
            await session.cluster.resume("db")

    with_store(body)
