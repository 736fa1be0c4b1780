"""A client of metastores chooses a metastore, and proves the outcome of each operation."""

import asyncio
import random
from collections import Counter

import pytest

from harness.cluster import CLIENT, Link
from harness.env import Address
from harness.errors import UsageError
from harness.ops import OpType
from harness.plugins import Request
from harness.vocabularies import hms as hms_words
from targets.hive import api
from targets.hive.api import MetastoreError
from targets.hive.client import ClientSettings, Selection
from targets.hive.client.classify import Proof, proof_of, result_of, retries
from targets.hive.client.uris import AVOIDED_NS, Uris
from tests.async_tests import on
from tests.faults.door import door
from tests.hive.deploy import Deployed, deploy

THREE = tuple(Address(f"hms{number}", 9083) for number in (1, 2, 3))
SEQUENTIAL, RANDOM = Selection.SEQUENTIAL, Selection.RANDOM


def uris(selection, *, given=THREE, seed=1, remembers=False):
    return Uris(given, selection, random.Random(seed), remembers=remembers)


def test_sequential_tries_the_first_one_first_at_every_reconnect():
    found = uris(SEQUENTIAL)
    for _ in range(5):
        assert found.in_order(0) == THREE
        found.promote()


def test_random_shuffles_once_and_then_promotes_another_one():
    firsts = Counter(uris(RANDOM, seed=seed).in_order(0)[0] for seed in range(300))
    assert {*firsts} == {*THREE}
    assert min(firsts.values()) > 60
    found = uris(RANDOM)
    assert found.in_order(0) == found.in_order(0)
    for _ in range(50):
        before = found.in_order(0)
        found.promote()
        after = found.in_order(0)
        assert after[0] != before[0]
        assert sorted(after) == sorted(before)


def test_of_two_random_always_promotes_the_other_and_one_stays():
    found = uris(RANDOM, given=THREE[:2])
    for _ in range(10):
        before = found.in_order(0)
        found.promote()
        assert found.in_order(0) == before[::-1]
    alone = uris(RANDOM, given=THREE[:1])
    alone.promote()
    assert alone.in_order(0) == THREE[:1]


def test_a_metastore_that_lost_a_call_is_tried_last_for_a_while():
    first, second, third = THREE
    found = uris(SEQUENTIAL, remembers=True)
    found.lost(first, 100)
    assert found.in_order(100) == (second, third, first)
    found.lost(second, 200)
    assert found.in_order(200) == (third, first, second)
    found.lost(third, 300)
    assert found.in_order(300) == (first, second, third)
    found.lost(first, 400)
    assert found.in_order(400) == (second, third, first)
    assert found.in_order(300 + AVOIDED_NS) == (second, third, first)
    assert found.in_order(400 + AVOIDED_NS) == THREE
    forgetful = uris(SEQUENTIAL)
    forgetful.lost(first, 100)
    assert forgetful.in_order(100) == THREE


@pytest.mark.parametrize(
    ("kind", "message", "proof", "again"),
    [
        (api.ALREADY_EXISTS, "Table x already exists", Proof.NOTHING, False),
        (api.NO_SUCH_OBJECT, "JDO: not found", Proof.NOTHING, False),
        (api.INVALID_OPERATION, "x", Proof.NOTHING, False),
        (api.INVALID_OBJECT, "x", Proof.NOTHING, False),
        (api.META, "JDODataStoreException: the connection is closed", Proof.UNKNOWN, True),
        (api.META, "TTransportException", Proof.UNKNOWN, True),
        (api.META, "Got exception: java.net.IOException", Proof.UNKNOWN, True),
        (api.META, "something else", Proof.UNKNOWN, False),
        (api.META, "JDODataStoreException: duplicate key value", Proof.NOTHING, False),
        ("TApplicationException", "unknown method", Proof.UNKNOWN, False),
        ("TApplicationException", "Internal error processing drop", Proof.UNKNOWN, True),
    ],
)
def test_exceptions_prove_what_they_prove(kind, message, proof, again):
    error = MetastoreError(kind, message)
    assert proof_of(error) is proof
    assert retries(error) is again
    assert result_of(error) in {*hms_words.REFUSALS, "TApplicationException"}


