"""Each bug switch of masters shows the defect that the ledger of bugs describes."""

import asyncio
import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest

from targets.kudu import messages as m
from targets.kudu.consensus.errors import OverloadedError
from targets.kudu.flags import Flags
from targets.kudu.master.catalog.batches import decode_batch
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.plan import DeleteReplica
from targets.kudu.master.catalog.records import TabletState
from targets.kudu.master.errors import RefusedError
from targets.kudu.master.tablets.assignment import Moment, plan_assignments
from targets.kudu.master.tablets.tablet_reports import plan_report
from targets.kudu.master.tablets.ts_manager import TServer
from tests.master.fakes import (
    UNREACHABLE,
    FakeMaster,
    FakeReplica,
    add,
    refusal,
    reported,
    with_table,
)
from tests.support.virtual import run

pytestmark = pytest.mark.loop(run=run)
Code = m.MasterErrorCode
UNPLACEABLE = Code.REPLICATION_FACTOR_TOO_HIGH


async def hear_tservers(master: FakeMaster) -> FakeMaster:
    for number in range(3):
        await master.heartbeat(f"ts{number}")
    return master


async def leader(*bugs: str) -> FakeMaster:
    """Return a leader that three tablet servers have sent heartbeats in its term."""
    return await hear_tservers(await FakeMaster(*bugs).lead())


async def table(*bugs: str, partitions: int = 1) -> FakeMaster:
    master = await leader(*bugs)
    await master.create("t", "a", partitions=partitions)
    await asyncio.sleep(0.1)
    await master.run_tablets("t")
    return master


def batches(replica: FakeReplica) -> list[tuple[int, int]]:
    """Return the numbers of table and tablet records in each log entry that has records."""
    found = [decode_batch(payload) for _, payload in replica.log if payload]
    return [(len(b.tables), len(b.tablets)) for b in found if b.tables or b.tablets]


# --- which tablet servers count as live ------------------------------------------------------


@pytest.mark.parametrize(("bug", "refused"), [("KUDU-1358", True), (None, False)])
async def test_kudu_1358_knows_no_tablet_server_at_first(bug, refused):
    master = await FakeMaster(*([bug] if bug else [])).lead()
    answer = await master.create("t")
    assert (answer.error is not None and answer.error.code is UNPLACEABLE) is refused
    await hear_tservers(master)
    assert (await master.create("t2")).error is None


@pytest.mark.parametrize(("bugs", "waits"), [(("PLACE-AT-ONCE",), False), ((), True)])
async def test_place_at_once_does_not_wait_for_heartbeats(bugs, waits):
    master = await FakeMaster(*bugs).lead(tservers=0)
    create = asyncio.ensure_future(master.create("t"))
    await asyncio.sleep(0.5)
    await hear_tservers(master)
    assert ((await create).error is None) is waits


@pytest.mark.parametrize(("bugs", "heard"), [(("LEADER-ONLY-HEARTBEATS",), 0), ((), 1)])
async def test_followers_take_note_of_heartbeats(bugs, heard):
    master = FakeMaster(*bugs)
    master.leadership.on_role_change(master.replica)
    answer = await master.heartbeat("ts0")
    assert (len(list(master.tservers)), answer.error) == (heard, None)


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("names", [True, False])
async def test_answers_to_heartbeats_name_the_masters(leads, names):
    master = FakeMaster(flags=Flags(heartbeat_names_masters=names))
    if leads:
        await master.lead(tservers=0)
    master.leadership.on_role_change(master.replica)
    peers = (*master.replica.config.peers, m.PeerConfig("b" * 32, "m2:7051", "NON_VOTER"))
    master.replica.config = m.RaftConfig(5, peers)
    first = await master.heartbeat("ts0", registration=None)
    report = m.TabletReport(False, 1)
    later = [await master.heartbeat("ts0"), await master.heartbeat("ts0", report)]
    assert first.needs_reregister
    for answer in (first, *later):
        assert answer.leader_master is leads
        assert answer.master_addresses == (("m1:7051", "m2:7051") if names else ())
    master.replica.config = m.RaftConfig(9, peers[1:])
    assert (await master.heartbeat("ts0")).master_addresses == (("m2:7051",) if names else ())


# --- reports ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bug", "asks"),
    [("KUDU-1374", False), ("LEADER-FLAP-ABA", False), ("KUDU-1353", False), (None, True)],
)
async def test_a_later_leadership_asks_for_full_reports(bug, asks):
    master = await table(*([bug] if bug else []))
    await master.fail_over()
    answer = await master.heartbeat("ts0")
    assert answer.needs_full_tablet_report is asks


