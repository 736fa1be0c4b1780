"""A full disk of the host is noticed and recorded, since it is not the target's fault."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.environments.host import watch as watching
from harness.environments.host.watch import full_disk, watch

FREE = SimpleNamespace(f_bavail=10**6, f_frsize=4096, f_favail=10, f_files=100)


@pytest.mark.parametrize(
    ("more", "full"),
    [
        ({}, False),
        ({"f_bavail": 0}, True),
        ({"f_bavail": 20}, True),
        ({"f_favail": 0}, True),
        ({"f_favail": 0, "f_files": 0}, False),  # a file system without a limit of files
    ],
)
def test_a_disk_without_room_is_full(monkeypatch, more, full):
    monkeypatch.setattr(watching.os, "statvfs", lambda _: SimpleNamespace(**vars(FREE) | more))
    seen = full_disk(Path("/data"))
    assert (seen is not None and seen.full and "/data" in seen.what) is full


def test_a_folder_that_is_gone_is_not_full(tmp_path):
    assert full_disk(tmp_path / "gone") is None


def test_a_full_disk_is_published_until_there_is_room(monkeypatch):
    frees = [FREE, SimpleNamespace(**vars(FREE) | {"f_bavail": 0}), FREE]
    published = []

    async def look():
        if not frees:
            raise asyncio.CancelledError
        free = frees.pop(0)
        monkeypatch.setattr(watching.os, "statvfs", lambda _: free)
        return {"": full_disk(Path("/data"))}

    bus = SimpleNamespace(publish=lambda *event: published.append(event))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch(look, bus, interval_s=0))
    (_, kind, begun), (_, _, ended) = published
    assert kind == "infrastructure"
    assert begun["lasts"]
    assert begun["full"]
    assert ended["over"]
