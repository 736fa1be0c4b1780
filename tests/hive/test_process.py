"""Metastores as local processes, with real sockets, files and kills."""

import pytest

from harness.ops import OpType
from tests.hive.conformance import CASES, put, table
from tests.hive.databases import answers, with_store
from tests.hive.deploy import Deployed, deploy
from tests.hive.test_membership import both_of_the_first_list_go
from tests.hive.test_metastores import every_operation
from tests.hive.tokens.test_token_stores import on_the_database
from tests.hive.tokens.test_tokens import life
from tests.hive.tokens.token_stores import CASES as TOKEN_CASES

pytestmark = [pytest.mark.process, pytest.mark.slow]


POWER_CUTS = [pytest.mark.postgres, pytest.mark.fuse]
DATABASES = ["store", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.mark.parametrize("kind", DATABASES)
def test_every_operation_works(kind):
    deploy(every_operation, environment="process", database=kind)


@pytest.mark.parametrize("kind", ["store", pytest.param("postgres", marks=POWER_CUTS)])
def test_a_killed_metastore_costs_a_failover_and_a_killed_database_nothing_acknowledged(kind):
    async def body(hms: Deployed):
        client = hms.new_client()
        await hms.ok(client, "create", "db1.x", nonce="a")
        await hms.cluster.kill("hms1")
        done = await hms.do(client, "alter", "db1.x", nonce="b")
        assert (done.type, done.node) == (OpType.OK, "hms2")
        await hms.cluster.kill("db", lose_unsynced=True)
        await hms.cluster.start("db")
        await hms.cluster.start("hms1")
        await hms.until_ready()
        assert (await hms.ok(hms.new_client(), "get", "db1.x"))["nonce"] == "b"

    deploy(body, environment="process", database=kind)


@pytest.mark.parametrize("kind", DATABASES)
def test_metastores_come_and_go_and_a_client_follows(kind):
    async def body(hms: Deployed):
        half, gone = await both_of_the_first_list_go(hms)
        assert half == (["hms1", "hms2", "hms3"], ["hms2", "hms3"])
        assert (gone.type, gone.node) == (OpType.OK, "hms3")

    deploy(body, environment="process", database=kind, spare_metastores=1)


def test_the_store_keeps_its_protocol():
    async def body(database, session):
        for case in CASES:
            await case(database)
            await session.cluster.kill("db")
            await session.cluster.wipe("db")
            await session.cluster.start("db")
            await answers(database)
        await put(database, table("x"))

    with_store(body, environment="process", idle_s=60.0)  # the machine may be busy


@pytest.mark.parametrize(
    "options",
    [
        {"token_store": "db", "database": "store"},
        {"token_store": "zookeeper", "database": "store", "zookeeper": "node"},
        pytest.param(
            {"token_store": "zookeeper", "database": "store"}, marks=pytest.mark.zookeeper
        ),
    ],
    ids=["db", "node", "ensemble"],
)
def test_tokens_that_are_shared(options):
    deploy(life, environment="process", **options)


def test_the_database_keeps_tokens():
    for case in TOKEN_CASES:
        on_the_database(case, environment="process")
