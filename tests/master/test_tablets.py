"""Tablets are placed, reported, altered and replaced by the leading master."""

import asyncio
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu import messages as m
from targets.kudu.flags import Flags
from targets.kudu.master.catalog.batches import encode_batch
from targets.kudu.master.catalog.catalog_state import Catalog
from targets.kudu.master.catalog.plan import (
    DELETED,
    TOMBSTONED,
    AlterTablet,
    CreateReplica,
    DeleteReplica,
)
from targets.kudu.master.catalog.records import (
    Batch,
    ConsensusState,
    TableRecord,
    TableState,
    TabletRecord,
    TabletState,
)
from targets.kudu.master.catalog.sys_catalog import SystemTablet
from targets.kudu.master.tablets.async_rpc_tasks import retry_delay_ms
from targets.kudu.master.tablets.tablet_reports import plan_missing, plan_report
from targets.kudu.master.tablets.ts_manager import TServer, TServerMap, place_replicas
from tests.master.fakes import UNREACHABLE, FakeMaster, add, refusal, reported, with_table
from tests.support.virtual import run

pytestmark = pytest.mark.loop(run=run)
TABLET = "a" * 32
TABLE = "b" * 32


def config(index: int, *uuids: str) -> m.RaftConfig:
    return m.RaftConfig(index, tuple(m.PeerConfig(uuid, f"{uuid}:7050") for uuid in uuids))


ABC = config(-1, "A", "B", "C")


def catalog_with(
    *,
    state: TabletState = TabletState.RUNNING,
    consensus: ConsensusState | None = None,
    version: int = 0,
    table_state: TableState = TableState.RUNNING,
) -> Catalog:
    schema = m.Schema((m.Column(0, "key", is_key=True),))
    table = TableRecord(
        TABLE, "t", version, schema, m.PartitionSchema(), 1, 3, table_state, comment="n"
    )
    stored = ConsensusState(3, "A", ABC) if consensus is None else consensus
    tablet = TabletRecord(TABLET, TABLE, m.Partition(b"", b""), state, stored)
    rows = SystemTablet()
    rows.apply(1, 1, encode_batch(Batch(1, 0, (table,), (tablet,))))
    return Catalog.load(rows, 1)


def stored_after(catalog: Catalog, ts_uuid: str, replica: m.ReportedTablet) -> ConsensusState:
    plan = plan_report(catalog, ts_uuid, [replica])
    tablet = plan.tablets[0] if plan.tablets else catalog.tablets[TABLET]
    assert tablet.consensus is not None
    return tablet.consensus


# --- rules of reports ------------------------------------------------------------------------


def test_replicas_of_dead_tablets_and_tables_are_deleted():
    for catalog in (
        catalog_with(state=TabletState.DELETED),
        catalog_with(state=TabletState.REPLACED),
        catalog_with(table_state=TableState.REMOVED),
    ):
        for data_state in ("READY", "TOMBSTONED", "COPYING"):
            plan = plan_report(catalog, "X", [reported(TABLET, ABC, "A", data_state=data_state)])
            (call,) = plan.calls
            assert isinstance(call, DeleteReplica)
            assert (call.delete_type, call.ts_uuid, call.cas_config_opid_index) == (
                DELETED,
                "X",
                None,
            )
        gone = plan_report(catalog, "X", [reported(TABLET, ABC, "A", data_state="DELETED")])
        assert gone.calls == []


def test_strays_are_tombstoned_with_a_compare_and_set():
    catalog = catalog_with(consensus=ConsensusState(3, "A", config(7, "A", "B", "C")))
    stray = reported(TABLET, config(5, "A", "B", "D"), "A", term=3)
    (call,) = plan_report(catalog, "D", [stray]).calls
    assert isinstance(call, DeleteReplica)
    assert (call.delete_type, call.cas_config_opid_index) == (TOMBSTONED, 7)
    ahead = reported(TABLET, config(9, "A", "B", "D"), "A", term=4)
    assert stored_after(catalog, "D", ahead).config.opid_index == 9
    dead = reported(TABLET, config(5, "D"), None, data_state="TOMBSTONED")
    assert plan_report(catalog, "D", [dead]).calls == []


