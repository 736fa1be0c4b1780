"""A master with a scripted replica is elected, becomes ready, and loses its leadership."""

import asyncio
from typing import Any

import pytest

from targets.kudu import messages as m
from targets.kudu.consensus.errors import ConfigRefusedError, IndeterminateError, OverloadedError
from targets.kudu.consensus.messages import ChangeType, ConsensusErrorCode
from tests.master.fakes import FakeMaster, add, refusal, settle
from tests.support.virtual import run

pytestmark = pytest.mark.loop(run=run)
Code = m.MasterErrorCode
Status = m.AppStatus
NOT_LEADER = Code.NOT_THE_LEADER


async def test_a_follower_refuses_and_says_that_nothing_happened():
    master = FakeMaster()
    assert Code.CATALOG_MANAGER_NOT_INITIALIZED is refusal(await master.create("t")).code
    master.leadership.on_role_change(master.replica)
    error = refusal(await master.create("t"))
    assert (error.code, error.status) == (NOT_LEADER, Status.ILLEGAL_STATE)
    assert not error.indeterminate


async def test_a_leader_is_ready_only_after_its_own_term_committed():
    master = FakeMaster()
    master.replica.elect(1, no_op_commits=False)
    await asyncio.sleep(1)
    assert Status.SERVICE_UNAVAILABLE is refusal(await master.get("t")).status
    role = (await master.ask(m.ConnectToMasterRequest())).role
    assert role == "FOLLOWER"
    master.replica.commit()
    await asyncio.sleep(0.1)
    assert master.leadership.epoch is not None
    role = (await master.ask(m.ConnectToMasterRequest())).role
    assert role == "LEADER"
    assert master.rows.cluster_id is not None


async def test_a_second_callback_in_the_same_term_reloads_nothing():
    master = await FakeMaster().lead()
    epoch = master.leadership.epoch
    master.leadership.on_role_change(master.replica)
    await settle()
    assert epoch is master.leadership.epoch


async def _acknowledged_then_killed(bug: str | None) -> FakeMaster:
    """Return a second master, whose log has an acknowledged create that it has not applied yet."""
    first = await FakeMaster().lead()
    assert (await first.create("kept")).error is None
    bugs = () if bug is None else (bug,)
    second = FakeMaster(*bugs, log_of=first.replica, seed=2)
    second.leadership.on_role_change(second.replica)
    for number in range(3):
        await second.heartbeat(f"ts{number}")
    second.replica.elect(2, no_op_commits=False)
    await asyncio.sleep(0.05)
    second.replica.commit()
    await asyncio.sleep(0.05)
    return second


async def test_a_new_leader_knows_everything_acknowledged_before():
    master = await _acknowledged_then_killed(None)
    assert await master.names() == ["kept"]


async def test_switch_kudu_765_forgets_acknowledged_tables_until_the_next_election():
    master = await _acknowledged_then_killed("KUDU-765")
    assert await master.names() == []
    assert (await master.get("kept")).error is not None
    assert [t.name for t in master.rows.tables.values()] == ["kept"]
    assert (await master.create("other")).error is None
    assert await master.names() == ["other"]
    master.replica.depose()
    await master.lead(9)
    assert await master.names() == ["kept", "other"]


async def test_reads_and_errors_wait_for_a_majority():
    master = await FakeMaster().lead()
    await master.create("t")
    before = master.replica.confirmations
    await master.get("t")
    assert before + 1 == master.replica.confirmations
    assert (await master.create("t")).error is not None
    assert before + 2 == master.replica.confirmations
    master.replica.reachable = False
    for answer in (
        await master.get("t"),
        await master.get("nowhere"),
        await master.create("t"),
        await master.delete("nowhere"),
        await master.alter("t", add("a")),
        await master.locate("t"),
    ):
        assert answer.error is not None
        assert (answer.error.code, answer.error.indeterminate) == (NOT_LEADER, False)


async def test_switch_no_lease_answers_without_a_majority():
    master = await FakeMaster("NO-LEASE").lead()
    await master.create("t")
    master.replica.reachable = False
    before = master.replica.confirmations
    assert await master.names() == ["t"]
    assert refusal(await master.create("t")).code is Code.TABLE_ALREADY_PRESENT
    assert before == master.replica.confirmations


async def test_a_lost_write_is_indeterminate_and_ends_the_leadership():
    master = await FakeMaster().lead()
    create = await master.held(master.create("t"))
    assert await master.names() == [], "not committed, so not visible"
    master.replica.depose(lose_tail=True)
    error = refusal(await create)
    assert (error.code, error.indeterminate) == (NOT_LEADER, True)
    assert "no longer the leader" in error.message
    await master.lead(7)
    assert await master.names() == []


async def test_requests_that_waited_for_a_lock_across_an_election_do_nothing():
    master = await FakeMaster().lead()
    await master.create("t")
    master.replica.hold()
    first = asyncio.ensure_future(master.alter("t", add("x")))
    waiting = asyncio.ensure_future(master.alter("t", add("y")))
    await asyncio.sleep(0.1)
    master.replica.depose(lose_tail=True)
    master.replica.elect(master.replica.term + 1)
    assert (await first).error is not None
    error = refusal(await waiting)
    assert (error.code, error.indeterminate) == (NOT_LEADER, False)
    await asyncio.sleep(0.1)
    got = await master.get("t")
    assert got.error is None
    assert got.schema_version == 0


