"""Metastores that are added and removed under load, and the lists of clients."""

import asyncio
import random
from collections import Counter

import pytest

from harness.env import Address
from harness.environments.sim import SimEnvironment
from harness.errors import UsageError
from harness.nodes.faults import Operate
from harness.ops import NEMESIS, OpType, Verdict
from harness.plan.planning import plan_case
from harness.run.operations import do_operation, restore
from harness.run.phases import conduct
from harness.verdict.judge import judge
from targets.hive import api
from targets.hive.channel import ChannelError
from targets.hive.client import Selection
from targets.hive.client.uris import Uris
from tests.async_tests import on
from tests.hive.deploy import Deployed, deploy
from tests.hive.runs import case_of

ONE, TWO, THREE = (Address(f"hms{number}", 9083) for number in (1, 2, 3))


async def change(hms: Deployed, what, *nodes):
    return await do_operation(Operate(name=what), nodes, hms.cluster, hms.system)


async def add(hms: Deployed, *nodes):
    return await change(hms, "add-metastore", *nodes)


async def remove(hms: Deployed, *nodes):
    return await change(hms, "remove-metastore", *nodes)


def listed(hms: Deployed):
    return [address.node for address in hms.system._members.listed]


def test_a_list_that_changed_is_followed_in_its_order_or_shuffled_anew():
    ordered = Uris((ONE, TWO), Selection.SEQUENTIAL, random.Random(1), remembers=True)
    ordered.lost(TWO, 5)
    ordered.reread((TWO, THREE))
    # the client still remembers which metastore lost a call
    assert ordered.in_order(5) == (THREE, TWO)
    assert ordered.in_order(1 << 40) == (TWO, THREE)
    firsts = Counter()
    for seed in range(300):
        rng = random.Random(seed)
        shuffled = Uris((ONE,), Selection.RANDOM, rng, remembers=False)
        shuffled.reread((ONE, TWO, THREE))
        firsts[shuffled.in_order(0)[0]] += 1
        before = shuffled.in_order(0), rng.getstate()
        shuffled.reread((ONE, TWO, THREE))
        assert (shuffled.in_order(0), rng.getstate()) == before
    assert min(firsts[uri] for uri in (ONE, TWO, THREE)) > 60


async def both_of_the_first_list_go(hms: Deployed):
    client = hms.new_client()
    await hms.ok(client, "create", "db1.x", nonce="a")
    assert await add(hms, "hms3") == "add-metastore: hms3"
    assert (await hms.do(client, "list")).node == "hms1"  # a connected client stays connected
    assert await remove(hms, "hms1") == "remove-metastore: hms1"
    done = await hms.do(client, "alter", "db1.x", nonce="b")
    assert (done.type, done.node) == (OpType.OK, "hms2"), done
    half = done.value["uris"], done.value["listed"]
    assert await remove(hms, "hms2") == "remove-metastore: hms2"
    gone = await hms.do(client, "get", "db1.x")
    new = hms.new_client()
    assert (await hms.ok(new, "get", "db1.x"))["nonce"] == "b"
    return half, gone


def test_a_client_with_a_fixed_list_works_while_one_of_its_metastores_lives():
    async def body(hms: Deployed):
        half, gone = await both_of_the_first_list_go(hms)
        assert half == (["hms1", "hms2"], ["hms2"])
        assert gone.type is OpType.FAIL
        known = "NO_METASTORE: this client knows only hms1, hms2, but none of them is configured"
        assert gone.error.startswith(known)
        assert gone.value["listed"] == []
        await restore(hms.cluster, hms.system)
        await hms.until_ready()
        assert (await hms.ok(hms.clients[0], "get", "db1.x"))["nonce"] == "b"

    deploy(body, spare_metastores=1, uri_list="kept")


def test_a_client_that_rereads_its_list_uses_added_metastores():
    async def body(hms: Deployed):
        half, gone = await both_of_the_first_list_go(hms)
        assert half == (["hms1", "hms2", "hms3"], ["hms2", "hms3"])
        assert (gone.type, gone.node) == (OpType.OK, "hms3")

    deploy(body, spare_metastores=1)


@pytest.mark.parametrize(("profile", "rereads"), [("strict", True), ("hive4", False)])
def test_the_profile_decides_which_clients_reread(profile, rereads):
    async def body(hms: Deployed):
        assert hms.new_client()._settings.rereads is rereads

    deploy(body, profile=profile, spare_metastores=1)


def test_sequential_and_random_go_by_the_new_list():
    async def nodes(hms: Deployed):
        return Counter([(await hms.do(hms.new_client(), "list")).node for _ in range(40)])

    async def body(hms: Deployed):
        await add(hms, "hms3")
        three = await nodes(hms)
        await remove(hms, "hms1")
        await add(hms, "hms1")
        assert listed(hms) == ["hms2", "hms3", "hms1"]
        again = await nodes(hms)
        await remove(hms, "hms2")
        return three, again, await nodes(hms)

    ordered = deploy(body, spare_metastores=1)
    assert ordered == ({"hms1": 40}, {"hms2": 40}, {"hms3": 40})
    three, again, two = deploy(body, spare_metastores=1, selection="random")
    assert {*three} == {*again} == {"hms1", "hms2", "hms3"}
    assert {*two} == {"hms1", "hms3"}
    assert min([*three.values(), *again.values(), *two.values()]) > 4