def test_broken_replicas_teach_nothing():
    catalog = catalog_with(state=TabletState.CREATING, version=1)
    for replica in (
        reported(TABLET, ABC, "A", 1, error="disk"),
        reported(TABLET, None, "A", 1),
        reported(TABLET, ABC, "A", 1, data_state="COPYING"),
    ):
        plan = plan_report(catalog, "A", [replica])
        assert (plan.tablets, plan.calls, plan.versions) == ([], [], [])


def test_creating_ends_only_with_a_running_replica_that_knows_a_leader():
    catalog = catalog_with(state=TabletState.CREATING, consensus=ConsensusState(0, None, ABC))
    for replica in (
        reported(TABLET, ABC, None),
        reported(TABLET, ABC, "Z"),
        reported(TABLET, ABC, "A", state="BOOTSTRAPPING"),
    ):
        plan = plan_report(catalog, "B", [replica])
        assert all(t.state is TabletState.CREATING for t in plan.tablets)
    (tablet,) = plan_report(catalog, "B", [reported(TABLET, ABC, "A")]).tablets
    assert tablet.state is TabletState.RUNNING
    assert tablet.consensus == ConsensusState(1, "A", ABC)


def test_leaders_and_terms_move_forward_only():
    catalog = catalog_with()  # term 3, leader A
    assert stored_after(catalog, "B", reported(TABLET, ABC, "B", term=4)) == ConsensusState(
        4, "B", ABC
    )
    known = ConsensusState(3, "A", ABC)
    assert known == stored_after(catalog, "B", reported(TABLET, ABC, "B", term=2))
    assert known == stored_after(catalog, "B", reported(TABLET, ABC, None, term=3))
    assert known == stored_after(catalog, "B", reported(TABLET, ABC, None, term=4))
    assert known == stored_after(catalog, "B", reported(TABLET, ABC, "Z", term=9))
    split = plan_report(catalog, "B", [reported(TABLET, ABC, "B", term=3)])
    assert split.tablets == []
    assert "two leaders" in split.alarms[0]
    leaderless = catalog_with(consensus=ConsensusState(3, None, ABC))
    assert known == stored_after(leaderless, "C", reported(TABLET, ABC, "A", term=3))


def test_a_new_configuration_tombstones_leavers_and_keeps_a_known_leader():
    catalog = catalog_with(consensus=ConsensusState(3, "A", config(5, "A", "B", "C")))
    grown = config(9, "A", "B", "D")
    plan = plan_report(catalog, "B", [reported(TABLET, grown, None, term=3)])
    assert plan.tablets[0].consensus == ConsensusState(3, "A", grown)
    (call,) = plan.calls
    assert isinstance(call, DeleteReplica)
    assert (call.ts_uuid, call.delete_type, call.cas_config_opid_index) == ("C", TOMBSTONED, 5)
    itself = stored_after(catalog, "A", reported(TABLET, grown, None, term=3))
    assert itself == ConsensusState(3, None, grown), (
        "the leader itself reports that it no longer leads"
    )
    late = stored_after(catalog, "B", reported(TABLET, grown, "B", term=2))
    assert late == ConsensusState(3, "A", grown)
    old = stored_after(catalog, "B", reported(TABLET, config(4, "B"), "B", term=9))
    assert old == ConsensusState(9, "B", config(5, "A", "B", "C"))


