"""The leading master turns a report about failed replicas into calls that replace them."""

import asyncio
from typing import Any

import pytest

from targets.kudu import messages as m
from targets.kudu.consensus import messages as raft
from targets.kudu.flags import Flags
from targets.kudu.master.catalog.catalog_state import LeaderView
from targets.kudu.master.catalog.plan import TOMBSTONED, ChangeConfig, DeleteReplica
from targets.kudu.master.catalog.records import ConsensusState, TabletState
from targets.kudu.master.tablets.replacement import AddPeer, EvictPeer, StepDownLeader
from targets.kudu.master.tablets.rereplication import review
from targets.kudu.master.tablets.tablet_reports import plan_report
from tests.master.fakes import UNREACHABLE, FakeMaster, add, refusal, reported
from tests.master.test_tablets import ABC, TABLET, catalog_with, config
from tests.support.virtual import run

pytestmark = pytest.mark.loop(run=run)
FAILED, HEALTHY = m.PeerHealth.FAILED, m.PeerHealth.HEALTHY
MODES = m.TServerStateChange


# --- reports ---------------------------------------------------------------------------------


def test_only_a_leaders_own_report_with_nothing_pending_says_how_its_peers_are():
    well = {"A": HEALTHY, "B": FAILED, "C": HEALTHY}
    catalog = catalog_with()
    (found,) = plan_report(catalog, "A", [reported(TABLET, ABC, "A", term=3, **well)]).views
    assert found[0] == TABLET
    assert (found[1].leader_uuid, found[1].opid_index, found[1].health) == ("A", -1, well)
    for ts_uuid, replica in (
        ("B", reported(TABLET, ABC, "A", term=3, **well)),
        ("A", reported(TABLET, ABC, "A", term=3)),
        ("A", reported(TABLET, ABC, None, term=3, **well)),
        ("Z", reported(TABLET, ABC, "Z", term=3, **well)),
    ):
        assert plan_report(catalog, ts_uuid, [replica]).views == []
    busy = m.ReportedTablet(
        TABLET, "RUNNING", "READY", 3, "A", ABC, 0, has_pending_config=True, peer_health=well
    )
    assert plan_report(catalog, "A", [busy]).views == []


def test_a_copy_is_left_alone_until_it_is_known_to_be_behind():
    stored = ConsensusState(3, "A", config(7, "A", "B", "C"))
    catalog = catalog_with(consensus=stored)
    for at in (None, config(9, "A", "B", "C", "D"), config(7, "A", "B", "C")):
        copy = reported(TABLET, at, "A", term=3, data_state="COPYING")
        calls = plan_report(catalog, "D", [copy]).calls
        assert bool(calls) is (at is not None and at.opid_index == 7)
    behind = reported(TABLET, config(5, "A", "B", "D"), "A", term=3, data_state="COPYING")
    (call,) = plan_report(catalog, "D", [behind]).calls
    assert isinstance(call, DeleteReplica)
    assert (call.delete_type, call.cas_config_opid_index) == (TOMBSTONED, 7)


def test_a_replica_that_knows_of_its_own_eviction_is_tombstoned_too():
    catalog = catalog_with(consensus=ConsensusState(3, "A", config(7, "A", "B", "C")))
    gone = reported(TABLET, config(7, "A", "B", "C"), "A", term=3)
    (call,) = plan_report(catalog, "D", [gone]).calls
    assert isinstance(call, DeleteReplica)
    assert (call.delete_type, call.cas_config_opid_index) == (TOMBSTONED, 7)


# --- from a report until the tablet is at rest -----------------------------------------------


class Tablet:
    """A tablet on five tablet servers, with the reports that its leader sends to the leading
    master.
    """

    def __init__(self, master: FakeMaster) -> None:
        self.master = master
        (self.id,) = master.catalog.tablets
        self.config = self.stored.config
        self.leader, self.second, self.third = [peer.uuid for peer in self.config.peers]

    @property
    def stored(self) -> ConsensusState:
        found = self.master.catalog.tablets[self.id].consensus
        assert found is not None
        return found

    @property
    def spare(self) -> list[str]:
        members = [peer.uuid for peer in self.config.peers]
        return [server.uuid for server in self.master.tservers if server.uuid not in members]

    async def report(self, *failed: str, leader: str | None = None, term: int = 1) -> None:
        leader = leader or self.leader
        health = {p.uuid: FAILED if p.uuid in failed else HEALTHY for p in self.config.peers}
        replica = reported(self.id, self.config, leader, term=term, **health)
        await self.master.heartbeat(leader, m.TabletReport(True, 1, (replica,)))
        await asyncio.sleep(0.05)

    def change(self, *peers: m.PeerConfig, without: str = "") -> None:
        """Report the next configuration, in which one peer is added, changed or removed."""
        known = {p.uuid: p for p in self.config.peers} | {p.uuid: p for p in peers}
        known.pop(without, None)
        index = max(self.config.opid_index, 0) + 5
        self.config = m.RaftConfig(index, tuple(known.values()))

    @property
    def asked(self) -> list[tuple[str, str, str, int | None]]:
        """Return the requests that leaders received, as (server, change, peer, index)."""
        return [
            (c.dest_uuid, c.change.type.value, c.change.peer.uuid, c.cas_config_opid_index)
            for c in self.master.client.of("ChangeConfig")
        ]


