"""What a replica keeps beside its log: vote state (Kudu's `consensus-metadata`) and snapshots.

Both are whole files, replaced atomically and durably, each under a checksum of its own. The
pending configuration is not here: it lives in the log and is active from its append, so an abort
has nothing to undo on disk (KUDU-1735).
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, TypeVar

import msgspec

from harness.env import Disk
from targets.kudu.messages import RaftConfig
from targets.kudu.raft.messages import OpId

__all__ = ["ReplicaDataError", "Snapshot", "VoteState", "load", "save"]

_HEADER: Final = struct.Struct(">8sQI")
_encode = msgspec.msgpack.Encoder().encode


class ReplicaDataError(Exception):
    """A file of a replica is damaged or missing; the replica must not start on it."""


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
    body = _encode(content)
    header = _HEADER.pack(_MAGIC[type(content)], len(body), zlib.crc32(body))
    await disk.replace(path, header + body)


async def load(disk: Disk, path: str, content_type: type[Content]) -> Content | None:
    """The content of the file; None when there is none. Raises `ReplicaDataError`."""
    try:
        data = await disk.read(path)
    except FileNotFoundError:
        return None
    if len(data) < _HEADER.size:
        raise ReplicaDataError(f"{path}: {len(data)} bytes are less than its header")
    magic, size, crc = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != _MAGIC[content_type] or size != len(body) or crc != zlib.crc32(body):
        raise ReplicaDataError(f"{path}: the checksum of {content_type.__name__} is wrong")
    return msgspec.msgpack.decode(body, type=content_type)
