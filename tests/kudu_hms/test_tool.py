"""`harness kudu hms ...` repairs the metastores, also after a migration to three masters."""

import json

import pytest

from harness.env import Address
from harness.ops import OpType
from targets.hive.metastore import kudu_rules as rules
from targets.hive.sql.protocol import Isolation, equal
from targets.hive.sql.remote import StoreDatabase
from targets.hive.sql.schema import PARAMETERS
from targets.hive.system import DATABASE_NODE, DATABASE_PORT
from targets.kudu.client import KuduClient, RetryPolicy
from targets.kudu.rpc import RpcClient
from tests.kudu.deploy import deploy as deploy_kudu
from tests.kudu_hms.deploy import deploy, entries, on_hms
from tests.kudu_hms.test_masters import MASTERS, migrate

STALE = {"bugs": ("STALE-MASTER-ADDRS", "HMS-ORPHAN"), "masters": 1, "spare_masters": 2}
"""Options under which no leader repairs entries, as in Kudu."""


async def tool(kudu, line, exit_code=0):
    output = await kudu.system.tool(line.split())
    assert output.exit_code == exit_code, output
    return output.text


async def sql(kudu, change):
    """Run a statement in the metastores' database, as an administrator would."""
    database = StoreDatabase(kudu.env, Address(DATABASE_NODE, DATABASE_PORT))
    session = await database.connect()
    await session.begin(Isolation.SERIALIZABLE)
    result = await change(session)
    await session.commit()
    session.close()
    return result


async def two_tables(kudu):
    client = kudu.new_client()
    for name in ("db1.x", "db2.y"):
        await kudu.ok(client, "create", name=name)
    return client


@on_hms()
async def test_consistent_tables_are_listed_and_pass(kudu):
    assert json.loads(await tool(kudu, "hms list --format json")) == []
    await two_tables(kudu)
    assert await tool(kudu, "hms check") == "all tables have their entries"
    assert await tool(kudu, "hms fix") == ""
    assert await tool(kudu, "hms precheck") == "all names are valid in Hive and distinct"
    listed = json.loads(await tool(kudu, "hms list --format json"))
    assert [(row["database"], row["table"], row["type"]) for row in listed] == [
        ("db1", "x", "SYNCHRONIZED"), ("db2", "y", "SYNCHRONIZED"),
    ]  # fmt: skip
    assert "SYNCHRONIZED" in await tool(kudu, "hms list")


@on_hms(**STALE)
async def test_after_a_migration_the_tool_corrects_addresses(kudu):
    client = await two_tables(kudu)
    await migrate(kudu)
    assert "kudu.master_addresses is m1:7051" in await tool(kudu, "hms check", 1)
    assert (await tool(kudu, "hms fix --dryrun")).count("would alter") == 2
    assert {masters[0] for _, masters in (await entries(kudu)).values()} == {"m1:7051"}
    assert (await tool(kudu, "hms fix")).count("alter:") == 2
    assert [masters for _, masters in (await entries(kudu)).values()] == [MASTERS, MASTERS]
    assert await tool(kudu, "hms check") == "all tables have their entries"
    # A leader that starts with the old list writes this list into entries again.
    await kudu.ok(client, "alter", name="db1.x", steps=[["add", "c"]])
    if await kudu.leader() == "m1":
        assert (await entries(kudu))["db1.x"][1] == ["m1:7051"]


async def update(kudu):
    """Return the UPDATE statement from the documentation."""

    async def change(session):
        where = equal(PARAM_KEY=rules.MASTER_ADDRESSES, PARAM_VALUE="m1:7051")
        return await session.update(PARAMETERS, {"PARAM_VALUE": ",".join(MASTERS)}, where)

    return await sql(kudu, change)


@on_hms(**STALE)
async def test_after_a_migration_a_statement_in_the_database_corrects_them_too(kudu):
    await two_tables(kudu)
    await migrate(kudu)
    assert await update(kudu) == 2
    assert [masters for _, masters in (await entries(kudu)).values()] == [MASTERS, MASTERS]
    assert await tool(kudu, "hms check") == "all tables have their entries"


