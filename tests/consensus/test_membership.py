"""Members of a simulated Raft group join, leave and fail."""

import asyncio

import msgspec
import pytest

from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.messages import ChangeType, ConsensusErrorCode
from targets.kudu.messages import PeerHealth
from tests.async_tests import on
from tests.consensus.driver import Group, simulate
from tests.consensus.group import GROUP

ADD, REMOVE, MODIFY = ChangeType.ADD_PEER, ChangeType.REMOVE_PEER, ChangeType.MODIFY_PEER


@pytest.mark.parametrize(
    ("snapshot_every", "batch_bytes"), [(500, 1024 * 1024), (40, 1024 * 1024), (40, 500)]
)
def test_a_server_without_data_becomes_a_voter(snapshot_every, batch_bytes):
    async def main(group: Group) -> None:
        await group.write_all(120)
        answer = await group.change(ADD, "n4", "NON_VOTER", promote=True)
        assert answer.error is None
        assert answer.config is not None
        assert len(answer.config.peers) == 4
        await group.wait_for_voters("n1", "n2", "n3", "n4")
        group.names.append("n4")
        await group.write_all(10, "after")
        for name in ("n4", await group.leader()):
            await group.restart(name, lose_unsynced=True)
        await group.write_all(10, "restarted")
        await group.check()

    flags = {"consensus_max_batch_size_bytes": batch_bytes}
    simulate(main, spares=1, snapshot_every=snapshot_every, flags=flags)


@on(simulate, spares=1)
async def test_a_non_voter_is_filled_but_neither_counts_nor_is_promoted_unasked(group):
    await group.write_all(20)
    await group.change(ADD, "n4", "NON_VOTER")
    await asyncio.sleep(3)
    assert len((await group.ask("n4", "Dump"))["items"]) == 20
    leader = await group.leader()
    for name in group.names:
        if name != leader:
            await group.session.cluster.kill(name)

    assert await group.write(leader, "alone") != "ok"

    for name in group.names:
        if name != leader:
            await group.session.cluster.start(name)
    assert await group.voters() == ["n1", "n2", "n3"]
    await group.check()


@on(simulate, spares=1, snapshot_every=40)
async def test_a_lost_member_is_replaced_without_losing_a_majority(group):
    await group.write_all(100)
    leader = await group.leader()
    lost, kept = sorted(set(group.names) - {leader})
    await group.session.cluster.kill(lost)
    await group.change(ADD, "n4", "NON_VOTER", promote=True)
    await group.wait_for_voters("n1", "n2", "n3", "n4")

    assert (await group.change(REMOVE, lost)).error is None

    group.names = [leader, kept, "n4"]
    assert await group.voters() == sorted(group.names)
    await group.session.cluster.kill(kept)
    await group.write_all(10, "two of three")
    await group.session.cluster.start(kept)
    await group.check()


@on(simulate, snapshot_every=40)
async def test_a_removed_member_disturbs_no_leader(group):
    await group.write_all(10)
    leader = await group.leader()
    removed = next(name for name in group.names if name != leader)
    assert (await group.change(REMOVE, removed)).error is None
    terms = len(group.leaders)

    await asyncio.sleep(60)
    group.names.remove(removed)
    await group.write_all(10, "after")

    assert len(group.leaders) == terms
    await group.check()


@on(simulate)
async def test_changes_are_refused_with_their_code(group):
    leader = await group.leader()
    follower = next(name for name in group.names if name != leader)
    await group.write_all(3)

    async def code(kind: ChangeType, name: str, **more: int) -> ConsensusErrorCode | None:
        error = (await group.change(kind, name, **more)).error
        return None if error is None else error.code

    assert await code(REMOVE, leader) is ConsensusErrorCode.INVALID_CONFIG
    assert await code(ADD, follower) is ConsensusErrorCode.INVALID_CONFIG
    assert await code(REMOVE, follower, cas=7) is ConsensusErrorCode.CAS_FAILED
    change = msg.PeerChange(REMOVE, (await group.state(leader)).committed_config.peers[0])  # type: ignore[union-attr]
    for uuid, expected in (
        (f"uuid-{follower}", ConsensusErrorCode.NOT_THE_LEADER),
        ("uuid-x", ConsensusErrorCode.WRONG_SERVER_UUID),
    ):
        request = msg.ChangeConfigRequest(uuid, GROUP, change)
        answer = await group.consensus(follower, request)
        assert answer.error is not None
        assert answer.error.code is expected
    assert await code(REMOVE, follower, cas=-1) is None


