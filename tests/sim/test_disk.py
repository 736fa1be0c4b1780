"""The content of a disk, compared with a model of all contents that are possible after a crash."""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.environments.sim.clock import SimClock
from harness.environments.sim.disk import UNSYNCED_OPERATIONS_MAX, DiskStore, SimDisk
from harness.environments.sim.world import World
from tests.sim.toy import run, specs
from tests.tiers import examples

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(min_size=1, max_size=4)),
        st.tuples(st.just("truncate"), st.integers(0, 8)),
        st.tuples(st.just("sync"), st.none()),
        st.tuples(st.just("replace"), st.binary(max_size=3)),
    ),
    max_size=12,
)


def in_world(work, *, seed=0):
    """Run `work(disk, store)` on the loop of an otherwise empty world."""
    world = World(events_max=10**6, virtual_ns_max=10**15)
    clock = SimClock(world, wall_base_ns=0, max_error_ns=0)
    loop = world.new_loop("client", clock, cost_ns=0)
    store = DiskStore(world, Random(seed), latency_ns=(10**6, 10**7), append_ns_max=10**4)
    task = loop.create_task(work(SimDisk(store, loop), store))
    task.add_done_callback(lambda _: world.stop())
    try:
        world.run()
        return task.result()
    finally:
        world.discard()


def crash_outcomes(operations, *, lose_unsynced, torn):
    """Return all possible contents of the file after a crash; `None` means a missing file."""
    durable, unsynced, synced_once = b"", [], False
    for kind, argument in operations:
        if kind == "sync":
            for op in unsynced:
                durable = apply(durable, op)
            unsynced, synced_once = [], True
        elif kind == "replace":
            durable, unsynced, synced_once = argument, [], True
        else:
            unsynced.append((kind, argument))
    prefixes = range(len(unsynced) + 1) if lose_unsynced else [len(unsynced)]
    outcomes = set() if synced_once or not lose_unsynced else {None}
    for count in prefixes:
        content = durable
        for op in unsynced[:count]:
            before, content = content, apply(content, op)
        outcomes.add(content)
        if torn and count and unsynced[count - 1][0] == "append":
            data = unsynced[count - 1][1]
            outcomes |= {before + data[:size] for size in range(len(data))}
    return outcomes


def apply(content, operation):
    kind, argument = operation
    return content + argument if kind == "append" else content[:argument]


@settings(max_examples=examples(150), deadline=None)
@given(OPERATIONS, st.booleans(), st.booleans(), st.integers(0, 1000))
def test_a_crash_leaves_one_of_the_possible_contents(operations, lose, torn, seed):
    done = []

    async def work(disk, store):
        file = await disk.open("f")
        visible = b""
        for kind, argument in operations:
            if kind == "append":
                assert await file.append(argument) == len(visible)
            elif kind == "truncate":
                argument = min(argument, len(visible))  # noqa: PLW2901
                await file.truncate(argument)
            elif kind == "sync":
                await file.sync()
            else:
                await disk.replace("f", argument)
                file = await disk.open("f")
                visible = argument
            if kind in {"append", "truncate"}:
                visible = apply(visible, (kind, argument))
            done.append((kind, argument))
            assert await disk.read("f") == visible
            assert file.size() == len(visible)
        store.crash(lose_unsynced=lose, torn=torn)
        left = await disk.read("f") if await disk.list() else None
        store.crash(lose_unsynced=True, torn=False)
        again = await disk.read("f") if await disk.list() else None
        return visible, left, again

    visible, left, again = in_world(work, seed=seed)
    assert left in crash_outcomes(done, lose_unsynced=lose, torn=torn)
    if not lose and not torn:
        assert left == visible
    if lose:
        assert again == left  # data that survived a power cut is durable from then on