@pytest.mark.parametrize(("bugs", "located"), [(("KUDU-1353",), 0), ((), 3)])
async def test_replicas_are_those_of_the_stored_configuration(bugs, located):
    master = await table(*bugs)
    await master.fail_over()
    (tablet,) = (await master.locate("t")).tablets
    assert len(tablet.replicas) == located
    await master.delete("t")
    await asyncio.sleep(0.1)
    assert len(master.client.of("DeleteTablet")) == located
    again = await table(*bugs)
    assert len((await again.locate("t")).tablets[0].replicas) == 3, "all have reported"


@pytest.mark.parametrize("deletes", [True, False])
def test_fence_orphan_deletes_unknown_tablets(*, deletes):
    config = m.RaftConfig(-1, (m.PeerConfig("A", "A:7050"),))
    unknown = reported("f" * 32, config, "A")
    plan = plan_report(Catalog(1), "A", [unknown], deletes_unknown=deletes)
    assert [isinstance(call, DeleteReplica) for call in plan.calls] == [True] * deletes
    assert len(plan.alarms) == 1 - deletes


@pytest.mark.parametrize(("bugs", "calls"), [(("FENCE-ORPHAN",), 1), ((), 0)])
async def test_a_master_orders_no_deletion_of_unknown_tablets(bugs, calls):
    master = await table(*bugs)
    unknown = reported("f" * 32, m.RaftConfig(-1, (m.PeerConfig("ts0", "ts0:7050"),)), "ts0")
    await master.heartbeat("ts0", m.TabletReport(True, 2, (unknown,)))
    await asyncio.sleep(0.1)
    assert len(master.client.of("DeleteTablet")) == calls


@pytest.mark.parametrize(("bugs", "done"), [(("ALTER-REPLY",), True), ((), False)])
async def test_alter_reply_counts_as_a_report(bugs, done):
    master = await table(*bugs)
    await master.alter("t", add("b"))
    await asyncio.sleep(3)
    got = await master.get("t")
    assert (got.state == "RUNNING") is done


async def report_all(master: FakeMaster) -> None:
    """Let three tablet servers send a full report without any tablet."""
    for number in range(3):
        await master.heartbeat(f"ts{number}", m.TabletReport(False, 1))


KEPT = Flags(metadata_for_deleted_table_and_tablet_reserved_secs=30)
NEVER = Flags(
    metadata_for_deleted_table_and_tablet_reserved_secs=30,
    enable_metadata_cleanup_for_deleted_tables_and_tablets=False,
)


@pytest.mark.parametrize(
    ("bugs", "flags", "late"),
    [(("KUDU-3344",), KEPT, 2), ((), KEPT, 0), ((), NEVER, 0)],
)
async def test_rows_of_deleted_tables_are_forgotten_after_some_time(bugs, flags, late):
    master = await hear_tservers(await FakeMaster(*bugs, flags=flags).lead())
    for name in ("t", "u"):
        await master.create(name, "a")
    await asyncio.sleep(0.1)
    await master.run_tablets("u")
    await report_all(master)
    await master.delete("t")
    await asyncio.sleep(25)
    assert len(master.rows.tables) == len(master.catalog.tables) == 2
    await asyncio.sleep(15)
    kept = 1 if flags is KEPT and not bugs else 2
    for rows in (master.rows, master.catalog, master.leadership.view):
        assert (len(rows.tables), len(rows.tablets)) == (kept, kept)
    assert master.catalog.differences(Catalog.load(master.rows, 1)) == []
    status = master.service.status()
    assert status["counters"]["late rows"] == late
    assert status["hides_removed"] is (kept == 1)
    assert status["forgotten"]["replicas"] == (3 if kept == 1 else 0)
    assert await master.names() == ["u"]
    await master.create("t")
    assert await master.names() == ["t", "u"]


async def test_rows_stay_while_a_tablet_server_may_hold_a_replica():
    master = await hear_tservers(await FakeMaster(flags=KEPT).lead())
    await master.create("t", "a")
    await asyncio.sleep(0.1)
    await report_all(master)
    master.client.answers["DeleteTablet"] = UNREACHABLE
    await master.delete("t")
    await asyncio.sleep(40)
    assert len(master.rows.tablets) == 1, "calls to delete its replicas are pending"
    await master.fail_over()
    await asyncio.sleep(40)
    assert len(master.rows.tablets) == 1, "no tablet server has reported to this leader"
    assert master.service.status()["counters"]["late rows"] == 0
    await report_all(master)
    await asyncio.sleep(2)
    assert (master.rows.tables, master.rows.tablets) == ({}, {})


