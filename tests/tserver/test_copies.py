"""Replicas that a tablet server creates when a leader asks for a copy."""

import asyncio
from typing import Any

import msgspec
import pytest

from targets.kudu import messages as m
from targets.kudu.consensus.messages import (
    ConsensusError,
    ConsensusErrorCode,
    StartTabletCopyRequest,
)
from targets.kudu.tserver import tablet_replica as _tablet
from targets.kudu.tserver import ts_tablet_manager as _manager
from targets.kudu.tserver.ts_tablet_manager import TabletManager
from tests.support.env import FakeDisk
from tests.tserver.fakes import UUID, FakeReplica, alter, create, delete
from tests.tserver.test_manager import code as refused_by
from tests.tserver.test_manager import manager, opened, replica_of, with_tablet

Code = ConsensusErrorCode
MEMBERS = m.RaftConfig(9, (m.PeerConfig("b" * 32, "t2:7050"), m.PeerConfig(UUID, "t1:7050")))
TOMBSTONE = delete(delete_type="TOMBSTONED")


@pytest.fixture(autouse=True)
def _fake_raft(monkeypatch):
    monkeypatch.setattr(_tablet, "Replica", FakeReplica)
    monkeypatch.setattr(_manager, "_COPY_LOOK_S", 0.0)


async def asked_by_leader(tablet_id: str = "x") -> StartTabletCopyRequest:
    """Return a leader's request; its description comes from a server that has the tablet."""
    source = manager()
    await source.create_tablet(create(tablet_id))
    replica = replica_of(source, tablet_id)
    return StartTabletCopyRequest(UUID, tablet_id, "b" * 32, 7, MEMBERS, replica.copy_source())


def code(error: ConsensusError | None) -> Code | None:
    return None if error is None else error.code


def state_of(tablets: TabletManager) -> tuple[str, str]:
    (reported,), _ = tablets.report(None)
    return reported.data_state, reported.state


async def caught_up(tablets: TabletManager, index: int) -> None:
    replica_of(tablets).commit_index = index
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_empty_replica_is_copying_until_it_has_all_data_of_its_source():
    disk, dirty = FakeDisk(), []
    tablets = manager(disk, dirty)
    assert await tablets.start_copy(await asked_by_leader()) is None
    assert state_of(tablets) == ("COPYING", "RUNNING")
    assert dirty
    assert tablets.live_tablets == 1
    (reported,), _ = tablets.report(None)
    assert reported.committed_config == MEMBERS
    await caught_up(tablets, 8)
    assert state_of(tablets) == ("COPYING", "RUNNING")
    dirty.clear()
    await caught_up(tablets, 9)
    assert state_of(tablets) == ("READY", "RUNNING")
    assert dirty == ["x"]
    restarted = await opened(disk)
    assert state_of(restarted) == ("READY", "RUNNING")


async def test_a_copy_goes_on_after_a_restart():
    disk = FakeDisk()
    await manager(disk).start_copy(await asked_by_leader())
    restarted = await opened(disk)
    assert state_of(restarted) == ("COPYING", "RUNNING")
    await caught_up(restarted, 9)
    assert state_of(restarted) == ("READY", "RUNNING")


@pytest.mark.parametrize("steps", range(4))
async def test_a_crash_at_any_step_leaves_a_copy_under_way_or_nothing(steps):
    disk = FakeDisk()
    disk.fail_after = steps
    tablets = manager(disk)
    made = False
    try:
        made = await tablets.start_copy(await asked_by_leader()) is None
        await caught_up(tablets, 9)
    except OSError:
        pass
    disk.fail_after = None
    for task in tablets._env.tasks:
        task.cancel()
    restarted = await opened(disk)
    (updated, _) = restarted.report(None)
    assert bool(updated) == bool(disk.files)
    assert made <= bool(updated)
    if updated:
        await caught_up(restarted, 9)
        assert state_of(restarted) == ("READY", "RUNNING")


async def test_a_copy_takes_the_place_of_a_tombstone():
    disk = FakeDisk()
    tablets = await with_tablet(disk)
    await tablets.delete_tablet(TOMBSTONE)
    restarted = await opened(disk)
    for server in (tablets, restarted):
        assert state_of(server) == ("TOMBSTONED", "STOPPED")
        assert await server.start_copy(await asked_by_leader()) is None
        assert state_of(server) == ("COPYING", "RUNNING")
        # the configuration that the tombstone has kept
        replica_of(server).committed_config = create().config
        (reported,), _ = server.report(None)
        assert reported.committed_config == MEMBERS
        stale = delete(delete_type="TOMBSTONED", cas_config_opid_index=8)
        assert await refused_by(server.delete_tablet(stale)) is m.TabletErrorCode.CAS_FAILED
        await caught_up(server, 9)
        assert state_of(server) == ("READY", "RUNNING")
        await server.delete_tablet(TOMBSTONE)


async def test_a_copy_that_is_no_longer_wanted_is_tombstoned_or_deleted():
    for delete_type in ("TOMBSTONED", "DELETED"):
        tablets = manager()
        await tablets.start_copy(await asked_by_leader())
        stale = delete(delete_type=delete_type, cas_config_opid_index=8)
        assert await refused_by(tablets.delete_tablet(stale)) is m.TabletErrorCode.CAS_FAILED
        await tablets.delete_tablet(delete(delete_type=delete_type))
        await asyncio.gather(*tablets._env.tasks)
        reported, _ = tablets.report(None)
        assert [t.data_state for t in reported] == ["TOMBSTONED"] * (delete_type != "DELETED")


async def test_present_and_deleted_tablets_are_not_copied():
    tablets, request = manager(), await asked_by_leader()
    await tablets.create_tablet(create())
    assert code(await tablets.start_copy(request)) is Code.ALREADY_INPROGRESS
    await tablets.delete_tablet(delete())
    assert code(await tablets.start_copy(request)) is Code.TABLET_NOT_FOUND


async def test_one_transition_at_a_time():
    disk = FakeDisk()
    tablets, gate, plain = manager(disk), asyncio.Event(), disk.replace

    async def slow(path: str, data: bytes) -> None:
        await gate.wait()
        await plain(path, data)

    disk.replace = slow
    first = asyncio.create_task(tablets.create_tablet(create()))
    await asyncio.sleep(0)
    request: Any = await asked_by_leader()
    assert code(await tablets.start_copy(request)) is Code.ALREADY_INPROGRESS
    gate.set()
    assert await first is None


async def test_a_copy_starts_as_the_tablet_did_whatever_was_altered_since():
    tablets = await with_tablet()
    await tablets.alter_schema(alter(4, "a", "b"))
    assert msgspec.json.decode(replica_of(tablets).copy_source())["schema_version"] == 3


async def test_leaders_report_the_health_of_their_peers():
    tablets = await with_tablet()
    health = {"b" * 32: m.PeerHealth.FAILED, UUID: m.PeerHealth.HEALTHY}
    replica = replica_of(tablets)
    replica.health, replica.pending_config = health, MEMBERS
    (reported,), _ = tablets.report(None)
    assert (reported.peer_health, reported.has_pending_config) == (health, True)
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(reported), type=m.ReportedTablet)
    assert again == reported