def test_another_schema_version_is_answered_by_an_alter():
    catalog = catalog_with(version=2)
    plan = plan_report(catalog, "A", [reported(TABLET, ABC, "A", 1, term=3)])
    assert [AlterTablet(TABLET)] == plan.calls
    assert plan.versions == [(TABLET, 1)]
    assert plan_report(catalog, "A", [reported(TABLET, ABC, "A", 2, term=3)]).calls == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ABC"),
            st.integers(0, 6),
            st.sampled_from(["A", "B", "C", None]),
            st.integers(-1, 5),
        ),
        max_size=12,
    )
)
def test_stored_terms_and_configurations_never_fall(steps):
    catalog = catalog_with(consensus=ConsensusState(0, None, ABC))
    index = 1
    for ts_uuid, term, leader, opid_index in steps:
        before = catalog.tablets[TABLET].consensus
        replica = reported(TABLET, config(opid_index, "A", "B", "C"), leader, term=term)
        plan = plan_report(catalog, ts_uuid, [replica])
        index += 1
        catalog.publish(Batch(1, 0, (), tuple(plan.tablets)), index)
        after = catalog.tablets[TABLET].consensus
        assert before is not None
        assert after is not None
        assert after.term >= before.term
        assert after.config.opid_index >= before.config.opid_index
        if after.term == before.term and after.leader_uuid != before.leader_uuid:
            assert before.leader_uuid in {None, ts_uuid}


# --- from the creation until the table is at rest --------------------------------------------


async def test_a_table_is_placed_created_and_located():
    master = await FakeMaster().lead()
    created = await master.create("t", partitions=2)
    assert (await master.locate("t")).error is not None
    await asyncio.sleep(0.1)
    calls = master.client.of("CreateTablet")
    assert len(calls) == 6
    assert {call.table_id for call in calls} == {created.table_id}
    for call in calls:
        assert call.dest_uuid in {peer.uuid for peer in call.config.peers}
        assert len({peer.uuid for peer in call.config.peers}) == 3
    done = m.IsCreateTableDoneRequest(m.TableIdentifier(table_name="t"))
    assert not (await master.ask(done)).done
    await master.run_tablets("t")
    assert (await master.ask(done)).done
    located = await master.locate("t")
    assert located.error is None
    assert [t.partition.start for t in located.tablets] == [b"", b"\x00\x00\x00\x01"]
    assert {
        role: sum(r.role == role for r in located.tablets[0].replicas)
        for role in ("LEADER", "FOLLOWER")
    } == {"LEADER": 1, "FOLLOWER": 2}
    assert len((await master.locate("t", max_returned_locations=1)).tablets) == 1
    upper = await master.locate("t", key_start=b"\x00\x00\x00\x01")
    assert [located.tablets[1]] == list(upper.tablets)
    lower = await master.locate("t", key_end=b"\x00\x00\x00\x01")
    assert [located.tablets[0]] == list(lower.tablets)
    assert (await master.locate("t", max_returned_locations=0)).error is not None
    assert (await master.locate("t", key_start=b"b", key_end=b"a")).error is not None


async def test_an_alter_ends_when_every_tablet_reported_it():
    master = await with_table("a", partitions=2)
    altered = await master.alter("t", add("b"))
    done = m.IsAlterTableDoneRequest(m.TableIdentifier(table_name="t"))
    answer = await master.ask(done)
    assert (answer.done, answer.schema_version) == (False, 1)
    await asyncio.sleep(0.1)
    sent = master.client.of("AlterSchema")
    assert {1} == {call.schema_version for call in sent}
    assert len({call.tablet_id for call in sent}) == 2
    first, _ = master.catalog.live_tablets(altered.table_id)
    assert first.consensus is not None
    one = reported(first.id, first.consensus.config, first.consensus.leader_uuid, 1)
    await master.heartbeat("ts0", m.TabletReport(True, 2, (one,)))
    await asyncio.sleep(0.1)
    assert not (await master.ask(done)).done
    await master.run_tablets("t")
    await asyncio.sleep(0.1)
    assert (await master.ask(done)).done
    got = await master.get("t")
    assert (got.schema_version, got.applied_schema_version, got.state) == (1, 1, "RUNNING")
    assert [c.name for c in got.schema.columns] == ["key", "a", "b"]


