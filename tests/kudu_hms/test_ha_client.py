"""A master's client stays with one metastore, resends once, and pauses if all of them fail."""

import asyncio

import pytest

from targets.hive import api
from targets.kudu.hms.client import HaClient, HmsError, HmsSettings
from tests.async_tests import on
from tests.hive.deploy import deploy

SETTINGS = HmsSettings(addresses=("hms1:9083", "hms2:9083"))
CREATE = api.CreateTable(api.MetaTable("db1", "x"))


def asked(client):
    """Return the metastore that the client uses, or would try first."""
    return client._uris[client._first].node


async def failure(client, call, **given):
    with pytest.raises(HmsError) as caught:
        await client.call(call, **given)
    return caught.value


@on(deploy)
async def test_it_stays_with_the_one_that_serves(hms):
    client = HaClient(hms.session.env, SETTINGS)
    assert await client.call(api.GetStatus()) == "ALIVE"
    assert asked(client) == "hms1"
    await hms.cluster.kill("hms1")
    assert await client.call(api.GetStatus()) == "ALIVE"
    await hms.cluster.start("hms1")
    await hms.until_ready()
    assert await client.call(api.GetStatus()) == "ALIVE"
    assert asked(client) == "hms2"
    await hms.cluster.kill("hms2")
    assert await client.call(api.GetStatus()) == "ALIVE"
    assert asked(client) == "hms1"


@on(deploy)
async def test_during_a_pause_that_doubles_calls_fail_at_once(hms):
    clock = hms.session.env.clock
    client = HaClient(hms.session.env, SETTINGS)
    for node in ("hms1", "hms2"):
        await hms.cluster.kill(node)
    first = await failure(client, CREATE)
    assert (first.kind, first.maybe_done) == ("", False)
    before_ns = clock.monotonic_ns()
    second = await failure(client, CREATE)
    assert "a moment ago" in str(second)
    assert clock.monotonic_ns() == before_ns
    assert client._pause_s == 2 * SETTINGS.backoff_s_min
    for node in ("hms1", "hms2"):
        await hms.cluster.start(node)
    await hms.until_ready()
    await asyncio.sleep(SETTINGS.backoff_s_min)
    assert await client.call(api.GetStatus()) == "ALIVE"
    assert client._pause_s == SETTINGS.backoff_s_min
    assert client.changing == 0


@on(deploy)
async def test_a_lost_call_is_sent_once_more_and_its_refusal_may_be_its_own_success(hms):
    client = HaClient(hms.session.env, SETTINGS)
    await client.call(CREATE)
    assert not (await failure(client, CREATE, once=False)).maybe_done
    await hms.cluster.pause("hms1", lease_s=60)
    assert await client.call(api.GetStatus()) == "ALIVE"
    assert asked(client) == "hms2"
    await hms.cluster.resume("hms1")
    for once in (False, True):
        await hms.cluster.pause(asked(client), lease_s=60)
        paused = asked(client)
        refused = await failure(client, CREATE, once=once)
        assert (refused.kind, refused.maybe_done) == (api.ALREADY_EXISTS, not once)
        assert asked(client) != paused
        await hms.cluster.resume(paused)
    for node in ("hms1", "hms2"):
        await hms.cluster.pause(node, lease_s=60)
    lost = await failure(client, CREATE)
    assert (lost.kind, lost.maybe_done) == ("", True)


@on(deploy)
async def test_what_a_database_that_is_away_makes_of_a_call_is_open(hms):
    client = HaClient(hms.session.env, SETTINGS)
    await hms.cluster.kill("db")
    refused = await failure(client, CREATE)
    assert (refused.kind, refused.maybe_done) == (api.META, True)
