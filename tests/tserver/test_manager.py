"""Operations of a tablet server on its replicas, with crashes between the steps."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from harness.errors import TargetError
from targets.kudu import messages as m
from targets.kudu.consensus.errors import IndeterminateError, NotLeaderError, OverloadedError
from targets.kudu.context import NodeContext
from targets.kudu.flags import Flags
from targets.kudu.tserver import tablet_replica as _tablet
from targets.kudu.tserver import ts_tablet_manager as _manager
from targets.kudu.tserver.errors import TabletRefusedError
from targets.kudu.tserver.ts_tablet_manager import TabletManager
from tests.support.env import FakeDisk
from tests.tserver.fakes import UUID, FakeReplica, alter, create, delete, server_env

Code = m.TabletErrorCode


@pytest.fixture(autouse=True)
def _fake_raft(monkeypatch):
    monkeypatch.setattr(_tablet, "Replica", FakeReplica)


def manager(disk: FakeDisk | None = None, dirty: list[str] | None = None) -> TabletManager:
    marks = [] if dirty is None else dirty
    nothing: Any = None
    env: Any = server_env(disk)
    node = NodeContext(env, UUID, "t1:7050", Flags(), frozenset(), nothing)
    return TabletManager(node, consensus=nothing, on_dirty=marks.append)


async def with_tablet(
    disk: FakeDisk | None = None, dirty: list[str] | None = None
) -> TabletManager:
    tablets = manager(disk, dirty)
    await tablets.create_tablet(create())
    return tablets


async def opened(disk: FakeDisk) -> TabletManager:
    """Start a server from the content of `disk`."""
    tablets = manager(disk)
    await tablets.open_all()
    return tablets


async def code(operation: Awaitable[None]) -> Code | None:
    try:
        await operation
    except TabletRefusedError as refusal:
        return refusal.error.code
    return None


def replica_of(tablets: TabletManager, tablet_id: str = "x") -> FakeReplica:
    return tablets._tablets[tablet_id]._replica


async def test_create_is_idempotent_and_makes_the_tablet_dirty():
    dirty: list[str] = []
    tablets = manager(dirty=dirty)
    assert await tablets.create_tablet(create()) is None
    assert "x" in dirty
    assert (await code(tablets.create_tablet(create()))) is Code.TABLET_ALREADY_EXISTS
    (reported,), gone = tablets.report(None)
    assert (reported.tablet_id, reported.data_state, reported.state, gone) == (
        "x", "READY", "RUNNING", (),
    )  # fmt: skip
    assert (reported.term, reported.leader_uuid, reported.schema_version) == (1, UUID, 3)
    assert tablets.live_tablets == 1


async def test_the_versions_that_a_replica_has_are_announced():
    tablets = await with_tablet()
    await tablets.alter_schema(alter(4, "a"))
    told = [data for kind, data in tablets._env.events if kind == "checkpoint"]
    assert told == [{"group": "x", "version": 3}, {"group": "x", "version": 4}]


OTHER = {"dest_uuid": "b" * 32}
ELSEWHERE = m.RaftConfig(-1, (m.PeerConfig("b" * 32, "t2:7050"),))


@pytest.mark.parametrize(
    ("operation", "replica", "expected"),
    [
        (lambda t: t.create_tablet(create("y", **OTHER)), {}, Code.WRONG_SERVER_UUID),
        (lambda t: t.delete_tablet(delete(**OTHER)), {}, Code.WRONG_SERVER_UUID),
        (lambda t: t.alter_schema(alter(4, "a", **OTHER)), {}, Code.WRONG_SERVER_UUID),
        (lambda t: t.create_tablet(create("y", config=ELSEWHERE)), {}, Code.UNKNOWN_ERROR),
        (lambda t: t.delete_tablet(delete(delete_type="COPYING")), {}, Code.UNKNOWN_ERROR),
        (lambda t: t.alter_schema(alter(4, "a")), {"role": "FOLLOWER"}, Code.NOT_THE_LEADER),
        (lambda t: t.alter_schema(alter(4, "a")), {"state_text": "BOOTSTRAPPING"},
         Code.TABLET_NOT_RUNNING),
    ],
)  # fmt: skip
async def test_refused_requests_change_nothing(operation, replica, expected):
    tablets = await with_tablet()
    for name, value in replica.items():
        setattr(replica_of(tablets), name, value)
    assert (await code(operation(tablets))) is expected
    assert tablets.live_tablets == 1
    assert replica_of(tablets).log == []


async def test_deleted_tablet_is_gone_and_its_id_refused_until_a_restart():
    disk, dirty = FakeDisk(), []
    tablets = await with_tablet(disk, dirty)
    dirty.clear()
    assert await tablets.delete_tablet(delete()) is None
    assert dirty == ["x"]
    assert disk.files == {}
    assert tablets.report(("x",)) == ((), ("x",))
    assert (await code(tablets.delete_tablet(delete()))) is Code.TABLET_NOT_FOUND
    assert (await code(tablets.alter_schema(alter(4, "a")))) is Code.TABLET_NOT_FOUND
    assert (await code(tablets.create_tablet(create()))) is Code.TABLET_NOT_FOUND
    restarted = await opened(disk)
    assert await restarted.create_tablet(create()) is None


async def test_memory_of_deleted_ids_is_bounded_and_says_so(monkeypatch):
    monkeypatch.setattr(_manager, "_DELETED_IDS_MAX", 2)

    tablets = manager()
    for tablet_id in "xyz":
        await tablets.create_tablet(create(tablet_id))
        await tablets.delete_tablet(delete(tablet_id))
    said = [event for event in tablets._env.events if event[0] != "checkpoint"]
    assert said == [("deleted-id-forgotten", {"tablet": "x", "limit": 2})]
    assert (await code(tablets.create_tablet(create("y")))) is Code.TABLET_NOT_FOUND
    assert await tablets.create_tablet(create("x")) is None


@pytest.mark.parametrize(("mine", "expected", "error"), [(5, 5, None), (6, 5, Code.CAS_FAILED)])
@pytest.mark.parametrize("kind", ["DELETED", "TOMBSTONED"])
async def test_deletion_decided_on_old_news_fails(kind, mine, expected, error):
    tablets = await with_tablet()
    peers = (m.PeerConfig(UUID, "t1:7050"),)
    replica_of(tablets).committed_config = m.RaftConfig(mine, peers)
    request = delete(delete_type=kind, cas_config_opid_index=expected)
    assert (await code(tablets.delete_tablet(request))) is error


async def test_tombstone_keeps_the_vote_state_and_survives_a_restart():
    disk = FakeDisk()
    tablets = await with_tablet(disk)
    tombstone = delete(delete_type="TOMBSTONED")
    assert await tablets.delete_tablet(tombstone) is None
    # the replica is already a tombstone, so nothing happens
    assert await tablets.delete_tablet(tombstone) is None
    restarted = await opened(disk)
    for server in (tablets, restarted):
        (reported,), _ = server.report(None)
        assert (reported.state, reported.data_state) == ("STOPPED", "TOMBSTONED")
        assert reported.committed_config is None
        assert server.live_tablets == 0
        assert (await code(server.alter_schema(alter(4, "a")))) is Code.TABLET_NOT_RUNNING
        with pytest.raises(TabletRefusedError) as refused:  # clients do not see tombstones
            server.find("x")
        assert refused.value.error.code is Code.TABLET_NOT_FOUND
        assert (await code(server.create_tablet(create()))) is Code.TABLET_ALREADY_EXISTS
        assert server.dump()["tablets"][0]["raft"] is None
    assert "tablets/x/raft/meta" in disk.files
    stale = delete(cas_config_opid_index=-2)
    assert (await code(restarted.delete_tablet(stale))) is Code.CAS_FAILED
    assert await restarted.delete_tablet(delete()) is None
    assert disk.files == {}


@pytest.mark.parametrize("steps", range(6))
async def test_a_crash_at_any_step_leaves_a_whole_replica_or_none(steps):
    disk = FakeDisk()
    tablets = manager(disk)
    disk.fail_after = steps
    created = deleted = False
    try:
        created = await tablets.create_tablet(create()) is None
        deleted = await tablets.delete_tablet(delete()) is None
    except OSError:
        pass
    disk.fail_after = None
    restarted = await opened(disk)
    if deleted:
        assert disk.files == {}
    (updated, _) = restarted.report(None)
    assert all((t.data_state, t.state) == ("READY", "RUNNING") for t in updated)
    assert bool(updated) == bool(disk.files)
    if created and steps <= 2:  # the deletion had not reached the disk yet
        assert updated


async def test_corrupt_superblock_stops_the_server():
    disk = FakeDisk()
    disk.files["tablets/x/superblock"] = b"{torn"
    with pytest.raises(TargetError, match="tablets/x/superblock"):
        await manager(disk).open_all()


async def test_only_one_transition_at_a_time():
    disk = FakeDisk()
    tablets = manager(disk)
    gate = asyncio.Event()
    plain = disk.replace

    async def slow(path: str, data: bytes) -> None:
        await gate.wait()
        await plain(path, data)

    disk.replace = slow
    first = asyncio.create_task(tablets.create_tablet(create()))
    await asyncio.sleep(0)
    assert (await code(tablets.create_tablet(create()))) is Code.ALREADY_INPROGRESS
    assert (await code(tablets.delete_tablet(delete()))) is Code.ALREADY_INPROGRESS
    gate.set()
    assert await first is None
    assert await tablets.delete_tablet(delete()) is None


# --- schema changes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "columns", "error", "logged"),
    [
        (4, ("a", "b"), None, 1),
        (3, ("a",), None, 0),
        (3, ("b",), Code.MISMATCHED_SCHEMA, 0),
        (2, ("a",), Code.TABLET_HAS_A_NEWER_SCHEMA, 0),
    ],
)
async def test_versions_of_a_schema_change(version, columns, error, logged):
    dirty: list[str] = []
    tablets = await with_tablet(dirty=dirty)
    dirty.clear()
    assert (await code(tablets.alter_schema(alter(version, *columns)))) is error
    assert len(replica_of(tablets).log) == logged
    assert bool(dirty) is bool(logged)
    (reported,), _ = tablets.report(None)
    assert reported.schema_version == (version if logged else 3)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (NotLeaderError("deposed"), Code.NOT_THE_LEADER),
        (OverloadedError("full"), Code.UNKNOWN_ERROR),
        (IndeterminateError("deposed while writing"), Code.UNKNOWN_ERROR),
    ],
)
async def test_failed_replication_is_reported_and_may_be_asked_again(raised, expected):
    tablets = await with_tablet()
    replica = replica_of(tablets)
    replica.raises = raised
    assert (await code(tablets.alter_schema(alter(4, "a")))) is expected
    replica.raises = None
    assert await tablets.alter_schema(alter(4, "a")) is None


async def test_a_concurrent_second_change_is_told_to_retry():
    tablets = await with_tablet()
    replica = replica_of(tablets)
    gate, plain = asyncio.Event(), replica.replicate

    async def slow(payload, *, timeout_s=None):
        await gate.wait()
        return await plain(payload)

    replica.replicate = slow
    first = asyncio.create_task(tablets.alter_schema(alter(4, "a", "b")))
    await asyncio.sleep(0)
    assert (await code(tablets.alter_schema(alter(5, "c")))) is Code.ALREADY_INPROGRESS
    gate.set()
    assert await first is None
    assert await tablets.alter_schema(alter(5, "c")) is None


async def test_dump_is_plain_data():
    tablets = await with_tablet()
    assert tablets.dump() == {
        "uuid": UUID,
        "counters": {"tablets in transition": 0},
        "tablets": [
            {
                "tablet_id": "x",
                "table_id": "table",
                "state": "RUNNING",
                "data_state": "READY",
                "schema_version": 3,
                "table_name": "t",
                "columns": [[0, "key"], [1, "a"]],
                "partition": {"start": "", "end": "80"},
                "committed_config": {
                    "opid_index": -1,
                    "peers": [{"uuid": UUID, "address": "t1:7050", "member_type": "VOTER"}],
                },
                "rows": tablets.find("x").dump()["rows"],
                "raft": {"term": 1},
            }
        ],
    }
