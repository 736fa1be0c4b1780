"""A simulated Raft group under faults of links, processes and disks."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from harness.cluster import Link
from harness.faults.ledger import Ledger
from harness.nodes.faults import Aim, Cut, Pause
from targets.kudu.consensus import messages as msg
from targets.kudu.consensus.log import Wal
from targets.kudu.rpc import RpcError
from tests.async_tests import on
from tests.consensus.driver import Group, simulate
from tests.consensus.group import GROUP
from tests.faults.door import door
from tests.sim.toy import PORT


@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_a_group_elects_a_leader_and_replicates(nodes):
    async def main(group: Group) -> int:
        await group.write_all(20)
        dumps = await group.check()
        return len(dumps[0]["items"])

    assert simulate(main, nodes=nodes) == 20


@on(simulate, nodes=1)
async def test_a_single_node_leads_at_once(group):
    await group.leader()
    assert asyncio.get_running_loop().time() < 0.5


async def _first_leader_s(group: Group) -> float:
    while not group.leaders:  # noqa: ASYNC110 - an event of the simulation
        await asyncio.sleep(0.01)
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("seed", range(5))
def test_a_new_group_does_not_wait_for_a_leader_it_never_had(seed):
    assert simulate(_first_leader_s, seed=seed) < 0.5


@on(simulate)
async def test_only_a_new_group_does_not_wait(group):
    await _first_leader_s(group)
    await asyncio.sleep(1)
    for name in group.names:
        await group.session.cluster.kill(name)
    group.leaders.clear()
    for name in group.names:
        await group.session.cluster.start(name)
    before = asyncio.get_running_loop().time()
    assert 1.5 <= await _first_leader_s(group) - before < 3


def test_without_pre_elections_a_new_group_waits_too():
    flags = {"raft_enable_pre_election": False}
    assert 1.5 <= simulate(_first_leader_s, flags=flags) < 3


@on(simulate)
async def test_a_late_member_of_a_new_group_does_not_disturb_its_leader(group):
    late = group.names[-1]
    await group.session.cluster.kill(late)
    await group.leader(among=group.names[:-1])
    await group.session.cluster.start(late)
    await asyncio.sleep(5)
    await group.check()
    assert len(group.leaders) == 1


@on(simulate, trace_steps=True)
async def test_requests_to_all_peers_count_as_heartbeats(group):
    leader = await group.leader()
    counts = []
    for writes in (0, 30):
        before = group.kinds.get("acked", 0)
        for number in range(writes):
            await asyncio.sleep(0.1)
            assert await group.write(leader, f"w{number}") == "ok"
        await asyncio.sleep(0.4 if writes else 3)
        counts.append(group.kinds.get("acked", 0) - before)
    await group.check()
    idle, busy = counts[0], counts[1]
    assert 10 <= idle <= 12  # one heartbeat every half second to each of two followers
    assert busy == 60  # two requests for each write, and no heartbeat in addition


@on(simulate)
async def test_followers_name_the_leader(group):
    leader = await group.leader()
    follower = next(name for name in group.names if name != leader)
    write, read = await group.ask(follower, "Write", "x"), await group.ask(follower, "Read")
    assert write["fail"] == read["fail"] == f"not the leader; that is uuid-{leader}"


@on(simulate)
async def test_a_cut_off_leader_neither_writes_nor_reads_and_steps_down(group):
    old = await group.leader()
    await door(group).cut(group.links(old))
    write = asyncio.create_task(group.write(old, "lost?"))
    read = await group.ask(old, "Read")
    rest = [name for name in group.names if name != old]
    new = await group.leader(among=rest)
    await group.write(new, "kept")
    outcome = await write
    dump = await group.ask(old, "Dump")
    assert new != old
    await door(group).heal_all()
    await group.check()
    assert outcome == "info"
    assert "fail" in read
    assert dump["role"] == "FOLLOWER"


@on(simulate)
async def test_a_returning_node_does_not_depose_the_leader(group):
    """Pre-elections and withheld votes (KUDU-562, KUDU-1365) keep the terms from growing."""
    leader = await group.leader()
    before = (await group.ask(leader, "Dump"))["term"]
    lonely = next(name for name in group.names if name != leader)
    for _ in range(5):
        fault = await door(group).cut(group.links(lonely))
        await asyncio.sleep(10)
        await door(group).heal(fault)
        await asyncio.sleep(10)
    assert before == (await group.ask(leader, "Dump"))["term"]


@on(simulate)
async def test_an_idle_group_keeps_its_leader(group):
    await group.leader()
    await asyncio.sleep(600)
    assert len(group.leaders) == 1


@on(simulate)
async def test_leadership_can_be_handed_over(group):
    leader = await group.leader()
    heir = next(name for name in group.names if name != leader)
    await group.write_all(3)
    await asyncio.sleep(1)
    request = msg.LeaderStepDownRequest(
        f"uuid-{leader}", GROUP, msg.StepDownMode.GRACEFUL, f"uuid-{heir}"
    )
    start_s = asyncio.get_running_loop().time()
    answer = await group.client.call(f"{leader}:{PORT}", request, timeout_s=5.0)
    assert answer.error is None
    found = await group.leader(among=[heir])
    assert heir == found
    assert asyncio.get_running_loop().time() - start_s < 0.5


@pytest.mark.parametrize(
    ("dest_uuid", "tablet_id", "code"),
    [
        ("uuid-n2", GROUP, msg.ConsensusErrorCode.WRONG_SERVER_UUID),
        ("uuid-n1", "x", msg.ConsensusErrorCode.TABLET_NOT_FOUND),
    ],
)
@on(simulate)
async def test_strangers_calls_are_refused(group, dest_uuid, tablet_id, code):
    answer = await group.client.call(
        f"n1:{PORT}", msg.GetConsensusStateRequest(dest_uuid, tablet_id), timeout_s=5.0
    )
    error = answer.error
    assert error is not None
    assert error.code == code


@on(simulate, snapshot_every=50, flags={"log_segment_size_kb": 1})
async def test_memory_and_disk_stay_bounded(group):
    await group.write_all(400)
    dumps = await group.check()
    for dump in dumps:
        assert len(dump["log"]) < 150
        assert len(dump["files"]) < 20


def test_a_node_that_fell_behind_is_sent_a_snapshot():
    async def main(group: Group) -> dict[str, Any]:
        leader = await group.leader()
        late = next(name for name in group.names if name != leader)
        await group.session.cluster.kill(late)
        await group.write_all(300)
        await group.session.cluster.start(late)
        await group.check()
        return await group.ask(late, "Dump")

    flags = {"log_segment_size_kb": 1, "consensus_max_batch_size_bytes": 700}
    dump = simulate(main, snapshot_every=50, flags=flags)  # the snapshot takes several chunks
    assert len(dump["items"]) == 300
    assert dump["first_index"] > 100


@on(simulate, snapshot_every=50, flags={"log_segment_size_kb": 1})
async def test_replicas_tell_of_every_entry_and_of_states_they_took_installed_and_restored(group):
    leader = await group.leader()
    late = next(name for name in group.names if name != leader)
    await group.session.cluster.kill(late)
    await group.write_all(120)
    taken = [at for (node, at), kinds in group.told.items() if "state" in kinds]
    assert len(taken) == 2 * 2  # two nodes took two snapshots each
    assert all((leader, at) in group.told for at in range(1, 121))
    await group.session.cluster.start(late)
    await group.check()
    installed = [at for (node, at), k in group.told.items() if node == late and "state" in k]
    assert set(installed) <= set(taken)
    assert len(installed) == 1
    await group.restart(late)
    await group.check()
    assert group.told[late, installed[0]] == ["state", "state"]


def test_a_start_finishes_what_a_crash_left_of_a_collection(monkeypatch):
    async def crashed(self: Wal, index: int) -> None:
        del self, index

    async def main(group: Group) -> list[int]:
        with monkeypatch.context() as patch:
            patch.setattr(Wal, "collect", crashed)
            for round_number in range(4):
                await group.write_all(20, f"r{round_number}-")
                for name in group.names:
                    await group.session.cluster.kill(name)
                    await group.session.cluster.start(name)
            dumps = await group.check()
            assert min(dump["counters"]["garbage segments"] for dump in dumps) > 1
            for name in group.names:
                await group.session.cluster.kill(name)
        for name in group.names:
            await group.session.cluster.start(name)
        return [dump["counters"]["garbage segments"] for dump in await group.check()]

    assert max(simulate(main, snapshot_every=60)) <= 1


@on(simulate, snapshot_every=50)
async def test_a_wiped_node_is_filled_again(group):
    leader = await group.leader()
    wiped = next(name for name in group.names if name != leader)
    await group.write_all(120)
    await group.session.cluster.kill(wiped)
    await group.session.cluster.wipe(wiped)
    await group.session.cluster.start(wiped)
    await group.write_all(10, "after")
    await group.check()
    assert len((await group.ask(wiped, "Dump"))["items"]) == 130


@on(simulate, snapshot_every=40)
async def test_everything_survives_a_power_cut_of_all(group):
    for round_number in range(4):
        await group.write_all(30, f"r{round_number}-")
        await group.restart(*group.names, lose_unsynced=True, torn=True)
    assert len((await group.check())[0]["items"]) >= 120


@on(simulate)
async def test_a_graceful_stop_is_an_orderly_end(group):
    await group.write_all(5)
    for name in group.names:
        await group.session.cluster.stop(name)
    for name in group.names:
        await group.session.cluster.start(name)
    await group.check()


def test_traced_steps_use_the_known_words():
    async def main(group: Group) -> dict[str, int]:
        await group.write_all(3)
        return group.kinds

    kinds = simulate(main, trace_steps=True)
    known = "voted candidate leader appended synced acked committed applied"
    assert all(kinds.get(word, 0) > 0 for word in known.split())
    assert "synced" not in simulate(main)


async def storm(group: Group, *, rounds: int) -> None:
    """Write on every node and make confirmed reads while faults start and end."""
    rng = group.session.env.random
    cluster = group.session.cluster
    ledger = Ledger(cluster, group.session.env)
    running = True

    async def broken(what: Cut | Pause, name: str, links: Sequence[Link] = ()) -> None:
        aim = Aim(what=what, targets=(name,), links=tuple(links))
        await ledger.inject(aim, lease_s=3 + 4 * rng.random(), groups={})

    async def writer(name: str, writer_number: int) -> None:
        count = 0
        while running:
            count += 1
            await group.write(name, f"{writer_number}-{count}")
            await asyncio.sleep(0.05 + 0.2 * rng.random())

    async def reader(name: str) -> None:
        while running:
            before = set(group.acknowledged)
            try:
                answer = await group.ask(name, "Read")
            except RpcError:
                answer = {}
            if "items" in answer:
                missing = before - set(answer["items"])
                assert not missing, f"a confirmed read lacks {sorted(missing)}"
            await asyncio.sleep(0.05 + 0.2 * rng.random())

    tasks = [asyncio.create_task(writer(n, k)) for k, n in enumerate(group.names)]
    tasks += [asyncio.create_task(reader(name)) for name in group.names]
    await group.leader()
    for _ in range(rounds):
        name = list(group.leaders.values())[-1] if rng.random() < 0.6 else rng.choice(group.names)
        what = rng.randrange(6)
        if what == 0:
            await broken(Cut(), name, group.links(name))
        elif what == 1:
            links = [link for link in group.links(name) if link.source == name]
            await broken(Cut(), name, links)
        elif what == 2:
            await broken(Pause(), name)
        elif what == 3:
            await cluster.kill(name, lose_unsynced=True, torn=True)
            await cluster.start(name)
        elif what == 4:
            await cluster.kill(name)
            await cluster.start(name)
        else:
            for other in group.names:
                await cluster.kill(other, lose_unsynced=True)
            for other in group.names:
                await cluster.start(other)
        await asyncio.sleep(6 * rng.random())
    running = False
    await door(group).heal_all()
    await asyncio.gather(*tasks)
    assert len(group.acknowledged) > 10
    await group.check()


KNOBS: list[dict[str, Any]] = [
    {},
    {"latency": "tail"},
    {"disk_ms_min": 5.0, "disk_ms_max": 400.0},
    {"retransmit": 0.0, "latency": "uniform", "latency_ms_max": 80.0},
]


@pytest.mark.parametrize("seed", range(12))
def test_a_storm_of_faults_breaks_no_promise(seed):
    async def main(group: Group) -> None:
        await storm(group, rounds=12)

    nodes = 5 if seed % 4 == 3 else 3
    simulate(main, nodes=nodes, seed=seed, knobs=KNOBS[seed % 4], snapshot_every=40)
