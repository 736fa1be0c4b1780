"""Simulated metastores accept tokens until these expire or are cancelled."""

import asyncio

import pytest

from harness.errors import UsageError
from harness.ops import OpType
from harness.plugins import Request
from targets.hive import api
from targets.hive.api import MetastoreError
from targets.hive.metastore.transactions import Transactions
from targets.hive.tokens.database import DatabaseTokens
from tests.async_tests import on
from tests.hive.deploy import Deployed, deploy

TIMES = {
    "token_max_age_ms": 20_000,
    "token_renew_ms": 6000,
    "token_key_ms": 5000,
    "token_scan_ms": 1000,
}


def store_of(hms):
    env = hms.session.env
    return DatabaseTokens(env, Transactions(env, hms.system._database))


async def issue(hms, node="hms1", owner="alice"):
    return await hms.at(node, api.GetDelegationToken(owner, "yarn"))


async def verdict(hms, node, call):
    try:
        return await hms.at(node, call)
    except MetastoreError as error:
        return error.kind


async def uses(hms, token):
    """Return the owner that each metastore sees for a token."""
    return [await verdict(hms, node, api.Authenticate(token)) for node in ("hms1", "hms2")]


GOOD, BAD = ["alice"] * 2, [api.INVALID_TOKEN] * 2


async def life(hms: Deployed):
    token = await issue(hms)
    assert await uses(hms, token) == GOOD
    assert await uses(hms, f"{token}x") == BAD
    assert await uses(hms, "nonsense") == BAD
    assert await uses(hms, token.replace("alice", "bob")) == BAD
    assert await verdict(hms, "hms2", api.RenewDelegationToken(token, "bob")) == api.ACCESS_CONTROL
    renewed = await verdict(hms, "hms2", api.RenewDelegationToken(f"{token}x", "yarn"))
    assert renewed == api.ACCESS_CONTROL
    until_ms = await hms.at("hms2", api.RenewDelegationToken(token, "yarn"))
    assert await hms.at("hms1", api.RenewDelegationToken(token, "yarn")) >= until_ms
    assert await uses(hms, token) == GOOD
    await hms.at("hms2", api.CancelDelegationToken(token))
    await hms.at("hms1", api.CancelDelegationToken(token))
    assert await uses(hms, token) == BAD
    renewed = await verdict(hms, "hms1", api.RenewDelegationToken(token, "yarn"))
    assert renewed == api.INVALID_TOKEN
    assert await uses(hms, await issue(hms, "hms2")) == GOOD
    assert await verdict(hms, "hms1", api.GetDelegationToken("a:b", "c")) == api.INVALID_OBJECT


SHARED = ("db", "zookeeper")


@pytest.mark.parametrize("store", SHARED)
@pytest.mark.parametrize("bugs", [(), ("TOKEN-RENEW-GAP",)], ids=["", "gap"])
def test_a_shared_token_is_good_everywhere_until_it_is_cancelled(store, bugs):
    deploy(life, token_store=store, bugs=bugs)


@pytest.mark.parametrize("store", SHARED)
def test_a_shared_token_outlives_the_metastore_that_issued_it(store):
    async def body(hms: Deployed):
        token = await issue(hms)
        await hms.cluster.kill("hms1")
        assert await hms.at("hms2", api.Authenticate(token)) == "alice"
        await hms.at("hms2", api.RenewDelegationToken(token, "yarn"))
        await hms.cluster.start("hms1")
        await hms.until_ready()
        assert await uses(hms, token) == GOOD
        await hms.at("hms1", api.RenewDelegationToken(token, "yarn"))

    deploy(body, token_store=store)


def test_a_token_in_memory_is_good_where_it_was_issued_and_ends_with_it():
    async def body(hms: Deployed):
        token = await issue(hms)
        assert await uses(hms, token) == ["alice", api.INVALID_TOKEN]
        renewing = api.RenewDelegationToken(token, "yarn")
        assert await verdict(hms, "hms2", renewing) == api.INVALID_TOKEN
        # cancelling an absent token is not an error
        await hms.at("hms2", api.CancelDelegationToken(token))
        assert await uses(hms, token) == ["alice", api.INVALID_TOKEN]
        await hms.cluster.kill("hms1")
        await hms.cluster.start("hms1")
        await hms.until_ready()
        assert await uses(hms, token) == BAD

    deploy(body, token_store="memory")
    deploy(body, profile="hive2.3")
    deploy(body, bugs=("TOKEN-MEMORY",))


@pytest.mark.parametrize("store", [*SHARED, "memory"])
def test_a_token_ends_when_it_is_not_renewed_and_at_its_greatest_age(store):
    async def body(hms: Deployed):
        renewed, left = await issue(hms), await issue(hms)
        for passed in range(0, 20, 5):
            assert await verdict(hms, "hms1", api.Authenticate(renewed)) == "alice", passed
            is_good = await verdict(hms, "hms1", api.Authenticate(left)) == "alice"
            assert is_good is (passed < 6)
            await hms.at("hms1", api.RenewDelegationToken(renewed, "yarn"))
            await asyncio.sleep(5)
        assert await uses(hms, renewed) == BAD
        again = await verdict(hms, "hms1", api.RenewDelegationToken(renewed, "yarn"))
        assert again == api.INVALID_TOKEN

    deploy(body, token_store=store, **TIMES)


@on(deploy, **TIMES)
async def test_expired_tokens_and_keys_are_removed(hms):
    kept = store_of(hms)
    for _ in range(5):
        await issue(hms)
    assert (len(await kept.all()), len(await kept.keys())) == (5, 1)
    await asyncio.sleep(60)
    assert await kept.all() == {}
    # Two metastores create a key every 5 s each, and keep it for 25 s: about ten keys.
    assert 8 <= len(await kept.keys()) <= 14