async def one_tablet(**flags: Any) -> Tablet:
    master = await FakeMaster(flags=Flags(**flags)).lead(tservers=5)
    await master.create("t", partitions=1)
    await asyncio.sleep(0.1)
    await master.run_tablets("t")
    return Tablet(master)


async def beat(master: FakeMaster, *silent: str, for_s: float) -> None:
    """Send heartbeats of all tablet servers except the `silent` ones."""
    for _ in range(int(for_s)):
        await asyncio.sleep(1)
        for number in range(5):
            if f"ts{number}" not in silent:
                await master.heartbeat(f"ts{number}")


async def test_a_failed_replica_is_replaced_step_by_step():
    tablet = await one_tablet()
    await tablet.report()
    assert tablet.master.catalog.to_review == {}
    await tablet.report(tablet.third)
    ((dest, change, newcomer, cas),) = tablet.asked
    assert (dest, change, cas) == (tablet.leader, "ADD_PEER", -1)
    assert newcomer in tablet.spare
    (request,) = tablet.master.client.of("ChangeConfig")
    assert request.change.peer == m.PeerConfig(
        newcomer, f"{newcomer}:7050", "NON_VOTER", promote=True
    )
    tablet.change(request.change.peer)
    await tablet.report(tablet.third)
    for any_replica, roles in ((False, 3), (True, 4)):
        located = await tablet.master.locate("t", any_replica=any_replica)
        assert len(located.tablets[0].replicas) == roles
    tablet.change(m.PeerConfig(newcomer, f"{newcomer}:7050"))
    await tablet.report(tablet.third)
    assert tablet.asked[1:] == [(tablet.leader, "REMOVE_PEER", tablet.third, 10)]
    assert tablet.master.client.of("DeleteTablet") == []
    tablet.change(without=tablet.third)
    await tablet.report()
    (call,) = tablet.master.client.of("DeleteTablet")
    assert (call.dest_uuid, call.delete_type, call.cas_config_opid_index) == (
        tablet.third,
        TOMBSTONED,
        10,
    )
    await asyncio.sleep(5)
    assert tablet.master.catalog.to_review == {}
    assert len(tablet.asked) == 2
    assert len(tablet.master.epoch.tasks) == 0


async def test_tasks_settled_meanwhile_are_skipped():
    tablet = await one_tablet()
    tablet.master.client.answers["ChangeConfig"] = UNREACHABLE
    await tablet.report(tablet.third)
    assert tablet.asked
    await tablet.report()
    tablet.master.client.answers.clear()
    tablet.master.client.calls.clear()
    await beat(tablet.master, for_s=100)
    assert tablet.asked == []
    assert tablet.master.catalog.to_review == {}


@pytest.mark.parametrize("code", [raft.ConsensusErrorCode.CAS_FAILED, None])
async def test_an_answer_ends_a_call_and_the_stored_configuration_decides(code):
    tablet = await one_tablet()
    if code is not None:
        tablet.master.client.answers["ChangeConfig"] = raft.ConsensusError(code, "overtaken")
    await tablet.report(tablet.third)
    first = len(tablet.asked)
    assert first >= 1
    await beat(tablet.master, for_s=5)
    assert 2 <= len(tablet.asked) <= first + 6, "asked again once a round, under the same index"
    assert {cas for *_, cas in tablet.asked} == {-1}
    tablet.change(without=tablet.third)
    await tablet.report()
    done = len(tablet.asked)
    await beat(tablet.master, for_s=5)
    assert all(cas == 5 for *_, cas in tablet.asked[done:])