@pytest.mark.parametrize(("bugs", "placed"), [(("KUDU-3452",), False), ((), True)])
async def test_a_table_that_lacks_servers_keeps_no_other_waiting(bugs, placed):
    flags = Flags(catalog_manager_check_ts_count_for_create_table=False)
    master = await hear_tservers(await FakeMaster(*bugs, flags=flags).lead())
    await master.create("wide", "a", num_replicas=5)
    await asyncio.sleep(0.1)
    await master.create("t", "a")
    await asyncio.sleep(3)
    catalog = master.catalog
    (wide,), (other,) = (catalog.live_tablets(catalog.by_name[n]) for n in ("wide", "t"))
    assert (wide.state, wide.consensus) == (TabletState.PREPARING, None)
    assert (other.state is TabletState.CREATING) is placed
    assert (await master.alter("wide", add("b"))).error is None
    await asyncio.sleep(0.1)
    assert (len(master.epoch.tasks), master.service.status()["tasks"]) == (1, 0)
    await master.delete("wide")
    await asyncio.sleep(3)
    (other,) = catalog.live_tablets(catalog.by_name["t"])
    assert other.state is TabletState.CREATING


async def test_idle_heartbeats_of_a_server_are_counted_in_ten_intervals():
    master = await leader()
    before = master.service.status()["counters"]["idle heartbeats of a server"]
    for _ in range(30):
        for report in (None, m.TabletReport(True, 3)):
            await master.heartbeat("ts1", report, registration=None)
        await master.heartbeat("ts0", registration=None)
        await master.heartbeat("ts2", m.TabletReport(False, 3), registration=None)
        await master.heartbeat("ts2")
        await asyncio.sleep(1)
    after = master.service.status()["counters"]["idle heartbeats of a server"]
    assert (before, after) == (0, 20)


# --- losing the leadership -------------------------------------------------------------------


def failed_checks(master: FakeMaster) -> list[str]:
    tasks: Sequence[asyncio.Task[Any]] = master.env.tasks
    return [str(t.exception()) for t in tasks if t.get_name() == "check-failed" and t.done()]


@pytest.mark.parametrize(("bugs", "deaths"), [(("KUDU-495-ABORT",), 1), ((), 0)])
async def test_a_lost_write_ends_no_process(bugs, deaths):
    master = await leader(*bugs)
    create = await master.held(master.create("t"))
    master.replica.depose(lose_tail=True)
    assert refusal(await create).indeterminate
    await asyncio.sleep(0.01)
    assert len(failed_checks(master)) == deaths


@pytest.mark.parametrize(("bugs", "deaths"), [(("CATCH-UP-EXIT",), 1), ((), 0)])
async def test_a_leader_that_cannot_catch_up_ends_no_process(bugs, deaths):
    master = FakeMaster(*bugs, flags=Flags(master_failover_catchup_timeout_ms=3000))
    master.replica.elect(1, no_op_commits=False)
    await asyncio.sleep(4)
    assert len(failed_checks(master)) == deaths
    assert (master.replica.role == "FOLLOWER") is (deaths == 0)
    if not bugs:
        assert "catch-up-timed-out" in master.env.kinds()
        await master.lead(5)


@pytest.mark.parametrize(("bugs", "written"), [(("RELOAD-NO-LOCK",), True), ((), False)])
async def test_no_request_goes_on_across_a_reload(bugs, written):
    master = await table(*bugs)
    epoch = master.epoch
    master.replica.depose()
    await master.lead(7)
    assert master.leadership.epoch is not epoch
    stored = epoch.catalog.tables[epoch.catalog.by_name["t"]]
    late = stored.buried(1, "decided on the maps of an earlier leadership")
    try:
        async with epoch.locked([stored.id]):
            await epoch.write([late])
    except RefusedError:
        assert not written
    assert (master.rows.tables[stored.id] == late) is written


# --- the order in which state is written and becomes visible -------------------------------------


