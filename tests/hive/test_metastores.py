"""Metastores and clients together, in the simulation."""

import asyncio

import pytest

from harness.ops import OpType
from targets.hive import api
from targets.hive.api import MetastoreError, MetaTable
from targets.hive.client.calls import COLUMNS, NONCE
from tests.async_tests import on
from tests.hive.deploy import Deployed, deploy

PROFILES = ("strict", "hive2.3", "hive4")


async def every_operation(hms: Deployed):
    client = hms.new_client()
    assert await hms.ok(client, "poll") == {"result": "ok", "after": 0, "events": []}
    await hms.ok(client, "create", "db1.x", nonce="a")
    assert (await hms.ok(client, "get", "db1.x"))["nonce"] == "a"
    assert await hms.refused(client, "create", "db1.x") == "already-exists"
    assert await hms.refused(client, "create", "none.x") == "invalid-object"
    await hms.ok(client, "alter", "db1.x", nonce="b")
    assert await hms.refused(client, "alter", "db1.y") == "invalid-operation"
    await hms.ok(client, "create", "db2.y", nonce="c")
    assert await hms.refused(client, "rename", "db1.x", "db2.y") == "invalid-operation"
    assert await hms.refused(client, "rename", "db1.none", "db1.y") == "invalid-operation"
    assert await hms.refused(client, "rename", "db1.x", "none.y") == "invalid-operation"
    await hms.ok(client, "rename", "db1.x", "db2.x", nonce="d")
    await hms.ok(client, "rename", "db2.x", "db2.x", nonce="e")  # this is an alter
    assert (await hms.ok(client, "get", "db1.x"))["result"] == "no-such-object"
    assert (await hms.ok(client, "get", "db2.x"))["nonce"] == "e"
    assert (await hms.ok(client, "list"))["tables"] == ["db2.x", "db2.y"]
    await hms.ok(client, "drop", "db2.x")
    assert await hms.refused(client, "drop", "db2.x") == "no-such-object"
    assert (await hms.ok(client, "list"))["tables"] == ["db2.y"]

    polled = await hms.ok(client, "poll")
    assert [[event[0], *event[2:]] for event in polled["events"]] == [
        [1, "CREATE_TABLE", None, "db1.x", None, "a"],
        [2, "ALTER_TABLE", "db1.x", "db1.x", "a", "b"],
        [3, "CREATE_TABLE", None, "db2.y", None, "c"],
        [4, "ALTER_TABLE", "db1.x", "db2.x", "b", "d"],
        [5, "ALTER_TABLE", "db2.x", "db2.x", "d", "e"],
        [6, "DROP_TABLE", "db2.x", None, "e", None],
    ]
    assert await hms.ok(client, "poll") == {"result": "ok", "after": 6, "events": []}
    snapshot = await hms.system.snapshot()
    assert snapshot["metastores"] == {"hms1": ["db2.y"], "hms2": ["db2.y"]}
    assert snapshot["rows"]["orphans"] == []
    assert snapshot["rows"]["events"] == polled["events"]


@pytest.mark.parametrize("profile", PROFILES)
def test_every_operation_works(profile):
    deploy(every_operation, profile=profile)


@on(deploy)
async def test_the_other_calls(hms):
    table = MetaTable("db1", "t", COLUMNS, {NONCE: "n"})
    await hms.at("hms1", api.CreateTable(table))
    assert await hms.at("hms2", api.GetAllTables("db1")) == ["t"]
    assert await hms.at("hms2", api.GetAllTables("db2")) == []
    assert await hms.at("hms1", api.GetAllDatabases()) == ["db1", "db2", "default"]
    assert await hms.at("hms1", api.GetStatus()) == "ALIVE"
    assert await hms.at("hms1", api.GetEventsCount(0)) == 1
    assert await hms.at("hms1", api.GetEventsCount(1)) == 0
    await hms.at("hms1", api.CreateDatabase("db3"))
    for call, kind in (
        (api.CreateDatabase("db3"), api.ALREADY_EXISTS),
        (api.DropDatabase("db1"), api.INVALID_OPERATION),
        (api.DropDatabase("none"), api.NO_SUCH_OBJECT),
        (api.GetTable("db3", "t"), api.NO_SUCH_OBJECT),
        ("nonsense", "TApplicationException"),
    ):
        with pytest.raises(MetastoreError) as refused:
            await hms.at("hms2", call)
        assert refused.value.kind == kind
    await hms.at("hms2", api.DropDatabase("db3"))
    assert "db3" not in await hms.at("hms1", api.GetAllDatabases())


@on(deploy)
async def test_a_repeated_request_gets_its_first_answer(hms):
    table = MetaTable("db1", "t", COLUMNS, {NONCE: "n"})
    for _ in range(2):
        await hms.at("hms1", api.CreateTable(table, "r1"))
        await hms.at("hms2", api.CreateTable(table, "r1"))
    for node in ("hms1", "hms2"):
        with pytest.raises(MetastoreError) as refused:
            await hms.at(node, api.CreateTable(table, "r2"))
        assert refused.value.kind == api.ALREADY_EXISTS
        await hms.at(node, api.DropTable("db1", "t", "r3"))
    # A late copy has no effect, whether the first request was executed or refused.
    await hms.at("hms2", api.CreateTable(table, "r1"))
    with pytest.raises(MetastoreError):
        await hms.at("hms1", api.CreateTable(table, "r2"))
    assert await hms.at("hms1", api.GetAllTables("db1")) == []
    assert await hms.at("hms1", api.GetCurrentEventId()) == 2


