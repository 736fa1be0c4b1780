"""DDL through Kudu and through Hive on one deployment."""

import pytest

from targets.kudu.hms.entries import bad_hms_name, split_name
from tests.kudu_hms.deploy import deploy, entries, on_hms, refused, rest

MASTERS = ["m1:7051", "m2:7051", "m3:7051"]


async def whole_life(kudu, masters):
    client = kudu.new_client()
    made = await kudu.ok(client, "create", name="db1.x")
    assert await entries(kudu) == {"db1.x": (made["table_id"], masters)}
    altered = await kudu.ok(client, "alter", name="db1.x", steps=[["add", "c"]])
    renamed = await kudu.ok(client, "rename", name="db1.x", new_name="db2.y")
    assert renamed["schema_version"] == altered["schema_version"] + 1
    assert [*await entries(kudu)] == ["db2.y"]
    seen = await kudu.ok(client, "hive-get", name="db2.y")
    assert (seen["table_id"], seen["masters"]) == (made["table_id"], masters)
    await kudu.ok(client, "delete", name="db2.y")
    assert await entries(kudu) == await rest(kudu) == {}
    assert (await kudu.ok(client, "list"))["tables"] == []


@on_hms()
async def test_a_table_has_an_entry_for_as_long_as_it_lives(kudu):
    await whole_life(kudu, MASTERS)


@pytest.mark.process
@pytest.mark.slow
def test_the_same_in_processes():
    async def body(kudu):
        await kudu.until_ready()
        await whole_life(kudu, ["m1:7051"])

    deploy(body, environment="process", masters=1)


@on_hms()
async def test_kudu_follows_changes_in_hive(kudu):
    client = kudu.new_client()
    one = await kudu.ok(client, "create", name="db1.x")
    two = await kudu.ok(client, "create", name="db1.y")
    await kudu.ok(client, "hive-rename", name="db1.x", new_name="db2.z", nonce="h1")
    await kudu.ok(client, "hive-drop", name="db1.y", nonce="h2")
    assert await rest(kudu) == {"db2.z": one["table_id"]}
    assert (await kudu.ok(client, "get", name="db2.z"))["table_id"] == one["table_id"]
    # Refusals reflect Kudu's own catalog, even if it learns of a change late.
    await kudu.ok(client, "hive-drop", name="db2.z", nonce="h3")
    assert await refused(kudu, client, "delete", name="db2.z") == (
        'TABLE_NOT_FOUND/NOT_FOUND: the table does not exist: table_name: "db2.z"', "not-found",
    )  # fmt: skip
    assert two["table_id"] != one["table_id"]


@on_hms()
async def test_names_are_those_of_hive_and_lower_case(kudu):
    client = kudu.new_client()
    for name in ("x", "a.b.c", "db1.x-y"):
        assert bad_hms_name(name) is not None
        error, result = await refused(kudu, client, "create", name=name)
        assert (error.split("/")[0], result) == ("INVALID_SCHEMA", None)
    await kudu.ok(client, "create", name="DB1.Mixed")
    assert [*await rest(kudu)] == ["db1.mixed"]
    assert (await refused(kudu, client, "create", name="db1.MIXED"))[1] == "exists"
    await kudu.ok(client, "rename", name="db1.Mixed", new_name="DB2.Other")
    await kudu.ok(client, "delete", name="DB2.OTHER")
    assert await rest(kudu) == {}
    assert split_name("db1.x") == ("db1", "x")


@on_hms()
async def test_a_database_that_is_not_there_refuses_and_nothing_is_left(kudu):
    client = kudu.new_client()
    error, result = await refused(kudu, client, "create", name="nowhere.x")
    assert (error.split("/")[0], result) == ("HIVE_METASTORE_ERROR", None)
    await kudu.ok(client, "create", name="db1.x")
    assert (await refused(kudu, client, "rename", name="db1.x", new_name="db1.x"))[1] == "exists"
    assert [*await rest(kudu)] == ["db1.x"]


@on_hms()
async def test_one_metastore_is_enough_and_without_any_kudu_refuses_but_reads(kudu):
    client, cluster = kudu.new_client(), kudu.session.cluster
    await kudu.ok(client, "create", name="db1.x")
    await cluster.kill("hms1")
    await kudu.ok(client, "create", name="db1.y")
    await cluster.kill("hms2")
    error, _ = await refused(kudu, client, "create", name="db1.z")
    assert error.startswith("HIVE_METASTORE_ERROR")
    assert len((await kudu.ok(client, "list"))["tables"]) == 2
    await kudu.ok(
        client, "alter", name="db1.x", steps=[["add", "c"]]
    )  # columns change in Kudu first
    for node in ("hms1", "hms2"):
        await cluster.start(node)
    await kudu.until_ready()
    assert [*await rest(kudu)] == ["db1.x", "db1.y"]


@on_hms()
async def test_a_new_leader_goes_on_in_the_log_where_the_old_one_was(kudu):
    client = kudu.new_client()
    for name in ("db1.x", "db1.y"):
        await kudu.ok(client, "create", name=name)
    old = await kudu.leader()
    await kudu.session.cluster.kill(old)
    await kudu.ok(client, "hive-rename", name="db1.x", new_name="db1.z", nonce="h")
    await kudu.until_led_by_another(old)
    await kudu.ok(client, "delete", name="db1.y")
    await kudu.session.cluster.start(old)
    assert [*await rest(kudu)] == ["db1.z"]
    dumps = (await kudu.system.snapshot())["masters"].values()
    events = [dump["hms"]["events"] for dump in dumps]
    assert events[0] == events[1] == events[2]
    assert [number for number, _ in events[0]] == sorted({number for number, _ in events[0]})


async def migrate(kudu):
    for node in ("m2", "m3"):
        assert await kudu.system.operations()["add-master"]([node]), node
    await kudu.until_ready()


@on_hms(masters=1, spare_masters=2)
async def test_the_leader_corrects_addresses_after_a_migration(kudu):
    client = kudu.new_client()
    await kudu.ok(client, "create", name="db1.x")
    assert (await entries(kudu))["db1.x"][1] == ["m1:7051"]
    await migrate(kudu)
    await rest(kudu)
    assert (await entries(kudu))["db1.x"][1] == MASTERS