async def test_a_call_follows_the_tablets_leader():
    tablet = await one_tablet()
    tablet.master.client.answers["ChangeConfig"] = raft.ConsensusError(
        raft.ConsensusErrorCode.NOT_THE_LEADER, "it is another"
    )
    await tablet.report(tablet.third)
    assert {dest for dest, *_ in tablet.asked} == {tablet.leader}
    tablet.master.client.answers.clear()
    tablet.master.client.calls.clear()
    await tablet.report(tablet.third, leader=tablet.second, term=2)
    await asyncio.sleep(1.1)
    assert {dest for dest, *_ in tablet.asked} == {tablet.second}


async def test_a_call_that_hangs_is_made_anew_where_another_one_leads():
    tablet = await one_tablet()
    client: Any = tablet.master.client
    answering = client.call

    async def call(address: str, request: Any, **more: Any) -> Any:
        if request.method.endswith("ChangeConfig") and address == f"{tablet.leader}:7050":
            await asyncio.get_running_loop().create_future()
        return await answering(address, request, **more)

    client.call = call
    await tablet.report(tablet.third)
    assert tablet.asked == []

    await tablet.report(tablet.third, leader=tablet.second, term=2)

    assert {dest for dest, *_ in tablet.asked} == {tablet.second}


async def test_a_new_master_hears_everything_anew():
    tablet = await one_tablet()
    tablet.master.client.answers["ChangeConfig"] = UNREACHABLE
    await tablet.report(tablet.third)
    await tablet.master.fail_over()
    assert tablet.master.catalog.views == {}
    await asyncio.sleep(5)
    assert tablet.asked == []
    await tablet.report(tablet.third)
    assert [change for _, change, *_ in tablet.asked] == ["ADD_PEER"]


async def test_replicas_go_to_servers_that_live_and_are_not_in_maintenance():
    tablet = await one_tablet(tserver_unresponsive_timeout_ms=10_000)
    master, (one, other) = tablet.master, tablet.spare
    await beat(master, one, other, for_s=15)
    await tablet.report(tablet.third)
    assert tablet.asked == [], "no server is left"
    request = m.ChangeTServerStateRequest(one, MODES.ENTER_MAINTENANCE_MODE)
    assert (await master.ask(request)).error is None
    await beat(master, other, for_s=3)
    assert tablet.asked == []
    await master.heartbeat(other)
    await asyncio.sleep(1.1)
    assert [peer for *_, peer, _ in tablet.asked][:1] == [other]


async def test_a_server_in_maintenance_is_not_missed_until_it_leaves():
    tablet = await one_tablet()
    master = tablet.master

    async def switch(change: MODES, uuid: str = tablet.third) -> Any:
        request = m.ChangeTServerStateRequest(uuid, change)
        return (await master.ask(request)).error

    assert await switch(MODES.ENTER_MAINTENANCE_MODE) is None
    entries = len(master.replica.log)
    assert await switch(MODES.ENTER_MAINTENANCE_MODE) is None
    assert entries == len(master.replica.log), "nothing to write"
    await tablet.report(tablet.third)
    assert tablet.asked == []
    listed = (await master.ask(m.ListTabletServersRequest())).servers
    assert [s.uuid for s in listed if s.in_maintenance] == [tablet.third]
    await master.fail_over()
    await tablet.report(tablet.third)
    assert tablet.asked == []
    answer = await master.heartbeat(tablet.second, m.TabletReport(False, 2))
    assert not answer.needs_full_tablet_report
    assert await switch(MODES.EXIT_MAINTENANCE_MODE) is None
    assert (await master.heartbeat(tablet.second)).needs_full_tablet_report
    await asyncio.sleep(0.1)
    assert [change for _, change, *_ in tablet.asked] == ["ADD_PEER"]
    unknown = await switch(MODES.ENTER_MAINTENANCE_MODE, "f" * 32)
    assert unknown.status is m.AppStatus.NOT_FOUND


