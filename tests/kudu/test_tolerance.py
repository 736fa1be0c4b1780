"""How many nodes may be down: the bench with a few groups, and its eyes."""

import pytest

from bench.tolerance import run
from bench.tolerance_world import KINDS, OLD, Group, World, all_succeed, none_acknowledged
from harness.ops import OpType
from harness.plugins import Completion
from tests.async_tests import on
from tests.kudu.deploy import Deployed, deploy

OK, FAIL, INFO = (Completion(kind, None, None) for kind in (OpType.OK, OpType.FAIL, OpType.INFO))
EVERY = [(f, OK) for f in sorted(KINDS)]


@pytest.mark.parametrize(
    "group",
    [Group(masters=2), Group(masters=3), Group(replicas=3, of_masters=False)],
    ids=lambda group: group.title,
)
def test_a_minority_may_be_down_and_no_more(group):
    claims = list(run("sim", [group]))
    assert len(claims) >= 4
    for claim in claims:
        assert claim.holds, claim


def test_a_kind_that_did_not_succeed_or_was_not_tried_is_seen():
    assert all_succeed("", "", EVERY).holds
    assert not all_succeed("", "", EVERY[1:]).holds
    assert not all_succeed("", "", [*EVERY, ("read", FAIL)]).holds
    assert not all_succeed("", "", [*EVERY, ("write", INFO)]).holds
    assert not all_succeed("", "", []).holds


def test_an_acknowledged_write_is_seen():
    assert none_acknowledged("", "", [("create", FAIL), ("create", INFO)]).holds
    assert not none_acknowledged("", "", [("create", FAIL), ("create", OK)]).holds
    assert not none_acknowledged("", "", []).holds


@on(deploy)
async def test_what_is_lost_and_what_was_refused_and_is_there_is_seen(cluster: Deployed):
    client = cluster.new_client()
    for name in (OLD, "t"):
        await cluster.ok(client, "create", name=name)
        await cluster.until_done(client, "is-create-done", name)
    await cluster.ok(client, "write", table=OLD, nonce="w", rows=[["insert", "k", {"a": "v"}]])
    world = World(cluster, Group())
    world.tables, world.rows = {OLD: ["a", "b"], "t": ["a", "b"]}, {OLD: {"k": "v"}}
    assert await world.differences() == []
    world.rows[OLD] = {"k": "w"}
    assert len(await world.differences()) == 1
    world.rows[OLD] = {"k": "v", "other": "v"}
    assert len(await world.differences()) == 1
    world.tables["gone"] = ["a"]
    world.tables["t"] = ["a", "b", "late"]
    assert len(await world.differences()) == 3
    world.absent.add("t")
    world.refused_keys.add("k")
    assert len(await world.differences()) == 5