@pytest.mark.parametrize(
    ("bugs", "create"), [(("KUDU-495-SPLIT",), [(0, 2), (1, 0)]), ((), [(1, 2)])]
)
async def test_one_operation_is_one_batch(bugs, create):
    master = await leader(*bugs)
    await master.create("t", "a", partitions=2)
    assert batches(master.replica)[: len(create)] == create
    await asyncio.sleep(0.1)
    await master.run_tablets("t")
    before = len(batches(master.replica))
    assert (await master.delete("t")).error is None
    delete = batches(master.replica)[before:]
    assert delete == ([(1, 0), (0, 1), (0, 1)] if bugs else [(1, 2)])
    assert all(t.state is TabletState.DELETED for t in master.rows.tablets.values())


async def test_kudu_495_split_does_not_deny_a_deletion_that_is_half_done():
    master = await table("KUDU-495-SPLIT", partitions=2)
    replicate, count = master.replica.replicate, 0

    async def second_is_lost(payload: bytes, *, timeout_s: float | None = None) -> Any:
        nonlocal count
        count += 1
        if count == 2:
            master.replica.depose()
        return await replicate(payload)

    master.replica.replicate = second_is_lost  # type: ignore[method-assign]
    assert refusal(await master.delete("t")).indeterminate


@pytest.mark.parametrize(("bugs", "early"), [(("ORDER-DELETE",), 3), ((), 0)])
async def test_replicas_are_deleted_after_the_commit(bugs, early):
    master = await table(*bugs)
    delete = await master.held(master.delete("t"))
    assert len(master.client.of("DeleteTablet")) == early
    master.replica.commit()
    assert (await delete).error is None
    await asyncio.sleep(0.1)
    assert len(master.client.of("DeleteTablet")) == 3


@pytest.mark.parametrize(("bugs", "shown"), [(("ORDER-REPLACE",), True), ((), False)])
async def test_a_replacement_is_shown_when_it_is_committed(bugs, shown):
    master = await leader(*bugs)
    await master.create("t", "a")
    await asyncio.sleep(0.1)
    (old,) = master.catalog.live_tablets(master.catalog.by_name["t"])
    master.replica.hold()
    await asyncio.sleep(32)
    catalog = master.catalog
    (now,) = catalog.live_tablets(catalog.by_name["t"])
    assert (now.id != old.id) is shown
    assert (now.id in master.rows.tablets) is not shown
    assert bool(catalog.differences(Catalog.load(master.rows, 1))) is shown
    master.replica.commit()
    await asyncio.sleep(0.1)
    (new,) = catalog.live_tablets(catalog.by_name["t"])
    assert master.rows.tablets[old.id].state is TabletState.REPLACED
    assert catalog.differences(Catalog.load(master.rows, 1)) == []
    assert (new.id == now.id) is shown


async def test_order_replace_undoes_a_failed_write():
    master = await leader("ORDER-REPLACE")
    await master.create("t", "a")
    await asyncio.sleep(0.1)
    catalog = master.catalog
    (old,) = catalog.live_tablets(catalog.by_name["t"])

    async def full(payload: bytes, *, timeout_s: float | None = None) -> Any:
        (new,) = catalog.live_tablets(catalog.by_name["t"])
        assert new.id != old.id, "shown already"
        raise OverloadedError("too many")

    master.replica.replicate = full  # type: ignore[method-assign]
    await asyncio.sleep(32)
    assert "background-refused" in master.env.kinds()
    assert list(catalog.live_tablets(catalog.by_name["t"])) == [old]
    assert catalog.differences(Catalog.load(master.rows, 1)) == []


@pytest.mark.parametrize(("bugs", "gap"), [(("RENAME-GAP",), True), ((), False)])
async def test_a_rename_switches_both_names_at_once(bugs, gap):
    master = await table(*bugs)
    rename = await master.held(master.alter("t", to="u"))
    master.replica.commit()
    catalog = master.catalog
    assert ("u" in catalog.by_name, "t" in catalog.by_name) == (not gap, False)
    with pytest.raises(RefusedError):
        catalog.check_name_free("u")
    assert (await rename).error is None
    assert (await master.get("u")).error is None
    assert (catalog.hidden, await master.names()) == ({}, ["u"])


@pytest.mark.parametrize(("bugs", "torn"), [(("LIST-TORN",), True), ((), False)])
async def test_a_list_is_one_snapshot(bugs, torn):
    master = await leader(*bugs)
    for name in ("a", "b", "c", "z"):
        await master.create(name)
    names = asyncio.ensure_future(master.names())
    await asyncio.sleep(0.0025)  # the read is confirmed after 1 ms, and has now read the first name
    await asyncio.gather(master.delete("z"), master.alter("a", to="y"))
    listed = await names
    assert (listed == ["a", "b", "c", "z"]) is not torn, listed


