"""Snapshots of a replica's state machine: when they are taken, and how they replace a log.

Taking one and installing a leader's exclude each other, so that the newer one stays on disk. A
crash at any point leaves a start that works: the snapshot is replaced atomically before the log
behind it goes, and what is left of a log that does not continue it is left out by the recovery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from harness.env import Disk
from targets.kudu.raft import cmeta
from targets.kudu.raft import events as ev
from targets.kudu.raft.checkpoints import Checkpoints
from targets.kudu.raft.core import RaftCore
from targets.kudu.raft.journal import Journal
from targets.kudu.raft.machine import StateMachine
from targets.kudu.raft.messages import OpId
from targets.kudu.raft.recovery import snapshot_path
from targets.kudu.raft.wal import Wal

__all__ = ["Snapshots"]


class Snapshots:
    """The snapshot of one replica; `index` is where the one on disk ends."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        wal: Wal,
        machine: StateMachine,
        checkpoints: Checkpoints,
        *,
        every: int,
        log_bytes_max: int,
    ) -> None:
        """Due after `every` entries, or when the log in memory is over `log_bytes_max`."""
        self._disk = disk
        self._path = snapshot_path(folder)
        self._wal = wal
        self._machine = machine
        self._checkpoints = checkpoints
        self._every = every
        self._log_bytes_max = log_bytes_max
        self._lock = asyncio.Lock()
        self._running = False
        self.index = 0

    def begin(self, core: RaftCore, journal: Journal) -> bool:
        """Whether one is due; the caller must then `take` it."""
        entries = journal.index - self.index
        due = entries >= self._every or (
            entries > 0 and core.log.payload_bytes > self._log_bytes_max
        )
        if not due or self._running:
            return False
        self._running = True
        return True

    async def take(self, core: RaftCore, journal_now: Callable[[], Journal]) -> int:
        """Save the state machine; returns up to where the log may be forgotten.

        A tail stays, by which slow followers catch up without a whole snapshot.
        """
        async with self._lock:
            journal = journal_now()
            if journal.index > self.index:  # none was installed meanwhile
                last_included = OpId(journal.term, journal.index)
                config = core.configs.committed
                data = self._machine.snapshot()
                self._checkpoints.held(journal, data)
                snapshot = cmeta.Snapshot(last_included, config, journal.digest, data)
                await cmeta.save(self._disk, self._path, snapshot)
                self.index = last_included.index
                await self._wal.collect(self.index)
        self._running = False
        kept = 0 if core.log.payload_bytes > self._log_bytes_max else self._every // 2
        return max(0, self.index - kept)

    async def install(self, effect: ev.InstallSnapshot) -> Journal:
        """Replace state machine and log by a leader's snapshot; returns the journal to go on."""
        async with self._lock:
            last_included = effect.last_included
            snapshot = cmeta.Snapshot(last_included, effect.config, effect.digest, effect.data)
            await cmeta.save(self._disk, self._path, snapshot)
            if effect.keep_log:
                await self._wal.collect(last_included.index)
            else:
                await self._wal.reset()
            self._machine.restore(effect.data, last_included.index)
            self.index = last_included.index
            journal = Journal(last_included, effect.digest)
            self._checkpoints.held(journal, self._machine.snapshot())
            return journal

    async def load(self) -> cmeta.Snapshot | None:
        """The one on disk."""
        return await cmeta.load(self._disk, self._path, cmeta.Snapshot)
