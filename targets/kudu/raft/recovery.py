"""What a replica finds on its disk when it starts, put together and checked."""

from __future__ import annotations

import dataclasses

from harness.env import Disk
from targets.kudu.checked_file import DamagedFileError
from targets.kudu.messages import RaftConfig
from targets.kudu.raft import cmeta
from targets.kudu.raft.messages import Entry, OpId
from targets.kudu.raft.wal import Wal

__all__ = ["Recovered", "recover", "snapshot_path", "vote_state_path"]


def vote_state_path(folder: str) -> str:
    """Where the vote state is."""
    return f"{folder}/cmeta"


def snapshot_path(folder: str) -> str:
    """Where the snapshot is."""
    return f"{folder}/snapshot"


@dataclasses.dataclass(frozen=True, slots=True)
class Recovered:
    """Everything durable about a replica. `config` is the newest that is known to be committed."""

    vote_state: cmeta.VoteState
    snapshot: cmeta.Snapshot | None
    config: RaftConfig
    base: OpId
    entries: list[Entry]


async def recover(
    disk: Disk, folder: str, wal: Wal, initial_config: RaftConfig | None
) -> Recovered:
    """Read all of it, or make a new replica with `initial_config` in an empty folder.

    Raises `DamagedFileError`, `wal.WalCorruptionError`.
    """
    vote_state = await cmeta.load(disk, vote_state_path(folder), cmeta.VoteState)
    snapshot = await cmeta.load(disk, snapshot_path(folder), cmeta.Snapshot)
    base = OpId(0, 0) if snapshot is None else snapshot.last_included
    entries = await wal.recover(base)
    if vote_state is None:
        if snapshot is not None or entries:
            raise DamagedFileError(
                f"{folder}: there is a log but no vote state: votes may be forgotten"
            )
        if initial_config is None:
            raise DamagedFileError(f"{folder}: empty, and no configuration was given to start with")
        vote_state = cmeta.VoteState(0, None, initial_config)
        await cmeta.save(disk, vote_state_path(folder), vote_state)
    config = vote_state.committed_config
    if snapshot is not None and snapshot.config.opid_index > config.opid_index:
        config = snapshot.config
    return Recovered(vote_state, snapshot, config, base, entries)