class Engine:
    """A reader of tables that caches their entries until a statement invalidates them.

    Impala works like this; its statement is INVALIDATE METADATA.
    """

    def __init__(self, kudu):
        self.kudu = kudu
        self.kept = {}

    async def reads(self, name):
        if name not in self.kept:
            self.kept[name] = (await entries(self.kudu))[name][1]
        env, policy = self.kudu.env, RetryPolicy(learns_masters=False)
        masters = self.kept[name]
        client = KuduClient(env, RpcClient(env), masters=masters, process=99, policy=policy)
        completion = await self.kudu.do(client, "get", name=name)
        await client.close()
        return completion.type is OpType.OK


@pytest.mark.parametrize("way", ["tool", "statement"])
def test_who_keeps_entries_finds_the_masters_again_only_when_told_to_forget_them(way):
    async def body(kudu):
        await kudu.until_ready()
        await two_tables(kudu)
        engine = Engine(kudu)
        assert await engine.reads("db1.x")
        await migrate(kudu)
        await (tool(kudu, "hms fix") if way == "tool" else update(kudu))
        await kudu.session.cluster.kill("m1")
        await kudu.until_led_by_another("m1")
        assert not await engine.reads("db1.x")
        # the engine has not read this table before, so nothing is cached
        assert await engine.reads("db2.y")
        engine.kept.clear()
        assert await engine.reads("db1.x")

    deploy(body, **STALE)


@on_hms(bugs=("HMS-ORPHAN",))
async def test_missing_tables_are_created_and_orphans_dropped_on_demand(kudu):
    await two_tables(kudu)

    async def another_id(session):
        (row,) = await session.select(
            PARAMETERS, equal(PARAM_KEY=rules.TABLE_NAME, PARAM_VALUE="db1.x")
        )
        where = equal(TBL_ID=row["TBL_ID"], PARAM_KEY=rules.TABLE_ID)
        return await session.update(PARAMETERS, {"PARAM_VALUE": "f" * 32}, where)

    assert await sql(kudu, another_id) == 1
    text = await tool(kudu, "hms check", 1)
    assert "missing: db1.x" in text
    assert "orphan: db1.x" in text
    output = await kudu.system.tool(["hms", "fix"])
    # the name is taken
    assert (output.exit_code, output.error.split(":")[0]) == (1, "Remote error")
    text = await tool(kudu, "hms fix --no-create_missing_hms_tables --drop_orphan_hms_tables", 1)
    assert text.splitlines() == [
        "not fixed: missing: db1.x: it has no entry",
        "drop: orphan: db1.x: Kudu has no such table",
    ]
    assert await tool(kudu, "hms fix") == "create: missing: db1.x: it has no entry"
    assert await tool(kudu, "hms check") == "all tables have their entries"


@on_hms()
async def test_a_downgrade_is_taken_back_by_a_fix(kudu):
    await two_tables(kudu)
    assert (await tool(kudu, "hms downgrade")).count("downgraded") == 2
    listed = json.loads(await tool(kudu, "hms list --format json"))
    assert {row["type"] for row in listed} == {"LEGACY"}
    assert (await tool(kudu, "hms check", 1)).count("its entry has the old format") == 2
    assert (await tool(kudu, "hms fix")).count("create: missing") == 2
    assert await tool(kudu, "hms check") == "all tables have their entries"


def test_without_metastores_the_tool_says_so_and_prechecks_names():
    async def body(kudu):
        await kudu.until_ready()
        output = await kudu.system.tool(["hms", "check"])
        assert (output.exit_code, output.error.split(":")[0]) == (1, "Configuration error")
        client = kudu.new_client()
        for name in ("db1.X", "db1.x", "plain"):
            await kudu.ok(client, "create", name=name)
        text = await tool(kudu, "hms precheck", 1)
        assert text.count("another table has this name") == 2
        assert "'plain'" in text

    deploy_kudu(body)
