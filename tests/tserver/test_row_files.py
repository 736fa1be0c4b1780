"""Row files restore the exact state after a crash at any step, in a bounded amount of space."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from targets.kudu.tserver import rowset as _row_files
from targets.kudu.tserver.rowset import RowFiles
from targets.kudu.tserver.tablet import TabletMachine
from tests.support.env import FakeDisk
from tests.tserver.test_row_machine import Log, machine, row, write

HEAD = "manifest"


class Store:
    """A tablet whose snapshots are written to a disk, as in `tablet_copy.py`."""

    def __init__(self, disk: FakeDisk) -> None:
        self.disk = disk
        self.log = Log(machine(tablet_history_max_kb=16))
        self.files = self._files()

    def _files(self) -> RowFiles:
        return RowFiles(self.disk, "x/raft", lambda: b"")

    @property
    def tablet(self) -> TabletMachine:
        return self.log.tablet

    async def save(self) -> None:
        manifest = await self.files.save(self.tablet.snapshot())
        await self.disk.replace(HEAD, manifest)
        await self.files.sweep()

    async def reopen(self) -> None:
        """Start from the last manifest, and remove leftovers of a crash."""
        self.files = self._files()
        self.log = Log(machine(tablet_history_max_kb=16))
        if HEAD in self.disk.files:
            await self.tablet.restore(await self.files.load(self.disk.files[HEAD]), 0)
            await self.files.sweep()


def contents(tablet: TabletMachine) -> tuple[bytes, list[tuple[bytes, bytes]], int]:
    return tablet.digest(), tablet.rows.records(), tablet.rows.history_start


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(["UPSERT", "DELETE"]), st.integers(0, 9)), max_size=4),
        st.integers(1, 3000),  # size of each value in bytes
        st.none() | st.integers(0, 8),  # the disk operation at which power fails
    ),
    max_size=12,
)


@given(STEPS)
def test_a_crash_at_any_step_leaves_the_last_snapshot_or_the_new_one(steps):
    async def scenario() -> None:
        disk = FakeDisk()
        store = Store(disk)
        before = contents(store.tablet)
        for number, (rows, size, fail_after) in enumerate(steps):
            made = [
                row(kind, str(k), a="v" * size if kind == "UPSERT" else None) for kind, k in rows
            ]
            if made:
                store.log(write(store.tablet.last_timestamp + 1, *made, number=number))
            after = contents(store.tablet)
            disk.fail_after = fail_after
            try:
                await store.save()
            except OSError:
                disk.fail_after = None
                await store.reopen()
                assert contents(store.tablet) in (before, after)
            disk.fail_after = None
            before = contents(store.tablet)
            named = len(store.files._files)
            rows_on_disk = [path for path in disk.files if "/rows-" in path]
            if HEAD in disk.files and fail_after is None:
                assert named == len(rows_on_disk)
        await store.save()
        last = contents(store.tablet)
        await store.reopen()
        assert last == contents(store.tablet)

    asyncio.run(scenario())


async def test_files_are_few_and_space_is_bounded(monkeypatch):
    monkeypatch.setattr(_row_files, "FILE_BYTES_MAX", 100_000)

    disk = FakeDisk()
    store = Store(disk)
    written = 0
    for number in range(1, 1500):
        keys = [(number * 7 + k * 31) % 400 for k in range(3)]
        store.log(write(number, *(row("UPSERT", str(k), a="v" * 500) for k in keys)))
        await store.save()
        written += 3 * 500
        counters = store.files.counters
        on_disk = [len(data) for path, data in disk.files.items() if "/rows-" in path]
        assert counters["row files"] == len(on_disk)
        alive = store.tablet.rows.version_bytes
        assert sum(on_disk) <= 2 * alive + 256 * 1024 + 1024 * len(on_disk)
        assert len(on_disk) <= 2 * sum(on_disk) / 100_000 + 10
    assert written > 5 * alive  # so dead versions were removed
    last = contents(store.tablet)
    await store.reopen()
    assert last == contents(store.tablet)


async def test_a_sent_tablet_is_whole_and_replaces_another():
    source, target = Store(FakeDisk()), Store(FakeDisk())
    for number in range(1, 20):
        source.log(write(number, row("UPSERT", str(number), a="s")))
        await source.save()
        target.log(write(number, row("UPSERT", str(-number), a="t")))
        await target.save()
    sent = await source.files.load(source.disk.files[HEAD])
    manifest = await target.files.save(sent)
    await target.disk.replace(HEAD, manifest)
    await target.files.sweep()
    await target.tablet.restore(sent, 19)
    assert contents(source.tablet) == contents(target.tablet)
    target.log(write(99, row("UPSERT", "more", a="t")))
    await target.save()
    last = contents(target.tablet)
    await target.reopen()
    assert last == contents(target.tablet)


async def test_a_damaged_file_is_noticed():
    store = Store(FakeDisk())
    store.log(write(1, row("UPSERT", "x", a="v")))
    await store.save()
    (path,) = [path for path in store.disk.files if "/rows-" in path]
    damaged = bytearray(store.disk.files[path])
    damaged[-1] ^= 1
    store.disk.files[path] = bytes(damaged)
    with pytest.raises(_row_files.checked_file.DamagedFileError):
        await store.reopen()
