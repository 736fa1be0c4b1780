"""Takes, installs and loads the snapshots of a replica's state machine.

If a state machine is too large to write whole, its state is in separate files
(`applier.SnapshotFiles`). The snapshot on disk then holds a manifest, which names these files.

A replica can start after a crash at any point, because the steps have an order. First, the files
that the new snapshot names become durable. Then the new snapshot replaces the old one atomically.
Finally, the covered log and the files of the old snapshot are removed. Recovery ignores log entries
that do not continue the snapshot. `take` and `install` exclude each other, so that the newer
snapshot remains on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from harness.env import Disk
from targets.kudu.consensus import consensus_meta as cmeta
from targets.kudu.consensus import events as ev
from targets.kudu.consensus.applier import Applier, SnapshotFiles
from targets.kudu.consensus.log import Wal
from targets.kudu.consensus.log_cache import MemoryLog


class Snapshots:
    """The snapshots of one replica; `index` is the last index that the snapshot on disk covers."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        wal: Wal,
        applier: Applier,
        *,
        every: int,
        log_bytes_max: int,
        announce: Callable[[str], None],
        files: SnapshotFiles | None = None,
    ) -> None:
        """Make a snapshot due after `every` entries or `log_bytes_max` bytes of log in memory.

        `announce` publishes the steps of a snapshot as events at which faults may strike.
        """
        self._announce = announce
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
        await self._wal.collect(self.index)  # A crash after a save may have left old segments.
        await self._applier.restore(await self._whole(snapshot))
        if self._files is not None:
            await self._files.sweep()  # A crash after a save may have left old files.

    def begin(self, log: MemoryLog) -> bool:
        """Return whether to take a snapshot now; if True, the caller must call `take`."""
        entries = self._applier.journal.index - self.index
        due = entries >= self._every or (entries > 0 and log.payload_bytes > self._log_bytes_max)
        if not due or self._running:
            return False
        self._running = True
        return True

    async def take(self, log: MemoryLog) -> int:
        """Save a snapshot; return the index up to which the log in memory may be dropped.

        Unless the log is too large, the newest entries stay, so that slow followers need no
        snapshot.
        """
        async with self._lock:
            # Skip the save if a newer snapshot was installed while this task waited for the lock.
            if self._applier.journal.index > self.index:
                await self._save(self._applier.snapshot(log.configs.committed))
                self._announce("snapshot-saved")
                await self._wal.collect(self.index)
        self._running = False
        kept = 0 if log.payload_bytes > self._log_bytes_max else self._every // 2
        return max(0, self.index - kept)

    async def install(self, effect: ev.InstallSnapshot) -> None:
        """Replace the state machine and the log with a leader's snapshot."""
        async with self._lock:
            snapshot = cmeta.Snapshot(
                effect.last_included, effect.config, effect.digest, effect.data
            )
            self._announce("snapshot-received")
            await self._save(snapshot)
            self._announce("snapshot-installed")
            if effect.keep_log:
                await self._wal.collect(effect.last_included.index)
            else:
                await self._wal.reset()
            await self._applier.restore(snapshot)

    async def load(self) -> cmeta.Snapshot | None:
        async with self._lock:  # keep `sweep` from removing the files that the snapshot names
            snapshot = await cmeta.load(self._disk, self._path, cmeta.Snapshot)
            return None if snapshot is None else await self._whole(snapshot)

    async def _whole(self, snapshot: cmeta.Snapshot) -> cmeta.Snapshot:
        if self._files is None:
            return snapshot
        return msgspec.structs.replace(snapshot, data=await self._files.load(snapshot.data))

    async def _save(self, snapshot: cmeta.Snapshot) -> None:
        if self._files is not None:
            snapshot = msgspec.structs.replace(snapshot, data=await self._files.save(snapshot.data))
            self._announce("row-files-written")
        await cmeta.save(self._disk, self._path, snapshot)
        self.index = snapshot.last_included.index
        if self._files is not None:
            await self._files.sweep()
