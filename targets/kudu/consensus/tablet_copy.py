"""Snapshots of a replica's state machine: when they are taken, and how they replace a log.

A machine that would have to write too much each time keeps its state in files of its own
(`machine.SnapshotFiles`); then the snapshot on disk holds a manifest of them.

Taking one and installing a leader's exclude each other, so that the newer one stays on disk. A
crash at any point leaves a start that works: the snapshot is replaced atomically, after the files
it names are durable, and before files that only its predecessor names and the log behind it go.
The rest of a log that does not continue it is left out by the recovery.
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
    """The snapshot of one replica; `index` is where the one on disk ends."""

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
        """Due after `every` entries, or when the log in memory is over `log_bytes_max`."""
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
        """Start from the snapshot that was found on disk."""
        self.index = snapshot.last_included.index
        await self._wal.collect(self.index)  # a crash came before, right after the save
        await self._applier.restore(await self._whole(snapshot))
        if self._files is not None:
            await self._files.sweep()  # as above

    def begin(self, log: MemoryLog) -> bool:
        """Whether one is due; the caller must then `take` it."""
        entries = self._applier.journal.index - self.index
        due = entries >= self._every or (entries > 0 and log.payload_bytes > self._log_bytes_max)
        if not due or self._running:
            return False
        self._running = True
        return True

    async def take(self, log: MemoryLog) -> int:
        """Save the state machine; returns up to where the log may be forgotten.

        A tail stays, by which slow followers catch up without a whole snapshot.
        """
        async with self._lock:
            if self._applier.journal.index > self.index:  # none was installed meanwhile
                await self._save(self._applier.snapshot(log.configs.committed))
                await self._wal.collect(self.index)
        self._running = False
        kept = 0 if log.payload_bytes > self._log_bytes_max else self._every // 2
        return max(0, self.index - kept)

    async def install(self, effect: ev.InstallSnapshot) -> None:
        """Replace state machine and log by a leader's snapshot."""
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
        """The one on disk, whole."""
        async with self._lock:  # the files that it names must not go meanwhile
            snapshot = await cmeta.load(self._disk, self._path, cmeta.Snapshot)
            return None if snapshot is None else await self._whole(snapshot)

    async def _whole(self, snapshot: cmeta.Snapshot) -> cmeta.Snapshot:
        """With the machine's state in place of a manifest of it."""
        if self._files is None:
            return snapshot
        return msgspec.structs.replace(snapshot, data=await self._files.load(snapshot.data))

    async def _save(self, snapshot: cmeta.Snapshot) -> None:
        """Make it the one on disk."""
        if self._files is not None:
            snapshot = msgspec.structs.replace(snapshot, data=await self._files.save(snapshot.data))
        await cmeta.save(self._disk, self._path, snapshot)
        self.index = snapshot.last_included.index
        if self._files is not None:
            await self._files.sweep()
