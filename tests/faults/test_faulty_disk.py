"""A disk that fails on command, on top of a disk that never fails."""

import errno
import random
import time

import pytest

from harness.cluster import DiskQuality
from harness.environments.faulty import DiskTrouble, FaultyDisk
from harness.environments.host.disk import RealDisk

REQUESTS = {
    "open": (lambda disk, file: disk.open("b"), False),
    "read": (lambda disk, file: disk.read("a"), False),
    "replace": (lambda disk, file: disk.replace("c", b"x"), True),
    "list": (lambda disk, file: disk.list(), False),
    "remove": (lambda disk, file: disk.remove("a"), False),
    "file read": (lambda disk, file: file.read(0, 1), False),
    "append": (lambda disk, file: file.append(b"x"), True),
    "sync": (lambda disk, file: file.sync(), False),
    "truncate": (lambda disk, file: file.truncate(1), False),
}


async def faulty(folder):
    trouble = DiskTrouble(random.Random(1), "1/n")
    disk = FaultyDisk(RealDisk(folder), trouble)
    file = await disk.open("a")
    await file.append(b"data")
    return disk, file, trouble


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize(
    ("quality", "number"),
    [(DiskQuality(error=1.0), errno.EIO), (DiskQuality(full=True), errno.ENOSPC)],
)
async def test_failed_requests_have_no_effect_and_succeed_after_the_heal(
    tmp_path, name, quality, number
):
    request, writes = REQUESTS[name]
    disk, file, trouble = await faulty(tmp_path)
    trouble.set(quality)
    if number == errno.EIO or writes:
        with pytest.raises(OSError, match=r"device|error") as raised:
            await request(disk, file)
        assert raised.value.errno == number
        assert trouble.set(DiskQuality()) == 1
        assert (await disk.read("a"), file.size()) == (b"data", 4)
        assert await disk.list() == ["a"]
    else:
        assert trouble.set(DiskQuality()) == 0
    await request(disk, file)


async def test_a_share_of_requests_fails(tmp_path):
    disk, _, trouble = await faulty(tmp_path)
    trouble.set(DiskQuality(error=0.3))
    failed = 0
    for _ in range(400):
        try:
            await disk.list()
        except OSError:
            failed += 1
    assert 80 < failed < 160
    assert trouble.set(DiskQuality()) == failed


async def test_a_slow_disk_takes_its_time_but_the_page_cache_does_not(tmp_path):
    _, file, trouble = await faulty(tmp_path)
    trouble.set(DiskQuality(delay_ms=30.0))
    begin = time.monotonic()
    await file.append(b"x")
    assert time.monotonic() - begin < 0.03
    await file.sync()
    assert time.monotonic() - begin >= 0.03
    assert trouble.set(DiskQuality()) == 1


def rotten_bits(label, share, *, path="f", blocks=64):
    """Return the zero bits that are read as ones."""
    trouble = DiskTrouble(random.Random(1), label)
    trouble.set(DiskQuality(bitrot=share))
    read = trouble.rot(path, bytes(blocks * 4096), 0, blocks * 4096)
    return [8 * at + bit for at, byte in enumerate(read) for bit in range(8) if byte >> bit & 1]


def test_a_share_of_blocks_rots_by_one_bit_each_and_by_their_place_alone():
    all_of_them = rotten_bits("1/n", 1.0)
    assert [bit // (8 * 4096) for bit in all_of_them] == list(range(64))
    assert len({bit % (8 * 4096) for bit in all_of_them}) > 60
    some = rotten_bits("1/n", 0.25)
    assert 6 < len(some) < 28
    assert set(some) < set(all_of_them)
    assert some == rotten_bits("1/n", 0.25)
    others = [rotten_bits("2/n", 0.25), rotten_bits("1/n", 0.25, path="g")]
    assert all(other != some for other in others)


async def test_partial_reads_see_the_same_rot_as_full_reads(tmp_path):
    disk, file, trouble = await faulty(tmp_path)
    size = 3 * 4096 + 100
    await file.append(bytes(size - file.size()))
    trouble.set(DiskQuality(bitrot=1.0))
    whole = await disk.read("a")
    felt = 1
    for offset in range(0, size, 50):
        part = await file.read(offset, 70)
        assert part == whole[offset : offset + 70]
        felt += part != (b"data" + bytes(size))[offset : offset + len(part)]
    assert trouble.set(DiskQuality()) == felt
    assert 4 < felt < 10
    assert await disk.read("a") == b"data" + bytes(size - 4)
    assert trouble.touched() == 0


async def test_no_byte_of_an_empty_file_rots(tmp_path):
    disk, file, trouble = await faulty(tmp_path)
    trouble.set(DiskQuality(bitrot=1.0))
    await disk.open("empty")
    assert await disk.read("empty") == b""
    assert await file.read(4, 9) == b""
    assert trouble.touched() == 0