async def test_an_alter_outlives_a_failover_through_full_reports():
    master = await with_table("a")
    master.client.answers["AlterSchema"] = UNREACHABLE
    await master.alter("t", add("b"))
    await asyncio.sleep(0.1)
    await master.fail_over()
    (tablet,) = master.catalog.tablets.values()
    consensus = tablet.consensus
    assert consensus is not None
    assert (await master.heartbeat("ts0")).needs_full_tablet_report
    old = reported(tablet.id, consensus.config, consensus.leader_uuid, 0)
    full = m.TabletReport(False, 3, (old,))
    answer = await master.heartbeat("ts0", full)
    assert (answer.needs_full_tablet_report, answer.processed_sequence) == (False, 3)
    await asyncio.sleep(0.1)
    assert [call.schema_version for call in master.client.of("AlterSchema")] == [1]


async def test_deletes_reach_replicas_after_a_failover_too():
    master = await with_table()
    (tablet,) = master.catalog.tablets.values()
    master.client.answers["DeleteTablet"] = UNREACHABLE
    await master.delete("t")
    await asyncio.sleep(0.1)
    assert master.client.of("DeleteTablet")
    await master.fail_over()
    replica = reported(tablet.id, tablet.consensus.config, "ts0")
    await master.heartbeat("ts1", m.TabletReport(False, 3, (replica,)))
    await asyncio.sleep(0.1)
    (call,) = master.client.of("DeleteTablet")
    assert (call.dest_uuid, call.delete_type) == ("ts1", DELETED)


async def test_calls_are_repeated_until_they_take_effect_and_never_doubled():
    master = await with_table()
    (tablet,) = master.catalog.tablets.values()
    master.client.answers["DeleteTablet"] = UNREACHABLE
    await master.delete("t")
    epoch = master.epoch
    for _ in range(5):
        replica = reported(tablet.id, tablet.consensus.config, "ts0")
        await master.heartbeat("ts1", m.TabletReport(True, 3, (replica,)))
    assert len(epoch.tasks) == 3
    await asyncio.sleep(0.005)
    assert len(master.client.of("DeleteTablet")) == 3
    await asyncio.sleep(60)
    master.client.answers["DeleteTablet"] = m.TabletError(
        m.TabletErrorCode.TABLET_NOT_FOUND, "gone"
    )
    await asyncio.sleep(70)
    assert len(epoch.tasks) == 0
    total = len(master.client.of("DeleteTablet"))
    await asyncio.sleep(300)
    assert total == len(master.client.of("DeleteTablet"))


async def test_a_tablet_server_back_from_silence_is_called_at_once():
    master = await with_table(running=False)
    master.client.answers["DeleteTablet"] = UNREACHABLE
    await master.delete("t")
    await asyncio.sleep(55)
    master.client.answers.clear()
    master.client.calls.clear()
    await master.heartbeat("ts2")
    await asyncio.sleep(0.1)
    assert [call.dest_uuid for call in master.client.of("DeleteTablet")] == ["ts2"]


async def test_an_uncreated_tablet_is_replaced_across_failovers():
    master = await FakeMaster(flags=Flags(tablet_creation_timeout_ms=3000)).lead()
    created = await master.create("t")
    await asyncio.sleep(2)
    (old,) = master.catalog.live_tablets(created.table_id)
    master.replica.depose()
    await master.lead(5)
    master.client.calls.clear()
    await asyncio.sleep(2.2)
    (new,) = master.catalog.live_tablets(created.table_id)
    assert old.id != new.id
    assert (old.partition, TabletState.CREATING) == (new.partition, new.state)
    assert TabletState.REPLACED is master.rows.tablets[old.id].state
    assert {old.id} == {call.tablet_id for call in master.client.of("DeleteTablet")}
    assert new.id in {call.tablet_id for call in master.client.of("CreateTablet")}
    assert len(master.rows.tablets) == 2


async def test_a_new_leader_sends_creations_again():
    master = await with_table(running=False)
    master.replica.depose()
    master.client.calls.clear()
    await master.lead(5)
    await asyncio.sleep(0.1)
    assert len(master.client.of("CreateTablet")) == 3


# --- heartbeats ------------------------------------------------------------------------------


