"""The bundled ZooKeeper conforms to the protocol, and keeps its znodes."""

import asyncio

import pytest

from harness.errors import UsageError
from targets.hive.tokens.zookeeper import ZooKeeperTokens
from targets.hive.zookeeper.node import main
from targets.hive.zookeeper.protocol import ConnectionLossError, Znode, ZooKeeperError
from tests.async_tests import on
from tests.hive.tokens.token_stores import CASES as TOKEN_CASES
from tests.hive.tokens.zookeeper_cases import CASES
from tests.hive.tokens.zookeepers import answers, with_node


async def run_case(case, zookeepers):
    here, there = zookeepers.new_session(), zookeepers.new_session()
    root = f"/{case.__name__}"
    await here.create(root, b"")
    await case(here, there, root)
    here.close()
    there.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_protocol(case):
    async def body(zookeepers):
        await run_case(case, zookeepers)

    with_node(body)
    assert len(CASES) > 9


@pytest.mark.parametrize("case", TOKEN_CASES, ids=lambda case: case.__name__)
def test_the_store_of_tokens(case):
    async def body(zookeepers):
        await case(*(ZooKeeperTokens(zookeepers.new_session()) for _ in range(2)))

    with_node(body)


@on(with_node)
async def test_acknowledged_changes_survive_a_power_cut(zookeepers):
    zookeeper = zookeepers.new_session()
    await zookeeper.create("/a", b"1")
    sequence = await zookeeper.create("/s-", b"", sequential=True)
    await zookeeper.delete(sequence)
    for number in range(10):
        await zookeeper.set("/a", b"%d" % number)
        await zookeepers.cluster.kill("zk1", lose_unsynced=True)
        await zookeepers.cluster.start("zk1")
        await answers(zookeeper)
        assert await zookeeper.get("/a") == Znode(b"%d" % number, number + 1)
    assert await zookeeper.create("/s-", b"", sequential=True) > sequence


@on(with_node)
async def test_a_lost_connection_says_nothing_and_is_made_again(zookeepers):
    zookeeper = zookeepers.new_session()
    await zookeeper.create("/a", b"")
    await zookeepers.cluster.pause("zk1", lease_s=60)
    with pytest.raises(ConnectionLossError):
        await zookeeper.set("/a", b"late")
    await zookeepers.cluster.resume("zk1")
    await asyncio.sleep(1)
    assert (await zookeeper.get("/a")).data in (b"", b"late")
    await zookeepers.cluster.kill("zk1")
    with pytest.raises(ConnectionLossError):
        await zookeeper.get("/a")
    await zookeepers.cluster.start("zk1")
    await answers(zookeeper)
    assert await zookeeper.children("/") == ["a"]


@on(with_node)
async def test_invalid_calls_are_refused(zookeepers):
    zookeeper = zookeepers.new_session()
    with pytest.raises(ZooKeeperError):
        await zookeeper._do("nonsense")
    assert await zookeeper.children("/") == []


async def test_a_bad_configuration_is_refused():
    with pytest.raises(UsageError):
        await main(None, {"port": "x"})