async def at_once(hms: Deployed, *calls):
    """Send all calls at once, alternating between two metastores; return how each call ended."""

    async def one(number, call):
        try:
            await hms.at(f"hms{1 + number % 2}", call)
        except MetastoreError as error:
            return error.kind
        return "ok"

    return await asyncio.gather(*(one(number, call) for number, call in enumerate(calls)))


async def races(hms: Deployed):
    """Run 25 races of each kind, and count their outcomes."""
    found = {}
    for number in range(25):
        x, z = f"x{number}", f"z{number}"
        table = MetaTable("db1", x, COLUMNS, {NONCE: "n"})
        renamed = MetaTable("db1", z, COLUMNS, {NONCE: "r"})
        created = await at_once(hms, api.CreateTable(table), api.CreateTable(table))
        found.setdefault("create", []).append(tuple(sorted(created)))
        rename = api.AlterTable("db1", x, renamed)
        dropped = await at_once(hms, api.DropTable("db1", x), rename)
        there = await hms.at("hms1", api.GetAllTables("db1"))
        found.setdefault("drop-rename", []).append((tuple(dropped), z in there))
        if z in there:
            await hms.at("hms1", api.DropTable("db1", z))
        await hms.at("hms1", api.CreateTable(table))
        twice = await at_once(hms, api.DropTable("db1", x), api.DropTable("db1", x))
        found.setdefault("drop", []).append(tuple(sorted(twice)))
        assert await hms.at("hms2", api.GetAllTables("db1")) == []
    return found


@pytest.mark.parametrize("profile", PROFILES)
def test_races_end_as_measured(profile):
    found = deploy(races, profile=profile)
    assert set(found["create"]) == {("AlreadyExistsException", "ok")}
    one_drop, both_drops = ("NoSuchObjectException", "ok"), ("ok", "ok")
    drops = set(found["drop"])
    assert drops == {one_drop} if profile == "strict" else both_drops in drops
    lost = (("ok", "ok"), False)
    assert (lost in found["drop-rename"]) is (profile == "hive2.3")
    assert all(ends != ("ok", "ok") or profile == "hive2.3" for ends, _ in found["drop-rename"])


@on(deploy)
async def test_killing_or_pausing_one_metastore_costs_a_failover(hms):
    client = hms.new_client()
    await hms.ok(client, "create", "db1.x")
    assert client._address.node == "hms1"
    await hms.cluster.kill("hms1")
    done = await hms.do(client, "alter", "db1.x")
    assert (done.type, done.node) == (OpType.OK, "hms2")
    assert [attempt.node for attempt in done.attempts] == ["hms1", "hms2"]
    await hms.cluster.start("hms1")
    await hms.until_ready()
    # the client stays with hms2 as long as it can
    assert (await hms.do(client, "get", "db1.x")).node == "hms2"
    await hms.cluster.pause("hms2", lease_s=60)
    done = await hms.do(client, "alter", "db1.x")
    assert (done.type, done.node) == (OpType.OK, "hms1")
    await hms.cluster.resume("hms2")
    assert (await hms.ok(client, "poll"))["after"] == 3


@on(deploy)
async def test_a_metastore_paused_within_a_transaction_blocks_others_briefly(hms):
    client = hms.new_client()
    for number in range(40):
        creating = asyncio.ensure_future(
            hms.do(hms.new_client(), "create", f"db1.a{number}", timeout_s=1.0)
        )
        await asyncio.sleep(0.0005 * number)
        await hms.cluster.pause("hms1", lease_s=60)
        await hms.ok(client, "create", f"db1.b{number}", timeout_s=15.0)
        await hms.cluster.resume("hms1")
        await creating
    tables = (await hms.ok(client, "list"))["tables"]
    assert {f"db1.b{number}" for number in range(40)} <= {*tables}


@on(deploy)
async def test_the_database_lost_within_a_transaction_leaves_nothing_half_done(hms):
    client = hms.new_client()
    for number in range(25):
        pending = asyncio.ensure_future(hms.do(client, "create", f"db1.t{number}", nonce="n"))
        await asyncio.sleep(0.0007 * number)
        await hms.cluster.kill("db", lose_unsynced=True)
        await hms.cluster.start("db")
        await hms.until_ready()
        done = await pending
        assert done.type is OpType.OK, done  # resent, and executed once
    rows = (await hms.system.snapshot())["rows"]
    assert len(rows["tables"]) == len(rows["events"]) == 25
    assert rows["orphans"] == []
    assert [event[0] for event in rows["events"]] == list(range(1, 26))


def test_old_events_are_removed_and_a_reader_that_was_too_slow_is_told():
    async def body(hms: Deployed):
        reader, writer = hms.new_client(), hms.new_client()
        await hms.ok(reader, "poll")
        await hms.ok(writer, "create", "db1.x")
        await asyncio.sleep(3)
        await hms.ok(writer, "alter", "db1.x")
        first = await hms.ok(reader, "poll")
        return first, await hms.ok(reader, "poll")

    missed, then = deploy(body, event_ttl_ms=1000)
    assert missed == {"result": "ok", "after": 0, "events": [], "missing": 1, "to": 2}
    assert then == {"result": "ok", "after": 2, "events": []}
    silent, _ = deploy(body, event_ttl_ms=1000, bugs=("HIVE-19219",))
    assert [event[0] for event in silent["events"]] == [2]