async def test_followers_take_note_and_drop_reports():
    master = FakeMaster()
    master.leadership.on_role_change(master.replica)
    stranger = await master.heartbeat("ts9", registration=None)
    assert (
        stranger.needs_reregister,
        stranger.needs_full_tablet_report,
        stranger.leader_master,
    ) == (True, False, False)
    replica = reported(TABLET, ABC, "A")
    answer = await master.heartbeat("ts0", m.TabletReport(False, 1, (replica,)))
    assert (answer.leader_master, answer.processed_sequence, answer.error) == (False, -1, None)
    listed = (await master.ask(m.ListTabletServersRequest())).servers
    assert [server.uuid for server in listed] == ["ts0"]


async def test_each_term_asks_for_one_full_report():
    master = await FakeMaster().lead()
    for term in (3, 5):
        assert (await master.heartbeat("ts0")).needs_full_tablet_report
        part = await master.heartbeat("ts0", m.TabletReport(True, 1))
        assert (part.needs_full_tablet_report, part.processed_sequence) == (True, 1)
        full = await master.heartbeat("ts0", m.TabletReport(False, 2))
        assert not full.needs_full_tablet_report
        assert not (await master.heartbeat("ts0")).needs_full_tablet_report
        master.replica.depose()
        await master.lead(term)


def test_a_restarted_tablet_server_registers_anew():
    servers = TServerMap()
    first = m.TSHeartbeatRequest("ts", 1, m.TSRegistration("ts:7050"))
    assert servers.heard(first, 0) is not None
    restarted = m.TSHeartbeatRequest("ts", 2)
    assert servers.heard(restarted, 1) is None
    again = m.TSHeartbeatRequest("ts", 2, m.TSRegistration("ts:7051"))
    server = servers.heard(again, 2)
    assert server is not None
    assert (server.address, server.full_report_term) == ("ts:7051", -1)
    assert servers.heard(first, 3) is None
    assert [server] == servers.alive(10, 8)
    assert servers.alive(11, 8) == []


async def test_reports_that_change_nothing_write_nothing():
    master = await with_table()
    await asyncio.sleep(5)
    entries = len(master.replica.log)
    for _ in range(10):
        await master.run_tablets("t")
        await asyncio.sleep(1)
    assert entries == len(master.replica.log)


async def test_a_report_is_not_acknowledged_when_its_write_is_lost():
    master = await with_table(running=False)
    (tablet,) = master.catalog.tablets.values()
    master.replica.hold()
    replica = reported(tablet.id, tablet.consensus.config, "ts0")
    answer = asyncio.ensure_future(master.heartbeat("ts0", m.TabletReport(False, 4, (replica,))))
    await asyncio.sleep(0.1)
    master.replica.depose(lose_tail=True)
    lost = await answer
    assert lost.error is not None
    assert lost.processed_sequence == -1


# --- placement and records -------------------------------------------------------------------


@given(st.integers(0, 6), st.integers(1, 5), st.integers())
def test_replicas_go_to_different_servers(count, wanted, seed):
    servers = [TServer(f"ts{i}", 1, "", 0) for i in range(count)]
    chosen = place_replicas(servers, wanted, random.Random(seed), 0)
    if wanted > count:
        assert chosen is None
    else:
        assert chosen is not None
        assert wanted == len({server.uuid for server in chosen})


def test_placement_evens_out_load():
    servers = [TServer(f"ts{i}", 1, "", 0) for i in range(6)]
    rng = random.Random(5)
    for _ in range(300):
        assert place_replicas(servers, 1, rng, 0) is not None
    loads = [server.load(0) for server in servers]
    assert sum(loads) == 300
    assert max(loads) - min(loads) <= 6
    assert abs(servers[0].load(60 * 10**9) - servers[0].load(0) / 2) < 1e-9


def test_retry_delays_double_and_then_stay_at_a_minute():
    rng = random.Random(1)
    delays = [retry_delay_ms(retry, rng) for retry in range(1, 15)]
    for retry, delay in enumerate(delays, start=1):
        base = 60_000 if retry > 12 else 2 ** (retry + 3)
        assert base <= delay < base + 50


