"""A real ZooKeeper ensemble keeps the guarantees of the protocol while servers are faulty."""

import asyncio
import sys

import pytest

from harness.cluster import Link
from harness.errors import UsageError
from targets.hive.tokens.zookeeper import ZooKeeperTokens
from targets.hive.zookeeper import kazoo
from targets.hive.zookeeper.protocol import Znode
from tests.faults.door import door
from tests.hive.tokens.test_zookeeper import run_case
from tests.hive.tokens.token_stores import CASES as TOKEN_CASES
from tests.hive.tokens.token_stores import IDENT, ONE
from tests.hive.tokens.zookeeper_cases import CASES
from tests.hive.tokens.zookeepers import LEASE_S, answered, answers, with_ensemble, written

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.zookeeper]
SERVERS = ("zk1", "zk2", "zk3")


async def killed_at_once(cluster, **options):
    """Kill all servers before the remaining ones can elect another leader.

    A follower stores the new leader's epoch before the writes that it lacks. If all servers are
    then killed, the follower may win the next election, and ZooKeeper 3.8 loses answered writes
    (ZOOKEEPER-4643).
    """
    await asyncio.gather(*(cluster.kill(name, **options) for name in SERVERS))


def test_it_keeps_the_protocol_and_tokens():
    async def body(zookeepers):
        for case in CASES:
            await run_case(case, zookeepers)
        for case in TOKEN_CASES:
            stores = [ZooKeeperTokens(zookeepers.new_session()) for _ in range(2)]
            await case(*stores)
            for ident in await stores[0].all():
                await stores[0].remove(ident)
            for number in await stores[0].keys():
                await stores[0].remove_key(number)

    with_ensemble(body)


def test_any_server_may_be_killed_and_nothing_is_lost():
    async def body(zookeepers):
        session = zookeepers.new_session()
        await session.create("/a", b"")
        for number, name in enumerate(SERVERS, start=1):
            await zookeepers.cluster.kill(name)
            await written(session, "/a", number)
            await zookeepers.cluster.start(name)
        await killed_at_once(zookeepers.cluster)
        for name in SERVERS:
            await zookeepers.cluster.start(name)
        await answers(session)
        assert await answered(lambda: session.get("/a")) == Znode(b"3", 3)

    with_ensemble(body)


def test_a_server_that_is_paused_or_cut_off_costs_a_reconnect():
    async def body(zookeepers):
        session = zookeepers.new_session()
        store = ZooKeeperTokens(session)
        await store.add(IDENT, ONE)
        for name in SERVERS:
            others = [other for other in SERVERS if other != name]
            await zookeepers.cluster.pause(name, lease_s=LEASE_S)
            assert await answered(lambda: store.get(IDENT)) == ONE
            await zookeepers.cluster.resume(name)
            links = Link.between([name], others)
            fault = await door(zookeepers).cut(links)
            await answers(zookeepers.new_session())
            assert await answered(lambda: store.get(IDENT)) == ONE
            await door(zookeepers).heal(fault)
            await answers(session)

    with_ensemble(body)


@pytest.mark.fuse
@pytest.mark.nightly  # only nightly, because the default tests cut the power of the bundled server
def test_a_power_cut_of_all_loses_nothing_that_was_answered():
    async def body(zookeepers):
        session = zookeepers.new_session()
        await session.create("/a", b"")
        for number in range(1, 3):
            await written(session, "/a", number)
            await killed_at_once(zookeepers.cluster, lose_unsynced=True)
            for name in SERVERS:
                await zookeepers.cluster.start(name)
            await answers(session)
            assert await answered(lambda: session.get("/a")) == Znode(b"%d" % number, number)

    with_ensemble(body)


def test_without_the_client_it_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "kazoo.client", None)  # as if kazoo were not installed
    with pytest.raises(UsageError, match="kazoo"):
        kazoo.require_kazoo()