async def test_the_table_under_creation_is_invisible_until_it_is_committed():
    master = await FakeMaster().lead()
    create = await master.held(master.create("t"))
    assert Status.NOT_FOUND is refusal(await master.get("t")).status
    error = refusal(await master.create("t"))
    assert (error.code, error.status) == (Code.TABLE_ALREADY_PRESENT, Status.SERVICE_UNAVAILABLE)
    master.replica.commit()
    assert (await create).error is None
    assert await master.names() == ["t"]


async def test_switch_order_create_shows_a_table_that_never_comes_to_be():
    master = await FakeMaster("ORDER-CREATE").lead()
    assert (await master.create("fine", "a")).error is None
    assert (await master.get("fine")).state == "RUNNING"
    kinds = master.env.kinds()
    assert [k for k in kinds if k in {"published", "tablets-replicated", "table-replicated"}] == [
        "published",
        "tablets-replicated",
        "table-replicated",
    ]
    create = await master.held(master.create("ghost"))
    assert await master.names() == ["fine", "ghost"]
    got = await master.get("ghost")
    assert (got.state, got.schema.columns, got.error) == ("UNKNOWN", (), None)
    catalog = master.catalog
    master.replica.depose(lose_tail=True)
    assert (await create).error is not None
    assert "ghost" not in catalog.by_name
    await master.lead(9)
    assert await master.names() == ["fine"]


async def test_a_write_that_lands_in_another_term_is_void():
    master = await FakeMaster().lead()
    epoch = master.epoch
    await master.create("t")
    table = next(iter(master.rows.tables.values()))
    before = master.rows.snapshot()
    write = asyncio.ensure_future(epoch.write([table.buried(1, "late")]))
    await settle(1)
    _, payload = master.replica.log[-1]
    master.rows.apply(99, 5, payload)
    assert before == master.rows.snapshot()
    await write
    assert before != master.rows.snapshot()


async def test_a_write_planned_in_an_earlier_term_of_ours_did_nothing():
    master = await FakeMaster().lead()
    replicate = master.replica.replicate

    async def overtaken(payload: bytes, *, timeout_s: float | None = None) -> Any:
        master.replica.term += 2  # deposed and elected again before the write is appended
        return await replicate(payload)

    master.replica.replicate = overtaken  # type: ignore[method-assign]
    error = refusal(await master.create("t"))
    assert (error.code, error.indeterminate) == (NOT_LEADER, False)
    assert master.rows.tables == {}


async def test_a_leader_with_an_unknown_write_steps_down():
    master = await FakeMaster().lead()

    async def unknown(payload: bytes, *, timeout_s: float | None = None) -> Any:
        raise IndeterminateError("the time ran out")

    master.replica.replicate = unknown  # type: ignore[method-assign]
    assert refusal(await master.create("t")).indeterminate
    assert master.replica.role == "FOLLOWER"


async def test_an_overloaded_system_tablet_refuses_and_nothing_happened():
    master = await FakeMaster().lead()

    async def full(payload: bytes, *, timeout_s: float | None = None) -> Any:
        raise OverloadedError("too many")

    replicate = master.replica.replicate
    master.replica.replicate = full  # type: ignore[method-assign]
    error = refusal(await master.create("t"))
    assert (error.status, error.indeterminate) == (Status.SERVICE_UNAVAILABLE, False)
    master.replica.replicate = replicate  # type: ignore[method-assign]
    assert (await master.create("t")).error is None


async def test_revisions_never_fall_across_leaders():
    master = await FakeMaster().lead()
    revisions = []
    for term in (1, 3, 5):
        created = await master.create(f"t{term}")
        got = await master.get(f"t{term}")
        revisions += [created.meta.revision, got.meta.revision]
        assert created.meta.revision == got.meta.revision
        await asyncio.sleep(2)
        revisions.append((await master.get("t1")).meta.revision)
        master.replica.depose()
        await master.lead(term + 2)
    assert revisions == sorted(revisions)
    assert revisions[0] > 0


async def test_masters_change_only_from_the_configuration_that_was_looked_at():
    master = await FakeMaster().lead()
    replica: Any = master.replica
    replica.committed_config = m.RaftConfig(
        7, (*replica.config.peers, m.PeerConfig("b", "m2:7051"))
    )
    asked = []

    async def overtaken(changes: Any, *, cas_config_opid_index: int | None = None) -> Any:
        asked.append((changes[0].type, changes[0].peer.uuid, cas_config_opid_index))
        raise ConfigRefusedError(ConsensusErrorCode.CAS_FAILED, "the configuration is 8, not 7")

    replica.change_config = overtaken
    answer = await master.ask(m.RemoveMasterRequest("m2:7051"))

    assert (refusal(answer).code, refusal(answer).status) == (
        Code.UNKNOWN_ERROR,
        Status.ILLEGAL_STATE,
    )
    assert asked == [(ChangeType.REMOVE_PEER, "b", 7)]


async def test_what_a_later_leadership_confirms_says_nothing_of_this_ones_maps():
    master = await FakeMaster().lead()
    await master.create("t")
    await asyncio.sleep(1)
    reading = asyncio.ensure_future(master.get("t"))
    await settle()

    master.replica.depose()
    master.replica.elect(9)

    assert refusal(await reading).code is NOT_LEADER