async def test_dumps_are_plain_sorted_data():
    master = await with_table(running=False)
    dump = (await master.ask(m.DumpEntitiesRequest())).data
    assert dump == msgspec.json.decode(msgspec.json.encode(dump))
    assert (dump["role"], dump["term"], dump["ready"]) == ("LEADER", 1, True)
    assert [table["name"] for table in dump["tables"]] == ["t"]
    assert {"t": dump["tables"][0]["id"]} == dump["name_map"]
    assert [server["uuid"] for server in dump["tservers"]] == ["ts0", "ts1", "ts2"]
    assert dump["raft"] == {"applied": master.replica.applied}
    assert len(dump["cluster_id"]) == 32


async def test_a_replica_that_was_never_created_is_found_by_a_full_report():
    master = await FakeMaster().lead()
    created = await master.create("t", "a")
    await asyncio.sleep(0.1)
    await master.run_tablets("t")
    await master.alter("t", add("b"), to="u")
    await asyncio.sleep(0.1)
    await master.run_tablets("u")
    master.client.calls.clear()
    master.replica.depose()
    await master.lead(5)
    await master.heartbeat("ts1", m.TabletReport(False, 3))
    await asyncio.sleep(0.1)
    (call,) = master.client.of("CreateTablet")
    assert ("ts1", created.table_id, "t", 0) == (
        call.dest_uuid,
        call.table_id,
        call.table_name,
        call.schema_version,
    )
    assert [column.name for column in call.schema.columns] == ["key", "a"]


async def test_all_replicas_start_alike_whatever_happened_between_their_creations():
    master = await with_table("a", running=False)
    master.client.answers["CreateTablet"] = UNREACHABLE
    await master.create("v", "a")
    await asyncio.sleep(0.1)
    await master.alter("v", add("b"), to="w")
    master.client.answers.clear()
    await asyncio.sleep(10)
    origins = {
        (call.tablet_id, call.table_name, call.schema_version)
        for call in master.client.of("CreateTablet")
    }
    assert sorted(name for _, name, _ in origins) == ["t", "v"]


async def test_a_tablet_server_back_from_silence_owes_a_full_report():
    master = await FakeMaster().lead()
    await master.heartbeat("ts0", m.TabletReport(False, 2))
    assert not (await master.heartbeat("ts0")).needs_full_tablet_report
    await asyncio.sleep(3)
    assert (await master.heartbeat("ts0")).needs_full_tablet_report


def test_only_first_members_are_created_from_nothing():
    moved = catalog_with(consensus=ConsensusState(3, "A", config(7, "A", "B", "C")))
    assert plan_missing(moved, "A", []) == []
    first = catalog_with()
    assert [CreateReplica(TABLET, "A")] == plan_missing(first, "A", [])
    assert plan_missing(first, "D", []) == []
    assert plan_missing(first, "A", [reported(TABLET, ABC, "A")]) == []
    assert plan_missing(catalog_with(state=TabletState.DELETED), "A", []) == []


async def test_a_tablet_server_of_another_cluster_is_refused_and_loses_nothing():
    master = await with_table()
    joined = await master.heartbeat("ts0")
    assert joined.cluster_id == master.leadership.cluster_id
    foreign = reported("unknown-tablet", None, None)
    answer = await master.heartbeat(
        "ts9", m.TabletReport(False, 1, (foreign,)), cluster_id="another"
    )
    assert refusal(answer).status is m.AppStatus.INVALID_ARGUMENT
    assert answer.processed_sequence == -1
    assert master.tservers.get("ts9") is None
    own = await master.heartbeat("ts0", cluster_id=joined.cluster_id)
    assert (own.error, own.cluster_id) == (None, "")


async def test_a_master_that_does_not_know_its_cluster_yet_hears_of_no_foreign_server():
    master = FakeMaster()
    master.leadership.on_role_change(master.replica)

    early = await master.heartbeat("ts9", cluster_id="another")

    assert refusal(early).status is m.AppStatus.SERVICE_UNAVAILABLE
    await master.lead()
    assert [server.uuid for server in master.tservers] == ["ts0", "ts1", "ts2"]
