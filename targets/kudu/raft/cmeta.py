"""What a replica keeps beside its log: vote state (Kudu's `consensus-metadata`) and snapshots.

Both are whole files, replaced atomically and durably (`targets.kudu.checked_file`). The pending
configuration is not here: it lives in the log and is active from its append, so an abort
has nothing to undo on disk (KUDU-1735).
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from harness.env import Disk
from targets.kudu import checked_file
from targets.kudu.messages import RaftConfig
from targets.kudu.raft.messages import OpId

__all__ = ["Snapshot", "VoteState", "load", "save"]

_encode = msgspec.msgpack.Encoder().encode


class VoteState(msgspec.Struct, frozen=True, array_like=True):
    """Term, vote and committed configuration: what a replica must never forget."""

    current_term: int
    voted_for: str | None
    committed_config: RaftConfig


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state machine as of `last_included`; `digest` is of all entries applied so far."""

    last_included: OpId
    config: RaftConfig
    digest: bytes
    data: bytes


Content = TypeVar("Content", VoteState, Snapshot)

_MAGIC: Final[dict[type, bytes]] = {VoteState: b"KCMETA01", Snapshot: b"KSNAP001"}


async def save(disk: Disk, path: str, content: VoteState | Snapshot) -> None:
    """Replace the file, durably."""
    await checked_file.write(disk, path, _MAGIC[type(content)], _encode(content))


async def load(disk: Disk, path: str, content_type: type[Content]) -> Content | None:
    """The content of the file; None when there is none. Raises `DamagedFileError`."""
    try:
        body = await checked_file.read(disk, path, _MAGIC[content_type])
    except FileNotFoundError:
        return None
    return msgspec.msgpack.decode(body, type=content_type)