@on(simulate, spares=1)
async def test_several_changes_in_one_step(group):
    leader = await group.leader()
    await group.write_all(3)
    config = (await group.state(leader)).committed_config
    assert config is not None
    old = next(peer for peer in config.peers if peer.uuid != f"uuid-{leader}")
    new = msg.PeerChange(ADD, type(old)("uuid-n4", "n4:7000", "NON_VOTER", promote=True))
    request = msg.BulkChangeConfigRequest(
        f"uuid-{leader}", GROUP, (new, msg.PeerChange(REMOVE, old))
    )

    answer = await group.consensus(leader, request)

    assert answer.error is None
    group.names = [name for name in group.names if f"uuid-{name}" != old.uuid] + ["n4"]
    await group.wait_for_voters(*group.names)
    await group.check()


@on(simulate)
async def test_a_change_without_a_majority_is_pending_and_of_unknown_outcome(group):
    leader = await group.leader()
    others = [name for name in group.names if name != leader]
    await group.write_all(3)
    for name in others:
        await group.session.cluster.kill(name)

    asked = asyncio.create_task(group.change_at(leader, REMOVE, others[0]))
    await asyncio.sleep(0.2)
    state = await group.state(leader)

    assert state.pending_config is not None
    assert [peer.uuid for peer in state.pending_config.peers] == [
        f"uuid-{name}" for name in group.names if name != others[0]
    ]
    assert state.committed_config is not None
    assert len(state.committed_config.peers) == 3
    error = (await asked).error
    assert error is not None
    assert error.code is ConsensusErrorCode.ABORTED
    for name in others:
        await group.session.cluster.start(name)
    await group.check()


@on(simulate, flags={"follower_unavailable_considered_failed_sec": 5.0})
async def test_a_leader_tells_the_health_of_its_peers(group):
    leader = await group.leader()
    lost, kept = (name for name in group.names if name != leader)
    await asyncio.sleep(2)
    await group.session.cluster.kill(lost)
    await asyncio.sleep(4)
    healthy = {f"uuid-{name}": "HEALTHY" for name in group.names}
    assert (await group.state(leader)).peer_health == healthy

    await asyncio.sleep(3)
    assert (await group.state(leader)).peer_health == healthy | {f"uuid-{lost}": "FAILED"}
    assert (await group.state(kept)).peer_health == {}

    await group.session.cluster.start(lost)
    await asyncio.sleep(2)
    told = (await group.ask(leader, "Dump"))["health"]
    assert [health.get(f"uuid-{lost}") for health in told[-3:]] == ["HEALTHY", "FAILED", "HEALTHY"]


@on(simulate, spares=1, refuses_copies=True)
async def test_a_member_that_cannot_be_given_data_is_beyond_recovery(group):
    await group.write_all(3)
    await group.change(ADD, "n4", "NON_VOTER", promote=True)
    await asyncio.sleep(3)

    health = (await group.state(await group.leader())).peer_health

    assert health["uuid-n4"] is PeerHealth.FAILED_UNRECOVERABLE
    assert await group.voters() == ["n1", "n2", "n3"]


@on(simulate)
async def test_how_far_a_log_goes(group):
    await group.write_all(3)
    await asyncio.sleep(1)
    for name in group.names:
        for kind in msg.OpIdType:
            request = msg.GetLastOpIdRequest(f"uuid-{name}", GROUP, kind)
            answer = await group.consensus(name, request)
            assert answer.opid.index == 4
            assert answer.opid.term >= 1


@pytest.mark.parametrize(
    ("mode", "successor", "code"),
    [
        (msg.StepDownMode.ABRUPT, "uuid-n1", ConsensusErrorCode.INVALID_CONFIG),
        (msg.StepDownMode.GRACEFUL, "uuid-x", ConsensusErrorCode.INVALID_CONFIG),
        (msg.StepDownMode.GRACEFUL, None, None),
        (msg.StepDownMode.ABRUPT, None, None),
    ],
)
@on(simulate)
async def test_step_downs(group, mode, successor, code):
    leader = await group.leader()
    await group.write_all(3)
    await asyncio.sleep(1)
    request = msg.LeaderStepDownRequest(f"uuid-{leader}", GROUP, mode, successor)

    error = (await group.consensus(leader, request)).error

    assert (None if error is None else error.code) is code
    await asyncio.sleep(0.4)  # enough time for a handover, but not for an election
    found = (await group.state(leader)).leader_uuid
    if code is not None:
        assert found == f"uuid-{leader}"
    elif mode is msg.StepDownMode.GRACEFUL:
        assert found not in {f"uuid-{leader}", None}
    else:
        assert found is None
    await group.check()