def test_the_bound_of_a_failover_is_that_of_the_settings():
    assert ClientSettings(SEQUENTIAL).failover_s(2) == 3 * 2 * 1.0 + 2 * 1.0 + 1.0 + 1.0


@on(deploy)
async def test_without_any_metastore_all_fails_and_nothing_is_unknown(hms):
    client = hms.new_client(connect_rounds=2)
    for node in ("hms1", "hms2"):
        await hms.cluster.kill(node)
    done = await hms.do(client, "create", "db1.x")
    assert (done.type, done.node) == (OpType.FAIL, None)
    nodes = [attempt.node for attempt in done.attempts]
    assert nodes == ["hms1", "hms2", "hms1", "hms2"]
    starts = [attempt.start for attempt in done.attempts]
    assert starts[2] - starts[1] >= 1_000_000_000  # the delay between rounds
    assert all(attempt.outcome.startswith("CONNECT") for attempt in done.attempts)


async def lost_create(hms: Deployed):
    """Run a create whose answer the first metastore cannot send; return its outcome."""
    client = hms.new_client()
    await hms.ok(client, "list")
    await door(hms).cut([Link(client._address.node, CLIENT)])
    done = await hms.do(client, "create", "db1.x", nonce="a")
    assert (await hms.ok(client, "get", "db1.x"))["nonce"] == "a"
    assert hms_words.times_sent(done.attempts) == 2
    assert done.attempts[0].node != done.attempts[-1].node
    return done.type, None if done.value is None else done.value["result"]


def test_the_request_id_reveals_the_outcome_of_a_lost_answer():
    assert deploy(lost_create) == (OpType.OK, "ok")


@pytest.mark.parametrize("profile", ["hive2.3", "hive4"])
def test_without_request_ids_the_refusal_of_a_copy_leaves_it_unknown(profile):
    assert deploy(lost_create, profile=profile) == (OpType.INFO, None)


def test_the_refusal_of_a_copy_is_believed_with_hive_25144():
    assert deploy(lost_create, bugs=("HIVE-25144",)) == (OpType.FAIL, "already-exists")


@on(deploy)
async def test_an_operation_ends_within_its_deadline(hms):
    client = hms.new_client()
    await hms.ok(client, "create", "db1.x")
    await hms.cluster.pause("db", lease_s=60)
    for f, kind in (("alter", OpType.INFO), ("get", OpType.FAIL)):
        begin_ns = hms.session.env.clock.monotonic_ns()
        done = await hms.do(client, f, "db1.x", timeout_s=0.5)
        assert hms.session.env.clock.monotonic_ns() - begin_ns < 600_000_000
        assert done.type is kind
    await hms.cluster.resume("db")


def test_a_connection_is_replaced_after_its_lifetime():
    async def body(deployed: Deployed):
        client = deployed.new_client()
        nodes = []
        for _ in range(4):
            nodes.append((await deployed.do(client, "list")).node)
            await asyncio.sleep(1)
        return nodes

    kept = deploy(body, selection="random")
    assert len({*kept}) == 1
    replaced = deploy(body, selection="random", socket_lifetime_ms=500)
    assert replaced in (["hms1", "hms2"] * 2, ["hms2", "hms1"] * 2)


def test_selection_is_as_the_profile_has_it_and_as_asked():
    async def body(deployed: Deployed):
        firsts = [(await deployed.do(deployed.new_client(), "list")).node for _ in range(40)]
        return Counter(firsts)

    assert deploy(body) == {"hms1": 40}  # without faults, all operations go to the first metastore
    for spread in (deploy(body, selection="random"), deploy(body, profile="hive4")):
        assert min(spread.values()) > 8
        assert {*spread} == {"hms1", "hms2"}
    with pytest.raises(UsageError):
        deploy(body, selection="sideways")


@on(deploy)
async def test_what_is_not_in_the_vocabulary_is_a_usage_error(hms):
    client = hms.new_client()
    for request in (Request("fly", {}), Request("create", {"name": "x"})):
        with pytest.raises(UsageError):
            await client.invoke(request, timeout_s=1.0)
