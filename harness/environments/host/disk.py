"""A node's disk: real files under one folder.

An append goes to the page cache. A kill of the process does not lose it, but a power cut may.
`sync` calls fsync in a worker thread, so a slow disk delays the caller and not the node's event
loop. Creating or renaming a file is durable only once its folder is synced as well: see fsync(2)
and "All File Systems Are Not Created Equal" (Pillai et al., OSDI 2014).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from harness.environments.host.power import SUFFIX, SyncedLength, beside

_SYNC_THREADS_MAX = 4
_ASIDE_SUFFIX = ".harness-aside"  # a new file has this suffix until it replaces the old one
_OURS = (_ASIDE_SUFFIX, SUFFIX)  # `RealDisk.list` hides files with these suffixes


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class _Worker:
    """A small pool of threads for syncs. A sync continues when its caller is cancelled."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_SYNC_THREADS_MAX, thread_name_prefix="disk")

    async def run(self, work: Callable[[], None], finished: Callable[[], None]) -> None:
        """Run `work` in a thread. `finished` runs on the event loop when `work` has ended."""
        inner = asyncio.get_running_loop().run_in_executor(self._pool, work)
        inner.add_done_callback(lambda _: finished())
        await asyncio.shield(inner)

    async def whole(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread. A cancelled caller still waits until `work` has ended."""
        inner = asyncio.get_running_loop().run_in_executor(self._pool, work)
        cancelled: asyncio.CancelledError | None = None
        while not inner.done():
            try:
                await asyncio.wait({inner})
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            inner.exception()  # keeps asyncio from logging the error
            raise cancelled
        inner.result()

    def close(self) -> None:
        self._pool.shutdown(wait=True)


class RealFile:
    """An append-only file of a node's disk (`harness.env.File`)."""

    def __init__(
        self, path: Path, worker: _Worker, unsynced_folders: list[Path], length: SyncedLength
    ) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o644)
        self._path = path
        self._length = length
        self._worker = worker
        self._unsynced_folders = unsynced_folders
        self._syncs = 0
        self._closed = False

    def _open_descriptor(self) -> int:
        if self._closed:
            raise ValueError(f"{self._path.name} is closed")
        return self._descriptor

    async def read(self, offset: int, size: int) -> bytes:
        descriptor = self._open_descriptor()
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(descriptor, size, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)

    async def append(self, data: bytes) -> int:
        descriptor = self._open_descriptor()
        offset = os.fstat(descriptor).st_size
        _write_all(descriptor, data)
        return offset

    async def sync(self) -> None:
        """Sync the file. If the file is new, also sync the folders with new entries."""
        descriptor = self._open_descriptor()
        folders = list(self._unsynced_folders)

        def work() -> None:
            size = os.fstat(descriptor).st_size
            os.fsync(descriptor)
            for folder in folders:
                _sync_folder(folder)
            self._length.synced(size)

        self._syncs += 1
        await self._worker.run(work, self._sync_finished)
        self._unsynced_folders = self._unsynced_folders[len(folders) :]

    def _sync_finished(self) -> None:
        self._syncs -= 1
        self._close_if_idle()

    async def truncate(self, size: int) -> None:
        os.ftruncate(self._open_descriptor(), size)
        self._length.truncated(size)

    def size(self) -> int:
        return os.fstat(self._open_descriptor()).st_size

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._closed and self._syncs == 0 and self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class RealDisk:
    """A disk backed by one node's folder (`harness.env.Disk`)."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._root.mkdir(parents=True, exist_ok=True)
        self._worker = _Worker()
        self._lengths: dict[Path, SyncedLength] = {}

    def _resolve(self, path: str) -> Path:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\0" in path:
            raise ValueError(f"the path {path!r} must be relative and stay inside the node's disk")
        return self._root.joinpath(*parts)

    def _make_folders(self, path: Path) -> list[Path]:
        """Create the folders of `path`. Returns the folders to sync so that `path` is durable."""
        created = [path.parent]
        folder = path.parent
        while not folder.exists():
            folder = folder.parent
            created.append(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        return created

    async def open(self, path: str) -> RealFile:
        real = self._resolve(path)
        new = not real.exists()
        unsynced = self._make_folders(real) if new else []
        if new or real not in self._lengths:
            self._lengths[real] = SyncedLength(real, new=new)
        return RealFile(real, self._worker, unsynced, self._lengths[real])

    def _forget_length(self, real: Path) -> None:
        """Delete the recorded length of a file that is being replaced or removed.

        Call this before the change, since the old length would truncate the new file, which is
        durable. Call it again after the change, since another task may have opened the old file in
        between.
        """
        length = self._lengths.pop(real, None)
        if length is not None:
            length.end()
        beside(real).unlink(missing_ok=True)

    async def read(self, path: str) -> bytes:
        return self._resolve(path).read_bytes()

    async def replace(self, path: str, data: bytes) -> None:
        """Write and sync a temporary file, rename it to `path`, and sync the folder."""
        real = self._resolve(path)
        folders = self._make_folders(real)
        aside = real.with_name(real.name + _ASIDE_SUFFIX)

        def work() -> None:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._forget_length(real)
            aside.replace(real)
            self._forget_length(real)
            for folder in folders:
                _sync_folder(folder)

        await self._worker.whole(work)

    async def list(self, prefix: str = "") -> list[str]:
        paths = (
            (Path(folder) / file).relative_to(self._root).as_posix()
            for folder, _, files in os.walk(self._root)
            for file in files
            if not file.endswith(_OURS)
        )
        return sorted(path for path in paths if path.startswith(prefix))

    async def remove(self, path: str) -> None:
        real = self._resolve(path)
        if not real.exists():
            return
        self._forget_length(real)
        real.unlink()
        self._forget_length(real)
        await self._worker.whole(lambda: _sync_folder(real.parent))

    def close(self) -> None:
        self._worker.close()