@on(simulate, nodes=1)
async def test_a_lone_leader_has_no_successor(group):
    request = msg.LeaderStepDownRequest("uuid-n1", GROUP, msg.StepDownMode.GRACEFUL)
    await group.leader()

    error = (await group.consensus("n1", request)).error

    assert error is not None
    assert error.code is ConsensusErrorCode.INVALID_CONFIG


# --- tombstones: replicas without data, which still vote ---


async def bury(group: Group, name: str) -> None:
    await group.ask(name, "Tombstone")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_tombstone_votes_for_a_log_at_least_as_long(*, restarts):
    async def main(group: Group) -> None:
        await group.write_all(20)
        leader = await group.leader()
        buried, heir = (name for name in group.names if name != leader)
        await asyncio.sleep(1)
        await group.session.cluster.kill(leader)
        await bury(group, buried)
        if restarts:
            await group.restart(buried, lose_unsynced=True)
        async with asyncio.timeout(20):
            while (await group.state(heir)).role != "LEADER":  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    simulate(main)


@on(simulate)
async def test_a_tombstone_does_not_vote_for_a_shorter_log(group):
    await group.write_all(3)
    leader = await group.leader()
    buried, behind = (name for name in group.names if name != leader)
    await group.session.cluster.kill(behind)
    await group.write_all(10, "unknown to it")
    await bury(group, buried)
    await group.session.cluster.kill(leader)
    await group.session.cluster.start(behind)

    await asyncio.sleep(60)

    assert (await group.state(behind)).role != "LEADER"
    await group.session.cluster.start(leader)
    assert await group.leader() == leader
    await group.check()
    assert len((await group.ask(buried, "Dump"))["items"]) == 13


@on(simulate, snapshot_every=5)
async def test_a_tombstone_is_filled_again_by_a_leader_that_counts_it(group):
    await group.write_all(20)
    leader = await group.leader()
    buried = next(name for name in group.names if name != leader)
    await bury(group, buried)
    await group.write_all(20, "after")
    await group.check()


@on(simulate)
async def test_a_refilled_tombstone_still_rejects_shorter_logs(group):
    await group.write_all(3)
    leader = await group.leader()
    buried, behind = (name for name in group.names if name != leader)
    await group.session.cluster.kill(behind)
    await group.write_all(10, "unknown to it")
    await bury(group, buried)
    config = (await group.state(leader)).committed_config
    assert config is not None
    await group.session.cluster.kill(leader)
    term = max(group.leaders)
    copy = msg.StartTabletCopyRequest(
        f"uuid-{buried}", GROUP, "x", term, config, msgspec.msgpack.encode(group.names)
    )
    answer = await group.consensus(buried, copy)
    assert answer.error is None
    await group.session.cluster.start(behind)

    await asyncio.sleep(60)

    for name in (buried, behind):
        assert (await group.state(name)).role != "LEADER"
    await group.session.cluster.start(leader)
    await group.check()


@on(simulate)
async def test_a_leader_of_a_term_that_a_tombstone_has_outlived_does_not_fill_it(group):
    await group.write_all(3)
    leader = await group.leader()
    buried = next(name for name in group.names if name != leader)
    config = (await group.state(leader)).committed_config
    assert config is not None
    await group.session.cluster.kill(leader)
    await group.leader(among=[name for name in group.names if name != leader])
    await asyncio.sleep(1)
    await bury(group, buried)
    copy = msg.StartTabletCopyRequest(f"uuid-{buried}", GROUP, "x", 1, config, b"")

    answer = await group.consensus(buried, copy)

    assert answer.error is not None
    assert answer.error.code is ConsensusErrorCode.INVALID_TERM


@on(simulate, nodes=1)
async def test_a_tombstone_remembers_its_vote_and_gives_one_a_term(group):
    await group.write_all(3)
    await bury(group, "n1")

    async def vote(candidate: str) -> ConsensusErrorCode | None:
        request = msg.RequestConsensusVoteRequest("uuid-n1", GROUP, candidate, 9, msg.OpId(9, 9))
        answer = await group.consensus("n1", request)
        return None if answer.error is None else answer.error.code

    both = await asyncio.gather(vote("x"), vote("y"))
    assert sorted(both, key=str) == [ConsensusErrorCode.CONSENSUS_BUSY, None]
    winner, loser = ("x", "y") if both[0] is None else ("y", "x")

    await group.restart("n1", lose_unsynced=True)
    await asyncio.sleep(1)

    assert await vote(loser) is ConsensusErrorCode.ALREADY_VOTED
    assert await vote(winner) is None