@pytest.mark.parametrize(("bugs", "same"), [(("KUDU-1537",), False), ((), True)])
async def test_resent_requests_act_once(bugs, same):
    master = await table(*bugs)
    first = await master.create("u", seq_no=77)
    again = await master.create("u", seq_no=77)
    assert first.error is None
    assert (again.error is None and again.table_id == first.table_id) is same


# --- clocks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("resets", "replaced"), [(True, False), (False, True)])
async def test_failovers_do_not_postpone_a_replacement(*, resets, replaced):
    master = await with_table("a", running=False)
    catalog = master.catalog
    stored = catalog.tables[catalog.by_name["t"]]
    (tablet,) = catalog.live_tablets(stored.id)
    second = 1_000_000_000
    moment = Moment(tablet.created_ns + 60 * second, 100 * second, 95 * second)
    if resets:
        moment = dataclasses.replace(moment, counts_own_time_only=True)
    servers = [TServer(f"ts{n}", 1, f"ts{n}:7050", 0) for n in range(3)]
    plan = plan_assignments(
        catalog, stored, servers, Flags(), moment, rng=random.Random(1), new_id=lambda: "f" * 32
    )
    assert bool(plan.tablets) is replaced
    # a leader that was never interrupted replaces the tablet with or without the switch
    old_leader = dataclasses.replace(moment, ready_ns=0)
    assert plan_assignments(
        catalog, stored, servers, Flags(), old_leader, rng=random.Random(1), new_id=lambda: "f" * 32
    ).tablets


@pytest.mark.parametrize(("bugs", "replaced"), [(("BG-CLOCK-RESET",), False), ((), True)])
async def test_a_stuck_tablet_is_replaced_in_time_under_any_leader(bugs, replaced):
    master = await leader(*bugs)
    await master.create("t", "a")
    await asyncio.sleep(25)
    await master.fail_over()
    await asyncio.sleep(10)
    (tablet, *_) = master.rows.tablets.values()
    assert (tablet.state is TabletState.REPLACED) is replaced
    await asyncio.sleep(25)
    (tablet, *_) = master.rows.tablets.values()
    assert tablet.state is TabletState.REPLACED


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c: c.tables.popitem(), "lacks table"),
        (lambda c: c.tablets.popitem(), "lacks tablet"),
        (lambda c: c.by_name.update(ghost="f"), "shows name ghost, which does not exist"),
        (
            lambda c: c._live_tablets[next(iter(c.tables))].clear(),
            "differs in live tablets of table",
        ),
        (lambda c: c.unsettled.update(ghost=None), "shows unsettled table ghost"),
        (lambda c: c.tservers.update(ghost=None), "shows tablet server ghost"),
        (lambda c: setattr(c, "revision", 99), "revision 99, not"),
    ],
)
async def test_any_difference_of_maps_is_reported(spoil, said):
    master = await table()
    maps = Catalog.load(master.rows, 1)
    spoil(maps)
    (text,) = maps.differences(Catalog.load(master.rows, 1))
    assert text.startswith(said)


# --- the view that reads use -----------------------------------------------------------------


async def test_a_follower_keeps_a_view_that_equals_a_scan():
    leader = await table()
    await leader.create("u", "a", partitions=3)
    await leader.alter("t", to="t2")
    await leader.delete("u")
    follower = FakeMaster(log_of=leader.replica, seed=2)
    follower.leadership.on_role_change(follower.replica)
    follower.replica.commit()
    view = follower.leadership.view
    assert view.differences(Catalog.load(follower.rows, 0)) == []
    assert sorted(view.by_name) == ["t2"]
    assert leader.leadership.view.differences(leader.catalog) == []
    third = FakeMaster(seed=3)
    await third.rows.restore(follower.rows.snapshot(), follower.rows.last_index)
    assert third.leadership.view.differences(view) == []
    assert sorted(third.leadership.view.by_name) == ["t2"]


async def test_dumps_say_where_maps_differ_from_the_rows():
    master = await table()
    answer = await master.ask(m.DumpEntitiesRequest())
    assert answer.data["unlike_rows"] == {"view": [], "leader": []}
    master.catalog.by_name["ghost"] = "f" * 32
    master.leadership.view.tables.clear()
    answer = await master.ask(m.DumpEntitiesRequest())
    (table_id,) = master.rows.tables
    assert answer.data["unlike_rows"] == {
        "view": [f"lacks table {table_id}"],
        "leader": ["shows name ghost, which does not exist"],
    }
