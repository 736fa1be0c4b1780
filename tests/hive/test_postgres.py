"""A real PostgreSQL behind the metastores, after kills, power cuts and lost sessions."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from harness.cli import main
from harness.errors import UsageError
from targets.hive.sql import postgres
from targets.hive.sql.protocol import ConnectionLostError
from targets.hive.sql.schema import SCHEMA, TABLES
from tests.hive.conformance import CASES, names, put, seen, table
from tests.hive.databases import answers, transaction, with_postgres

pytestmark = [pytest.mark.slow]
PROCESS = [pytest.mark.process, pytest.mark.postgres]
DOCKER = [pytest.mark.docker, pytest.mark.postgres, pytest.mark.xdist_group("docker")]
TIMES = 3
NEVER = "3"  # with this seed, disks never write unsynced data back

worlds = pytest.mark.parametrize(
    "environment", [pytest.param("process", marks=PROCESS), pytest.param("docker", marks=DOCKER)]
)
# by default only as processes, since the database behaves in the same way in Docker
processes_by_day = pytest.mark.parametrize(
    "environment",
    [
        pytest.param("process", marks=PROCESS),
        pytest.param("docker", marks=[*DOCKER, pytest.mark.nightly]),
    ],
)


def in_processes(test):
    """Mark a test that runs only in processes, because its result is the same everywhere."""
    for mark in PROCESS:
        test = mark(test)
    return test


async def emptied(database):
    """Reset the database to its first state, apart from numbers that are never reused."""
    session = await database.connect()
    for name in SCHEMA:
        await session._execute(f'delete from "{name}"' + ' where "DB_ID" > 2' * (name == "DBS"))
    await session._execute('insert into "NOTIFICATION_SEQUENCE" values (1, 1, 0)')
    session.close()


@processes_by_day
def test_it_keeps_the_protocol(environment):
    async def body(database, session):
        del session
        for case in CASES:
            await case(database)
            await emptied(database)

    # The long limit keeps sessions alive on a busy machine.
    with_postgres(body, environment=environment, idle_s=60.0)


async def left_by(database, session, *, power_cut):
    """Kill the server several times; return the acknowledged tables, and those that remain."""
    wanted = []
    for number in range(TIMES):
        await put(database, table(f"t{number}"))
        wanted.append(f"t{number}")
        async with transaction(database) as open_one:
            await open_one.insert(TABLES, table("open"))
            await session.cluster.kill("db", lose_unsynced=power_cut)
        await session.cluster.start("db")
        await answers(database)
    rows = await seen(database)
    assert len({row["TBL_ID"] for row in rows}) == len(rows)
    return wanted, await names(database)


@worlds
@pytest.mark.fuse
def test_committed_rows_survive_kills_and_power_cuts(environment):
    async def body(database, session):
        for power_cut in (False, True):
            wanted, found = await left_by(database, session, power_cut=power_cut)
            assert wanted == found, power_cut
            await emptied(database)

    with_postgres(body, environment=environment)


@worlds
@pytest.mark.fuse
def test_without_fsync_a_power_cut_loses_acknowledged_rows_and_a_kill_does_not(environment):
    async def body(database, session):
        wanted, found = await left_by(database, session, power_cut=False)
        assert wanted == found
        # At least one of several tables must be lost; the disk may have written back the others.
        late = [f"late{number}" for number in range(TIMES)]
        for name in late:
            await put(database, table(name))
            await session.cluster.kill("db", lose_unsynced=True)
            await session.cluster.start("db")
            await answers(database)
        assert not {*late} <= {*await names(database)}

    with_postgres(body, environment=environment, fsync=False)


@in_processes
def test_a_session_that_keeps_its_transaction_open_is_ended():
    async def body(database, session):
        del session
        async with transaction(database) as idle:
            await idle.insert(TABLES, table("x"))
            await put(database, table("x"))  # this waits until the other session ends
            with pytest.raises(ConnectionLostError):
                await idle.commit()

    with_postgres(body, idle_s=0.5)


@in_processes
def test_a_paused_database_is_given_up_and_serves_again():
    async def body(database, session):
        async with transaction(database) as waiting:
            waiting._answer_s = 0.5
            await session.cluster.pause("db", lease_s=60)
            with pytest.raises(ConnectionLostError):
                await waiting.select(TABLES)
            with pytest.raises(ConnectionLostError):
                await waiting.select(TABLES)
            with pytest.raises(ConnectionLostError):
                await database.connect()
            await session.cluster.resume("db")
        await put(database, table("x"))

    with_postgres(body)


@in_processes
def test_a_reused_pid_in_the_lock_file_does_not_prevent_the_start():
    user = "postgres" if os.geteuid() == 0 else None
    with subprocess.Popen(["sleep", "600"], user=user) as other:

        async def body(database, session):
            await session.cluster.kill("db")
            lock = session.cluster._node("db").data_folder / "pg" / "postmaster.pid"
            lines = lock.read_text().splitlines()
            lock.write_text("\n".join([str(other.pid), *lines[1:]]))
            await session.cluster.start("db")
            await answers(database)

        try:
            with_postgres(body)
        finally:
            other.kill()


@in_processes
def test_a_caller_that_stops_waiting_loses_the_session_and_its_locks():
    async def body(database, session):
        del session
        async with transaction(database) as one, transaction(database) as other:
            await one.insert(TABLES, table("x"))
            await other.insert(TABLES, table("y"))
            waiting = asyncio.ensure_future(other.insert(TABLES, table("x")))
            await asyncio.sleep(0.2)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await put(database, table("y"))
            await one.commit()
        assert await names(database) == ["x", "y"]

    with_postgres(body, idle_s=60.0)


@worlds
def test_an_orderly_stop_ends_sessions_and_keeps_commits(environment):
    async def body(database, session):
        await put(database, table("x"))
        async with transaction(database) as idle:
            await idle.insert(TABLES, table("y"))
            await session.cluster.stop("db")
            with pytest.raises(ConnectionLostError):
                await idle.commit()
        await session.cluster.start("db")
        await answers(database)
        assert await names(database) == ["x"]
        log = "\n".join(await session.cluster.logs("db"))
        assert "fast shutdown" in log
        assert "automatic recovery" not in log

    with_postgres(body, environment=environment)


@processes_by_day
@pytest.mark.fuse
@pytest.mark.parametrize("fsync", [True, False])
def test_whole_runs_convict_a_database_that_does_not_sync_and_no_other(
    environment, fsync, capsys, tmp_path
):
    for pace in (1, 2, 3):  # a busy machine may not reach the requested load
        main(
            [
                *("run", "--target", "hive", "--env", environment, "--seed", NEVER),
                *("--fault", f"power-cut role:db at {5 * pace}s for 2s"),
                *([] if fsync else ["--no-fsync"]),
                *("--time-limit", str(10 * pace), "--rate", str(30 // pace)),
                *("--store", str(tmp_path), "--json"),
            ]
        )
        report = json.loads(capsys.readouterr().out)
        if report["verdict"] != "unknown":
            break
    by_checker = {found["checker"]: found["verdict"] for found in report["checkers"]}
    assert report["verdict"] == ("valid" if fsync else "invalid"), by_checker
    assert by_checker["hms-events"] == report["verdict"]


@pytest.mark.postgres
def test_without_the_driver_it_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)  # as if psycopg were not installed
    with pytest.raises(UsageError, match="psycopg"):
        postgres.require_driver()