async def test_another_number_of_replicas_is_followed_without_a_new_report():
    tablet = await one_tablet()
    await tablet.report()
    identifier, request_id = m.TableIdentifier(table_name="t"), m.RequestId("c", 1, "n")
    request = m.AlterTableRequest(identifier, request_id, num_replicas=5)
    assert (await tablet.master.ask(request)).error is None
    await asyncio.sleep(0.1)
    assert [change for _, change, *_ in tablet.asked] == ["ADD_PEER"]
    got = await tablet.master.get("t")
    assert (got.num_replicas, got.schema_version, got.state) == (5, 1, "ALTERING")
    for bad, code in (
        (4, m.MasterErrorCode.EVEN_REPLICATION_FACTOR),
        (9, m.MasterErrorCode.REPLICATION_FACTOR_TOO_HIGH),
        (7, m.MasterErrorCode.REPLICATION_FACTOR_TOO_HIGH),  # there are five servers
        (0, m.MasterErrorCode.ILLEGAL_REPLICATION_FACTOR),
    ):
        request = m.AlterTableRequest(identifier, m.RequestId("c", 10 + bad, "n"), num_replicas=bad)
        assert refusal(await tablet.master.ask(request)).code is code
    plain = await tablet.master.alter("t", add("x"))
    assert plain.error is None
    assert (await tablet.master.get("t")).num_replicas == 5


async def test_the_old_scheme_evicts_first():
    tablet = await one_tablet(raft_prepare_replacement_before_eviction=False)
    await tablet.report(tablet.third)
    assert tablet.asked == [(tablet.leader, "REMOVE_PEER", tablet.third, -1)]
    tablet.change(without=tablet.third)
    await tablet.report()
    request = tablet.master.client.of("ChangeConfig")[-1]
    assert request.change.type is raft.ChangeType.ADD_PEER
    assert request.change.peer.member_type == "VOTER"


async def test_a_leader_that_is_to_be_replaced_is_asked_to_hand_over():
    tablet = await one_tablet()
    first = tablet.config.peers[0]
    tablet.change(m.PeerConfig(first.uuid, first.address, replace=True))
    await tablet.report()
    (request,) = tablet.master.client.of("ChangeConfig")
    tablet.change(m.PeerConfig(request.change.peer.uuid, request.change.peer.address))
    await tablet.report()
    asked = tablet.master.client.of("LeaderStepDown")
    assert {(r.dest_uuid, r.mode) for r in asked} == {(tablet.leader, raft.StepDownMode.GRACEFUL)}


async def test_a_tablet_is_given_up_for_an_empty_one():
    tablet = await one_tablet()
    master = tablet.master
    answer = await master.ask(m.ReplaceTabletRequest(tablet.id))
    assert answer.error is None
    await asyncio.sleep(0.1)
    (table_id,) = master.catalog.tables
    (fresh,) = master.catalog.live_tablets(table_id)
    assert (fresh.id, fresh.state) == (answer.replacement_tablet_id, TabletState.CREATING)
    assert master.catalog.tablets[tablet.id].state is TabletState.DELETED
    assert len(master.client.of("DeleteTablet")) == 3
    for dead in (tablet.id, "f" * 32):
        again = await master.ask(m.ReplaceTabletRequest(dead))
        assert refusal(again).status is m.AppStatus.NOT_FOUND
    assert len(master.catalog.live_tablets(table_id)) == 1
    # a leader that is not confirmed cannot know that the tablet does not exist
    master.replica.reachable = False
    unsure = await master.ask(m.ReplaceTabletRequest("f" * 32))
    assert refusal(unsure).code is m.MasterErrorCode.NOT_THE_LEADER


def test_one_change_of_one_configuration_is_pending_at_once():
    eviction = ChangeConfig(TABLET, EvictPeer("B"), None, 7)
    addition = ChangeConfig(TABLET, AddPeer("NON_VOTER", promote=True), ("D", "d:1"), 7)
    assert eviction.key == addition.key
    assert addition.description == {"change": "add", "peer": "D", "member_type": "NON_VOTER"}
    assert eviction.description == {"change": "evict", "peer": "B"}
    assert ChangeConfig(TABLET, StepDownLeader(), None, 7).description == {"change": "step-down"}
    assert eviction.key != ChangeConfig(TABLET, EvictPeer("B"), None, 8).key


def test_a_report_of_another_leader_or_configuration_decides_nothing():
    catalog = catalog_with(consensus=ConsensusState(3, "A", config(7, "A", "B", "C")))
    health = {"A": HEALTHY, "B": HEALTHY, "C": FAILED}
    for leader, index, decided in (("A", 7, True), ("B", 7, False), ("A", 5, False)):
        catalog.views[TABLET] = LeaderView(leader, index, health)
        assert (review(catalog, TABLET, Flags()) is not None) is decided
    catalog.views.clear()
    assert review(catalog, TABLET, Flags()) is None
    creating = catalog_with(state=TabletState.CREATING)
    creating.views[TABLET] = LeaderView("A", -1, health)
    assert review(creating, TABLET, Flags()) is None
