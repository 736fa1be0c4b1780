"""The write-ahead log recovers after a cut at any byte, or is refused."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from targets.checked_file import DamagedFileError
from targets.kudu.consensus import consensus_meta as cmeta
from targets.kudu.consensus.log import Wal, WalCorruptionError
from targets.kudu.consensus.messages import Entry, EntryKind, OpId
from targets.kudu.messages import RaftConfig
from tests.support.env import FakeEnv, MemoryDisk
from tests.tiers import examples

EMPTY = OpId(0, 0)


def entry(term: int, index: int, size: int = 3) -> Entry:
    return Entry(term, index, EntryKind.WRITE, bytes([index % 251]) * size)


class Log:
    """A running log; `write` returns when its entries are durable."""

    def __init__(self, disk: MemoryDisk, *, segment_bytes: int = 10_000, sync: bool = True) -> None:
        self.disk = disk
        self.sequence = 0
        self.durable = 0
        self.wal = Wal(
            FakeEnv(disk=disk),  # type: ignore[arg-type]
            "g",
            sync=sync,
            segment_bytes=segment_bytes,
            segments_min=1,
            on_durable=self.note,
        )
        self.task: asyncio.Task[None] | None = None

    @property
    def segments(self) -> int:
        return self.wal.counters(0)["log segments"]

    def note(self, sequence: int) -> None:
        self.durable = sequence

    def put(self, preceding: OpId, *entries: Entry) -> None:
        self.sequence += 1
        self.wal.append(self.sequence, preceding, entries)

    async def write(self, preceding: OpId, *entries: Entry) -> None:
        self.put(preceding, *entries)
        await self.flush()

    async def flush(self) -> None:
        if self.task is None:
            self.task = asyncio.create_task(self.wal.run())
        for _ in range(1000):
            if self.durable >= self.sequence:
                return
            await asyncio.sleep(0)
        raise AssertionError("not durable")

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        self.wal.close()


async def recovered(disk: MemoryDisk, base: OpId = EMPTY) -> list[Entry]:
    return await Log(disk).wal.recover(base)


async def written(entries: list[Entry], *, segment_bytes: int = 10_000) -> MemoryDisk:
    disk = MemoryDisk()
    log = Log(disk, segment_bytes=segment_bytes)
    await log.wal.recover(EMPTY)
    preceding = EMPTY
    for item in entries:
        await log.write(preceding, item)
        preceding = OpId(item.term, item.index)
    await log.stop()
    return disk


async def test_what_was_durable_comes_back():
    entries = [entry(1, 1), entry(1, 2), entry(2, 3)]

    assert await recovered(await written(entries)) == entries
    assert await recovered(await written(entries, segment_bytes=60)) == entries


async def test_appends_queued_together_share_one_record_and_one_sync():
    disk = MemoryDisk()
    log = Log(disk)
    log.put(EMPTY, entry(1, 1))
    log.put(OpId(1, 1), entry(1, 2))
    await log.flush()
    await log.stop()

    assert bytes(disk.files["g/wal-0000000001"]).count(b"\xd7KWR") == 1
    assert await recovered(disk) == [entry(1, 1), entry(1, 2)]


async def test_what_a_recovery_returns_is_durable():
    disk = await written([entry(1, 1), entry(1, 2)])
    (path,) = disk.files
    disk.durable[path] = 20

    assert len(await recovered(disk)) == 2
    assert disk.durable[path] == len(disk.files[path])


async def test_an_overwritten_tail_is_gone():
    disk = MemoryDisk()
    log = Log(disk)
    await log.write(EMPTY, entry(1, 1), entry(1, 2), entry(1, 3))
    await log.write(OpId(1, 1), entry(2, 2))
    await log.stop()

    assert await recovered(disk) == [entry(1, 1), entry(2, 2)]


async def test_a_cut_at_any_byte_loses_only_the_end():
    entries = [entry(1, index) for index in range(1, 6)]

    whole = await written(entries, segment_bytes=170)
    last = max(whole.files)
    assert len(whole.files) > 1
    before = sum(1 for _ in await recovered_without(whole, last))
    for size in range(len(whole.files[last]) + 1):
        disk = MemoryDisk()
        disk.files = {path: bytearray(data) for path, data in whole.files.items()}
        del disk.files[last][size:]

        found = await recovered(disk)

        assert found == entries[: len(found)]
        assert len(found) >= before
        # The log continues after the cut, and a second recovery finds the new entries.
        log = Log(disk)
        assert await log.wal.recover(EMPTY) == found
        preceding = OpId(1, len(found)) if found else EMPTY
        await log.write(preceding, entry(7, len(found) + 1))
        await log.stop()
        assert await recovered(disk) == [*found, entry(7, len(found) + 1)]


async def recovered_without(disk: MemoryDisk, path: str) -> list[Entry]:
    copy = MemoryDisk()
    copy.files = {name: bytearray(data) for name, data in disk.files.items() if name != path}
    return await recovered(copy)


@settings(max_examples=examples(150), deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_damage_to_what_was_synced_is_noticed(data):
    entries = [entry(1, index, size=9) for index in range(1, 8)]

    async def main() -> None:
        disk = await written(entries, segment_bytes=data.draw(st.sampled_from([150, 10_000])))
        path = data.draw(st.sampled_from(sorted(disk.files)))
        position = data.draw(st.integers(0, len(disk.files[path]) - 1))
        disk.files[path][position] ^= data.draw(st.integers(1, 255))
        with pytest.raises(WalCorruptionError):
            await recovered(disk)

    asyncio.run(main())


async def test_a_complete_segment_that_is_cut_short_is_corruption_and_left_as_it_is():
    disk = await written([entry(1, i) for i in range(1, 9)], segment_bytes=120)
    first = min(disk.files)
    del disk.files[first][-1]
    left = bytes(disk.files[first])

    with pytest.raises(WalCorruptionError):
        await recovered(disk)
    assert disk.files[first] == left


async def test_a_missing_segment_is_corruption():
    disk = await written([entry(1, i) for i in range(1, 9)], segment_bytes=120)
    del disk.files[sorted(disk.files)[1]]

    with pytest.raises(WalCorruptionError, match="segment is missing"):
        await recovered(disk)


async def test_a_last_segment_with_nothing_in_it_is_removed():
    """KUDU-1551: the node crashed before it wrote the segment's header, or a power cut lost
    everything after the header.
    """
    disk = await written([entry(1, 1)])
    log = Log(disk)
    await log.wal.recover(EMPTY)
    await log.write(OpId(1, 1), entry(1, 2))
    await log.stop()
    first, second = (bytes(disk.files[path]) for path in sorted(disk.files))

    for size in range(len(second)):
        disk.files = {
            "g/wal-0000000001": bytearray(first),
            "g/wal-0000000002": bytearray(second[:size]),
        }
        log = Log(disk)
        assert await log.wal.recover(EMPTY) == [entry(1, 1)]
        assert sorted(disk.files) == ["g/wal-0000000001"]
        await log.write(OpId(1, 1), entry(1, 2))
        await log.stop()
        assert await recovered(disk) == [entry(1, 1), entry(1, 2)]


async def test_entries_that_do_not_continue_the_snapshot_are_left_out():
    disk = await written([entry(1, index) for index in range(1, 8)])

    assert await recovered(disk, OpId(1, 4)) == [entry(1, index) for index in range(5, 8)]
    assert await recovered(disk, OpId(2, 4)) == []
    assert await recovered(disk, OpId(2, 9)) == []


async def test_a_gap_is_accepted_only_below_the_snapshot():
    disk = MemoryDisk()
    log = Log(disk)
    await log.write(EMPTY, entry(1, 1))
    await log.write(OpId(3, 9), entry(3, 10))
    await log.stop()

    assert await recovered(disk, OpId(3, 9)) == [entry(3, 10)]
    with pytest.raises(WalCorruptionError, match="entries are missing"):
        await recovered(disk, OpId(1, 1))


async def test_collected_segments_are_the_oldest_that_the_snapshot_covers():
    disk = MemoryDisk()
    log = Log(disk, segment_bytes=120)
    preceding = EMPTY
    for index in range(1, 20):
        await log.write(preceding, entry(1, index))
        preceding = OpId(1, index)
    before = log.segments

    await log.wal.collect(10)
    await log.stop()

    assert 1 < log.segments < before
    assert await recovered(disk, OpId(1, 10)) == [entry(1, i) for i in range(11, 20)]


async def test_garbage_is_the_part_that_the_next_collection_removes():
    log = Log(MemoryDisk(), segment_bytes=120)
    for index in range(1, 9):
        await log.write(OpId(1, index - 1), entry(1, index))
    for index in range(3, 12):  # later entries overwrite entries at the end of the first segments
        await log.write(OpId(1, index - 1), entry(2, index))
    for base in range(12):
        garbage = log.wal.counters(base)["garbage segments"]
        before = log.segments
        await log.wal.collect(base)
        assert before - log.segments == garbage
    assert log.segments == 1
    await log.stop()


async def test_a_reset_leaves_nothing_and_the_log_goes_on():
    disk = MemoryDisk()
    log = Log(disk)
    await log.write(EMPTY, entry(1, 1))
    log.put(OpId(1, 1), entry(1, 2))
    await log.wal.reset()
    log.sequence = log.durable
    await log.write(OpId(4, 8), entry(4, 9))
    await log.stop()

    assert await recovered(disk, OpId(4, 8)) == [entry(4, 9)]


def test_random_logs_come_back():
    async def main(rng: random.Random) -> None:
        disk = MemoryDisk()
        expected: list[Entry] = []
        term = 1
        for _ in range(6):  # six restarts of the log
            log = Log(disk, segment_bytes=rng.choice([80, 300, 5000]))
            assert await log.wal.recover(EMPTY) == expected
            for _ in range(rng.randrange(6)):
                term += rng.randrange(2)
                keep = rng.randint(max(0, len(expected) - 2), len(expected))
                del expected[keep:]
                preceding = OpId(expected[-1].term, keep) if expected else EMPTY
                fresh = [entry(term, keep + 1 + n) for n in range(rng.randint(1, 4))]
                expected += fresh
                log.put(preceding, *fresh)
                if rng.random() < 0.7:
                    await log.flush()
            await log.flush()
            await log.stop()
        assert await recovered(disk) == expected

    for seed in range(20):
        asyncio.run(main(random.Random(seed)))


async def test_vote_state_and_snapshots_come_back_or_are_refused():
    state = cmeta.VoteState(7, "u1", RaftConfig(-1, ()))
    snapshot = cmeta.Snapshot(OpId(3, 9), RaftConfig(-1, ()), b"d", b"state")

    disk = MemoryDisk()
    assert await cmeta.load(disk, "g/cmeta", cmeta.VoteState) is None
    await cmeta.save(disk, "g/cmeta", state)
    await cmeta.save(disk, "g/snapshot", snapshot)

    assert await cmeta.load(disk, "g/cmeta", cmeta.VoteState) == state
    assert await cmeta.load(disk, "g/snapshot", cmeta.Snapshot) == snapshot
    with pytest.raises(DamagedFileError, match="checksum"):
        await cmeta.load(disk, "g/cmeta", cmeta.Snapshot)
    for position in range(len(disk.files["g/cmeta"])):
        disk.files["g/cmeta"][position] ^= 1
        with pytest.raises(DamagedFileError):
            await cmeta.load(disk, "g/cmeta", cmeta.VoteState)
        disk.files["g/cmeta"][position] ^= 1