@on(deploy, **{**TIMES, "token_scan_ms": 9000})
async def test_a_token_expires_by_the_clock_of_the_metastore_that_is_asked(hms):
    token = await issue(hms)
    await hms.cluster.skew("hms2", offset_ns=5_000_000_000, drift_ppm=0)
    assert await uses(hms, token) == GOOD
    await asyncio.sleep(2)
    assert await uses(hms, token) == ["alice", api.INVALID_TOKEN]
    await hms.at("hms1", api.RenewDelegationToken(token, "yarn"))
    assert await uses(hms, token) == GOOD
    await asyncio.sleep(7)
    assert await uses(hms, token) == BAD


async def renewals(hms: Deployed):
    """Count the reads that miss a token during renewals, and the tokens that reappear."""
    missed = revived = 0
    for _ in range(30):
        token = await issue(hms)
        renewing = asyncio.ensure_future(hms.at("hms1", api.RenewDelegationToken(token, "yarn")))
        seen = []
        while not renewing.done():
            seen.append(await verdict(hms, "hms2", api.Authenticate(token)))
        missed += api.INVALID_TOKEN in seen
        renewing = verdict(hms, "hms1", api.RenewDelegationToken(token, "yarn"))
        await asyncio.gather(renewing, hms.at("hms2", api.CancelDelegationToken(token)))
        revived += await verdict(hms, "hms2", api.Authenticate(token)) == "alice"
    return missed, revived


def test_a_renewal_is_one_step_but_for_the_switch():
    assert deploy(renewals) == (0, 0)
    missed, revived = deploy(renewals, bugs=("TOKEN-RENEW-GAP",))
    assert missed > 3
    assert revived > 0
    assert deploy(renewals, profile="hive4", token_store="db") == (missed, revived)


@on(deploy, **TIMES)
async def test_keys_of_others_are_read_when_one_is_met_that_is_not_known(hms):
    for _ in range(4):
        tokens = [await issue(hms, node) for node in ("hms1", "hms2", "hms1")]
        for token in tokens:
            for node in ("hms1", "hms2"):
                await hms.at(node, api.RenewDelegationToken(token, "yarn"))
        await asyncio.sleep(6)


@on(deploy)
async def test_operations_of_clients(hms):
    client = hms.new_client()

    async def do(f, **value):
        return await client.invoke(Request(f, value), timeout_s=10)

    done = await do("issue", owner="alice", renewer="yarn")
    assert (done.type, done.node, done.value["result"]) == (OpType.OK, "hms1", "ok")
    token = done.value["token"]
    for number, node in ((0, "hms1"), (1, "hms2"), (2, "hms1"), (5, "hms2")):
        done = await do("verify", token=token, metastore=number)
        assert (done.type, done.node) == (OpType.OK, node)
        assert done.value == {"result": "ok", "owner": "alice"}
    done = await do("renew", token=token, user="yarn")
    assert (done.type, done.value) == (OpType.OK, {"result": "ok"})
    done = await do("renew", token=token, user="mallory")
    assert (done.type, done.value) == (OpType.FAIL, {"result": "access-control"})
    assert (await do("cancel", token=token)).type is OpType.OK
    assert (await do("cancel", token=token)).type is OpType.OK
    done = await do("verify", token=token, metastore=0)
    assert (done.type, done.value) == (OpType.OK, {"result": "invalid-token"})
    done = await do("renew", token=token, user="yarn")
    assert (done.type, done.value) == (OpType.FAIL, {"result": "invalid-token"})


@on(deploy)
async def test_a_use_goes_to_the_next_metastore_and_one_that_none_answers_says_nothing(hms):
    client = hms.new_client()
    token = await issue(hms)
    request = Request("verify", {"token": token, "metastore": 1})
    await hms.cluster.kill("hms2")
    done = await client.invoke(request, timeout_s=10)
    assert (done.type, done.node) == (OpType.OK, "hms1")
    assert [attempt.node for attempt in done.attempts] == ["hms2", "hms1"]
    await hms.cluster.pause("hms1", lease_s=60)
    done = await client.invoke(request, timeout_s=10)
    assert (done.type, done.value) == (OpType.FAIL, None)
    assert [attempt.node for attempt in done.attempts] == ["hms2", "hms1"]
    await hms.cluster.resume("hms1")


@on(deploy, bugs=("TOKEN-RENEW-GAP",))
async def test_the_refusal_of_a_copy_is_not_that_of_the_renewal(hms):
    kept = store_of(hms)
    lost = 0
    for number in range(12):
        client = hms.new_client()
        token = await issue(hms, "hms2")
        request = Request("renew", {"token": token, "user": "yarn"})
        renewing = asyncio.ensure_future(client.invoke(request, timeout_s=10))
        await asyncio.sleep(0.001 * number)
        await hms.cluster.pause("hms1", lease_s=60)
        done = await renewing
        await hms.cluster.resume("hms1")
        if done.node == "hms2" and done.type is not OpType.OK:
            assert (done.type, done.value) == (OpType.INFO, None)
            lost += 1
        await hms.until_ready()
        await kept.remove(token.rpartition(":")[0])
    assert lost > 0


@pytest.mark.parametrize(
    ("profile", "options"), [("strict", {"token_store": "disk"}), ("strict", {"token_renew_ms": 0})]
)
def test_what_cannot_be_is_refused(profile, options):
    with pytest.raises(UsageError):
        deploy(life, profile=profile, **options)
    with pytest.raises(UsageError):
        deploy(life, bugs=("TOKEN-MEMORY",), token_store="db")