def test_every_outcome_happens():
    operations = [("append", b"ab"), ("sync", None), ("append", b"cd"), ("append", b"ef")]

    async def work(disk, store):
        file = await disk.open("f")
        for _, argument in operations:
            await (file.append(argument) if argument else file.sync())
        store.crash(lose_unsynced=True, torn=True)
        return await disk.read("f")

    seen = {in_world(work, seed=seed) for seed in range(200)}
    assert seen == crash_outcomes(operations, lose_unsynced=True, torn=True)


def test_a_file_that_was_never_synced_may_vanish():
    async def work(disk, store):
        await disk.open("f")
        store.crash(lose_unsynced=True, torn=False)
        return await disk.list()

    seen = {tuple(in_world(work, seed=seed)) for seed in range(30)}
    assert seen == {(), ("f",)}


def test_a_replacement_cut_short_is_all_or_nothing():
    async def work(disk, store):
        await disk.replace("f", b"old")
        task = asyncio.create_task(disk.replace("f", b"new"))
        await asyncio.sleep(0)
        assert await disk.read("f") == b"old"
        store.crash(lose_unsynced=True, torn=True)
        task.cancel()
        return await disk.read("f")

    assert {in_world(work, seed=seed) for seed in range(30)} == {b"old", b"new"}


def test_a_sync_covers_what_was_appended_before_it_began():
    async def work(disk, store):
        file = await disk.open("f")
        await file.append(b"before")
        task = asyncio.create_task(file.sync())
        await asyncio.sleep(0)
        await file.append(b"after")
        await task
        inode = store.files["f"]
        return bytes(inode.durable), bytes(inode.visible)

    assert in_world(work) == (b"before", b"beforeafter")


@pytest.mark.parametrize("moment", [0, 0.0005, 0.02])
def test_what_replaces_a_file_is_not_overtaken_by_what_comes_after_it(moment):
    async def work(disk, store):
        await disk.replace("f", b"old")
        task = asyncio.create_task(disk.replace("f", b"new"))
        await asyncio.sleep(moment)
        task.cancel()
        task.cancel()
        await asyncio.wait([task])
        assert store.files["f"].durable == b"new"
        await disk.remove("f")
        await asyncio.sleep(1)
        return await disk.list(), task.cancelled()

    assert in_world(work) == ([], moment < 0.01)


def test_requests_queue_on_one_device_and_survive_their_callers():
    async def work(disk, store):
        loop = asyncio.get_running_loop()
        file = await disk.open("f")
        await file.append(b"x")
        start = loop.time()
        await asyncio.gather(*(file.sync() for _ in range(50)))
        assert loop.time() - start > 50 * 0.001
        await file.append(b"y")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0001):
                await file.sync()
        await asyncio.sleep(1)
        return bytes(store.files["f"].durable)

    assert in_world(work) == b"xy"


def test_an_append_waits_for_nothing_and_the_next_sync_pays_for_it():
    async def sync_after(disk, appends):
        loop = asyncio.get_running_loop()
        file = await disk.open("f")
        for _ in range(appends):
            before = loop.time()
            await file.append(b"x")
            assert loop.time() == before
        before = loop.time()
        await file.sync()
        return loop.time() - before

    async def work(disk, store):
        alone = await sync_after(disk, 0)
        return alone, await sync_after(disk, 4000), await sync_after(disk, 0)

    alone, after_many, after = in_world(work)
    assert alone <= 0.01  # the longest latency of a single sync
    assert 0.015 < after_many < 0.05  # 4000 appends take 5 us each on average
    assert after <= 0.01


def test_the_kernel_writes_back_in_the_end():
    async def work(disk, store):
        file = await disk.open("f")
        for _ in range(UNSYNCED_OPERATIONS_MAX + 1):
            await file.append(b"x")
        inode = store.files["f"]
        assert len(inode.unsynced) <= UNSYNCED_OPERATIONS_MAX
        return len(inode.durable) + len(inode.unsynced), len(inode.visible)

    assert in_world(work) == (UNSYNCED_OPERATIONS_MAX + 1, UNSYNCED_OPERATIONS_MAX + 1)


