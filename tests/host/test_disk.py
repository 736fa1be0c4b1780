"""Files in a node's folder are written, replaced and synced."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from harness.environments.host.disk import RealDisk


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a\0b"])
async def test_paths_stay_inside(tmp_path, path):
    disk = RealDisk(tmp_path)
    with pytest.raises(ValueError, match="must be relative"):
        await disk.open(path)
    with pytest.raises(ValueError, match="must be relative"):
        await disk.replace(path, b"")
    disk.close()


@pytest.fixture
def synced(monkeypatch):
    """Return the names of synced files, in order."""
    names: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


async def test_a_new_file_is_synced_with_its_folders_once(tmp_path, synced):
    disk = RealDisk(tmp_path / "disk")
    file = await disk.open("one/two/f")
    await file.append(b"x")
    assert synced == []
    await file.sync()
    assert synced == ["f", "two", "one", "disk"]
    await file.sync()
    assert synced[4:] == ["f"]
    file.close()
    disk.close()


async def test_replace_syncs_before_and_after_the_rename(tmp_path, synced):
    disk = RealDisk(tmp_path / "disk")
    await disk.replace("f", b"x")
    assert synced == ["f.harness-aside", "disk"]
    (tmp_path / "disk" / "g.harness-aside").write_bytes(b"torn by a kill")
    assert await disk.list() == ["f"]
    disk.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_what_replaces_a_file_is_not_overtaken_by_what_comes_after_it(
    tmp_path, monkeypatch, fails
):
    """Otherwise the worker thread could restore a file that has been removed or replaced since."""

    import threading

    began, go = threading.Event(), threading.Event()

    def fsync(descriptor: int) -> None:
        began.set()
        go.wait(5)
        if fails:
            raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    disk = RealDisk(tmp_path)
    task = asyncio.create_task(disk.replace("f", b"new"))
    await asyncio.to_thread(began.wait, 5)
    task.cancel()
    await asyncio.wait([task], timeout=0.05)
    assert not task.done()
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await disk.list() == ([] if fails else ["f"])
    disk.close()


async def test_close_waits_for_a_sync_whose_caller_gave_up(tmp_path, monkeypatch):
    """Otherwise the worker thread might sync a descriptor that belongs to another file by then."""

    import threading

    go, seen = threading.Event(), []

    def fsync(descriptor: int) -> None:
        go.wait(5)
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", fsync)
    disk = RealDisk(tmp_path)
    file = await disk.open("f")
    task = asyncio.create_task(file.sync())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    file.close()
    other = await disk.open("other")
    go.set()
    await other.sync()
    other.close()
    await asyncio.to_thread(disk.close)
    assert sorted(seen) == ["f", "other", tmp_path.name, tmp_path.name]
    with pytest.raises(ValueError, match="closed"):
        await file.append(b"late")
