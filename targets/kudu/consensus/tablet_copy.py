"""Snapshots of a replica's state machine: taking them, and installing them in place of a log.

A machine whose snapshots would be too large keeps its state in files of its own
(`applier.SnapshotFiles`); the snapshot on disk then holds a manifest of them.

Taking a snapshot and installing a leader's exclude each other, so that the newer one stays on disk.
A replica can start after a crash at any point. The snapshot is replaced atomically: after the files
that it names are durable, and before the log behind it and the files that only the previous
snapshot names are removed. Recovery leaves out remains of a log that do not continue the snapshot.
"""

from __future__ import annotations

import asyncio

import msgspec

from harness.env import Disk
from targets.kudu.consensus import consensus_meta as cmeta
from targets.kudu.consensus import events as ev
from targets.kudu.consensus.applier import Applier, SnapshotFiles
from targets.kudu.consensus.log import Wal
from targets.kudu.consensus.log_cache import MemoryLog


class Snapshots:
    """The snapshot of one replica; `index` is the last index that the one on disk covers."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        wal: Wal,
        applier: Applier,
        *,
        every: int,
        log_bytes_max: int,
        files: SnapshotFiles | None = None,
    ) -> None:
        """A snapshot is due after `every` entries or `log_bytes_max` of log in memory."""
        self._disk = disk
        self._path = cmeta.snapshot_path(folder)
        self._wal = wal
        self._applier = applier
        self._every = every
        self._log_bytes_max = log_bytes_max
        self._files = files
        self._lock = asyncio.Lock()
        self._running = False
        self.index = 0

    async def resume(self, snapshot: cmeta.Snapshot) -> None:
        self.index = snapshot.last_included.index
        await self._wal.collect(self.index)  # needed if a crash came right after the save
        await self._applier.restore(await self._whole(snapshot))
        if self._files is not None:
            await self._files.sweep()  # as above

    def begin(self, log: MemoryLog) -> bool:
        """Whether a snapshot is due; the caller must then `take` it."""
        entries = self._applier.journal.index - self.index
        due = entries >= self._every or (entries > 0 and log.payload_bytes > self._log_bytes_max)
        if not due or self._running:
            return False
        self._running = True
        return True

    async def take(self, log: MemoryLog) -> int:
        """Save the state machine; return the index up to which the log may be forgotten.

        A tail of the log stays, so that slow followers can catch up without a whole snapshot.
        """
        async with self._lock:
            # no newer snapshot was installed meanwhile
            if self._applier.journal.index > self.index:
                await self._save(self._applier.snapshot(log.configs.committed))
                await self._wal.collect(self.index)
        self._running = False
        kept = 0 if log.payload_bytes > self._log_bytes_max else self._every // 2
        return max(0, self.index - kept)

    async def install(self, effect: ev.InstallSnapshot) -> None:
        """Replace the state machine and the log by a leader's snapshot."""
        async with self._lock:
            snapshot = cmeta.Snapshot(
                effect.last_included, effect.config, effect.digest, effect.data
            )
            await self._save(snapshot)
            if effect.keep_log:
                await self._wal.collect(effect.last_included.index)
            else:
                await self._wal.reset()
            await self._applier.restore(snapshot)

    async def load(self) -> cmeta.Snapshot | None:
        async with self._lock:  # the files that the snapshot names must not be removed meanwhile
            snapshot = await cmeta.load(self._disk, self._path, cmeta.Snapshot)
            return None if snapshot is None else await self._whole(snapshot)

    async def _whole(self, snapshot: cmeta.Snapshot) -> cmeta.Snapshot:
        """The snapshot with the machine's state in place of its manifest."""
        if self._files is None:
            return snapshot
        return msgspec.structs.replace(snapshot, data=await self._files.load(snapshot.data))

    async def _save(self, snapshot: cmeta.Snapshot) -> None:
        if self._files is not None:
            snapshot = msgspec.structs.replace(snapshot, data=await self._files.save(snapshot.data))
        await cmeta.save(self._disk, self._path, snapshot)
        self.index = snapshot.last_included.index
        if self._files is not None:
            await self._files.sweep()
