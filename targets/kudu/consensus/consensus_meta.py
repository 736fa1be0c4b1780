"""A replica's vote state and snapshot on disk, and recovery from these files and the log.

The vote state is Kudu's `consensus-metadata`. Each file is replaced as a whole, atomically and
durably (`targets.checked_file`). A pending configuration is only in the log, so an aborted
configuration change leaves nothing to undo in these files (KUDU-1735).
"""

from __future__ import annotations

import dataclasses
from typing import Final, TypeVar

import msgspec

from harness.env import Disk
from targets import checked_file
from targets.checked_file import DamagedFileError
from targets.kudu.consensus.log import Wal
from targets.kudu.consensus.messages import Entry, OpId
from targets.kudu.messages import RaftConfig

_encode = msgspec.msgpack.Encoder().encode


class VoteState(msgspec.Struct, frozen=True, array_like=True):
    """The term, the vote and the committed configuration, which a replica must never forget.

    When a replica becomes a tombstone, its log is removed, and `last_logged` identifies that log's
    last entry (`tombstoned_voting.py`). Otherwise `last_logged` is `OpId(0, 0)`.
    """

    current_term: int
    voted_for: str | None
    committed_config: RaftConfig
    last_logged: OpId = OpId(0, 0)


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot of the state machine's state (`data`), with the digest of the covered entries."""

    last_included: OpId
    config: RaftConfig
    digest: bytes
    data: bytes


Content = TypeVar("Content", VoteState, Snapshot)

_MAGIC: Final[dict[type, bytes]] = {VoteState: b"KCMETA01", Snapshot: b"KSNAP001"}


async def save(disk: Disk, path: str, content: VoteState | Snapshot) -> None:
    """Replace the file at `path` with `content`, atomically and durably."""
    await checked_file.write(disk, path, _MAGIC[type(content)], _encode(content))


async def load(disk: Disk, path: str, content_type: type[Content]) -> Content | None:
    """Read the file at `path`; return `None` if there is no file. Raises `DamagedFileError`."""
    try:
        body = await checked_file.read(disk, path, _MAGIC[content_type])
    except FileNotFoundError:
        return None
    return msgspec.msgpack.decode(body, type=content_type)


def vote_state_path(folder: str) -> str:
    """Return the path of the vote state's file in a replica's folder."""
    return f"{folder}/cmeta"


def snapshot_path(folder: str) -> str:
    """Return the path of the snapshot's file in a replica's folder."""
    return f"{folder}/snapshot"


@dataclasses.dataclass(frozen=True, slots=True)
class Recovered:
    """All durable state of a replica, read from its folder.

    `config` is the newest configuration known to be committed. `base` is the last entry that the
    snapshot covers, and `entries` is the log after `base`.
    """

    vote_state: VoteState
    snapshot: Snapshot | None
    config: RaftConfig
    base: OpId
    entries: list[Entry]


async def recover(
    disk: Disk, folder: str, wal: Wal, initial_config: RaftConfig | None
) -> Recovered:
    """Read a replica's durable state; in an empty folder, create a replica with `initial_config`.

    Raises `DamagedFileError`, `WalCorruptionError`.
    """
    vote_state = await load(disk, vote_state_path(folder), VoteState)
    snapshot = await load(disk, snapshot_path(folder), Snapshot)
    base = OpId(0, 0) if snapshot is None else snapshot.last_included
    entries = await wal.recover(base)
    if vote_state is None:
        if snapshot is not None or entries:
            raise DamagedFileError(
                f"{folder} has a log but no vote state, so the replica may have forgotten a vote"
            )
        if initial_config is None:
            raise DamagedFileError(f"{folder} is empty, and there is no initial configuration")
        vote_state = VoteState(0, None, initial_config)
        await save(disk, vote_state_path(folder), vote_state)
    config = vote_state.committed_config
    if snapshot is not None and snapshot.config.opid_index > config.opid_index:
        config = snapshot.config
    return Recovered(vote_state, snapshot, config, base, entries)
