"""A disk that fails when it is told to, over one that never does."""

import asyncio
import errno
import random
import time

import pytest

from harness.cluster import DiskQuality
from harness.environments.faulty import DiskTrouble, FaultyDisk
from harness.environments.real.disk import RealDisk

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


def go(folder, body):
    async def main():
        trouble = DiskTrouble(random.Random(1))
        disk = FaultyDisk(RealDisk(folder), trouble)
        file = await disk.open("a")
        await file.append(b"data")
        return await body(disk, file, trouble)

    return asyncio.run(main())


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize(
    ("quality", "number"),
    [(DiskQuality(error=1.0), errno.EIO), (DiskQuality(full=True), errno.ENOSPC)],
)
def test_what_fails_has_no_effect_and_works_again_when_the_disk_is_well(
    tmp_path, name, quality, number
):
    request, writes = REQUESTS[name]

    async def body(disk, file, trouble):
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

    go(tmp_path, body)


def test_a_share_of_requests_fails(tmp_path):
    async def body(disk, file, trouble):
        trouble.set(DiskQuality(error=0.3))
        failed = 0
        for _ in range(400):
            try:
                await disk.list()
            except OSError:
                failed += 1
        assert 80 < failed < 160
        assert trouble.set(DiskQuality()) == failed

    go(tmp_path, body)


def test_a_slow_disk_takes_its_time_but_the_page_cache_does_not(tmp_path):
    async def body(disk, file, trouble):
        trouble.set(DiskQuality(delay_ms=30.0))
        begin = time.monotonic()
        await file.append(b"x")
        assert time.monotonic() - begin < 0.03
        await file.sync()
        assert time.monotonic() - begin >= 0.03
        assert trouble.set(DiskQuality()) == 1

    go(tmp_path, body)