def test_an_open_file_stays_with_its_content_when_its_path_is_replaced():
    async def work(disk, store):
        file = await disk.open("f")
        await file.append(b"old")
        await disk.replace("f", b"new")
        await file.append(b"er")
        assert await file.read(0, 99) == b"older"
        file.close()
        with pytest.raises(ValueError, match="is closed"):
            await file.append(b"x")
        return await disk.read("f")

    assert in_world(work) == b"new"


@pytest.mark.parametrize("path", ["", "/etc/passwd", "a//b", "../x", "a/./b"])
def test_paths_stay_on_the_disk(path):
    async def work(disk, store):
        with pytest.raises(ValueError, match="path"):
            await disk.open(path)

    in_world(work)


def test_a_killed_node_keeps_synced_records_and_a_whole_prefix():
    async def main(s):
        count = {"synced": 0, "appended": 0}
        s.cluster.subscribe(lambda e: count.update({e.kind: e.data.get("count", 0)}))
        await asyncio.sleep(s.env.random.random())
        await s.cluster.kill("a", lose_unsynced=True, torn=False)
        content = bytes(s.cluster._machines["a"].disk.files["log"].visible)
        lines = content.split(b"\n")
        assert lines == [b"%07d" % i for i in range(len(lines) - 1)] + [b""]
        return len(lines) - 1 - count["synced"], count["appended"] - len(lines) + 1

    # No synced data is lost, no data survives beyond a gap, and some unsynced data is lost.
    runs = [run(main, specs("a", entry="scribe"), seed=seed) for seed in range(20)]
    assert min(kept for kept, _ in runs) == 0
    assert len({kept for kept, _ in runs}) > 2
    assert max(lost for _, lost in runs) > 1


async def careless(env, config):
    """Run a node that never syncs."""
    file = await env.disk.open("log")
    await file.append(b"never synced")
    await asyncio.Event().wait()


def test_a_power_cut_takes_the_page_cache_that_a_node_already_dead_left_behind():
    async def kept(s, *, cut):
        await asyncio.sleep(0.1)
        await s.cluster.kill("a")
        if cut:
            assert not await s.cluster.kill("a", lose_unsynced=True, torn=False)
        disk = s.cluster._machines["a"].disk
        return bytes(disk.files["log"].visible) if "log" in disk.files else b""

    def outcomes(cut):
        nodes = specs("a", entry="tests.sim.test_disk:careless")
        return {run(lambda s: kept(s, cut=cut), nodes, seed=seed) for seed in range(12)}

    assert outcomes(cut=False) == {b"never synced"}
    assert outcomes(cut=True) == {b"", b"never synced"}


async def replacer(env, config):
    """Run a node that replaces the same file over and over."""
    count = 0
    while True:
        await env.disk.replace("f", b"%d" % count)
        count += 1


def test_requests_of_a_device_end_with_the_node():
    async def main(s):
        await asyncio.sleep(0.1 + s.env.random.random() / 10)
        await s.cluster.kill("a")
        files = s.cluster._machines["a"].disk.files
        left = bytes(files["f"].visible)
        await asyncio.sleep(1)
        return left == bytes(files["f"].visible)

    nodes = specs("a", entry="tests.sim.test_disk:replacer")
    assert all(run(main, nodes, seed=seed) for seed in range(10))


def test_current_and_total_bytes_of_a_disk():
    async def work(disk, store):
        file = await disk.open("log")
        await file.append(b"12345")
        await file.truncate(3)
        await disk.replace("state", b"1234")
        await disk.replace("state", b"12")
        assert (store.held_bytes(), store.written_bytes) == (5, 11)
        await disk.remove("log")
        store.crash(lose_unsynced=True, torn=False)
        return store.held_bytes(), store.written_bytes

    assert in_world(work) == (2, 11)