@on(deploy, spare_metastores=2)
async def test_the_last_metastore_stays_and_repeated_requests_act_once(hms):
    assert await remove(hms, "db", "hms1", "hms3", "hms2") == "remove-metastore: hms1"
    assert await remove(hms, "hms1", "hms2") is None
    assert await add(hms, "hms2", "db") is None
    assert await add(hms, "hms1", "hms2", "hms3", "hms4") == "add-metastore: hms1, hms3, hms4"
    assert listed(hms) == ["hms2", "hms1", "hms3", "hms4"]


@on(deploy, spare_metastores=1)
async def test_all_that_asks_for_metastores_asks_those_that_are_listed(hms):
    async def seen():
        shown = await hms.system.snapshot()
        candidates = (await hms.system.groups())["metastore"].candidates
        assert (await hms.system.ready()).ok
        cores = {hms.system.core(random.Random(seed))[0] for seed in range(20)}
        assert [*shown["metastores"]] == shown["members"] == [*candidates[:-1]]
        assert None not in shown["metastores"].values()
        assert cores <= {*shown["members"]}
        assert shown["failover_s"] == shown["failover_by_uris_s"][len(shown["members"]) - 1]
        return shown["members"]

    assert await seen() == ["hms1", "hms2"]
    await add(hms, "hms3")
    await remove(hms, "hms2")
    assert await seen() == ["hms1", "hms3"]
    await restore(hms.cluster, hms.system)
    await hms.until_ready()
    assert await seen() == ["hms1", "hms2"]


@on(deploy, spare_metastores=1)
async def test_a_kill_does_not_change_the_list(hms):
    await add(hms, "hms3")
    await remove(hms, "hms2")
    for node in ("hms2", "hms3"):
        await hms.cluster.kill(node)
        await hms.cluster.start(node)
    await hms.until_ready()
    assert (await hms.at("hms3", api.GetStatus())) == "ALIVE"
    with pytest.raises(ChannelError, match="connect"):
        await hms.at("hms2", api.GetStatus())


@on(deploy, spare_metastores=1)
async def test_a_metastore_without_its_database_is_not_added(hms):
    await hms.cluster.kill("hms3")
    assert await add(hms, "hms3") is None
    await hms.cluster.start("hms3")
    await hms.cluster.kill("db")
    assert await add(hms, "hms3") is None
    assert listed(hms) == ["hms1", "hms2"]
    await hms.cluster.start("db")
    assert await add(hms, "hms3") == "add-metastore: hms3"


@on(deploy, spare_metastores=1)
async def test_a_metastore_that_is_down_can_be_removed(hms):
    await hms.cluster.kill("hms1")
    assert await remove(hms, "hms1") == "remove-metastore: hms1"
    assert listed(hms) == ["hms2"]
    await hms.cluster.start("hms1")
    assert (await hms.do(hms.new_client(), "list")).node == "hms2"
    assert await add(hms, "hms1") == "add-metastore: hms1"


@on(deploy, spare_metastores=1)
async def test_answers_under_way_are_lost_and_sent_again(hms):
    client = hms.new_client()
    await hms.ok(client, "create", "db1.x")
    await hms.cluster.pause("db", lease_s=60)
    asked = asyncio.ensure_future(hms.do(client, "alter", "db1.x", nonce="b"))
    await asyncio.sleep(0.1)
    await remove(hms, "hms1")
    await hms.cluster.resume("db")
    done = await asked
    assert (done.type, done.node) == (OpType.OK, "hms2"), done
    assert done.attempts[0].node == "hms1"


def test_impossible_settings_are_refused_before_the_start():
    fault = "--fault 'do add-metastore on node:hms2 at 5s'"
    with pytest.raises(UsageError, match="serving"):
        plan_case(case_of(fault, 1), SimEnvironment())
    with pytest.raises(UsageError, match="serving"):
        plan_case(case_of("--nemesis metastore-membership", 1), SimEnvironment())
    assert plan_case(case_of(f"--spare-metastores 1 {fault}", 1), SimEnvironment()).case.faults
    for words in ("--spare-metastores 1 --uri-list sometimes", "--uri-list kept"):
        with pytest.raises(UsageError, match="uri-list"):
            plan_case(case_of(words, 1), SimEnvironment())


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "--selection random", "--uri-list kept", "--metastores 3"])
def test_runs_in_which_metastores_come_and_go_are_valid_and_end_as_they_began(more):
    words = (
        "--nemesis metastore-membership,kill-metastore --interval 2 --duration 1 --time-limit 20"
    )
    world = SimEnvironment()
    plan = plan_case(case_of(f"{words} --spare-metastores 1 {more}", 1), world)
    history = conduct(plan, world, run_id="exam", folder=None).history
    judgement = judge(history, plan.case, plan.checkers)
    assert judgement.verdict is Verdict.VALID, judgement.results
    done = [op.value["note"].split(":")[0] for op in history.of_process(NEMESIS)]
    assert {"add-metastore", "remove-metastore"} <= {*done}
    (snapshot,) = history.facts("snapshot")
    first = ["hms1", "hms2", "hms3"] if "--metastores" in more else ["hms1", "hms2"]
    assert [*snapshot.value["metastores"]] == snapshot.value["members"] == first
    (failovers,) = [one for one in judgement.results if one.checker == "hms-failover"]
    assert failovers.details["failovers"] > 0
