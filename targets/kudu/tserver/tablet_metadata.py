"""The metadata of one replica on disk: Kudu's tablet superblock (`tablet/metadata.proto`).

The file `tablets/<id>/superblock` is replaced atomically. It has the parameters with which the
replica was created; later schemas are in the log and its snapshots. The tablet's Raft group has its
own files in `tablets/<id>/raft`. The superblock is written before the group's first file and
removed after the last one, so that the next start can finish a creation or deletion that a crash
interrupted.
"""

from __future__ import annotations

from typing import Final

import msgspec

from harness.env import Disk
from targets import checked_file
from targets.kudu.messages import Partition, PartitionSchema, RaftConfig, Schema

COPYING: Final = "COPYING"
READY: Final = "READY"
DELETED: Final = "DELETED"
TOMBSTONED: Final = "TOMBSTONED"
_FOLDER: Final = "tablets/"
_NAME: Final = "/superblock"
_MAGIC: Final = b"KSUPER01"
_VERSION: Final = 1


class Superblock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The creation parameters of a replica, and the state of its data (`data_state`)."""

    version: int = _VERSION
    tablet_id: str
    table_id: str
    table_name: str
    partition: Partition
    schema: Schema
    schema_version: int
    initial_config: RaftConfig
    data_state: str = READY
    partition_schema: PartitionSchema | None = None
    # The index of the committed configuration when the replica was tombstoned.
    tombstone_config_index: int = -1
    # A copy is complete once it has committed the configuration with this index (`initial_config`).
    copied_at: int = -1


class SuperblockStore:
    """The superblocks of a tablet server on disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    @staticmethod
    def raft_folder(tablet_id: str) -> str:
        return f"{_FOLDER}{tablet_id}/raft"

    async def load_all(self) -> list[Superblock]:
        """Return all superblocks. Raises `DamagedFileError`; the node must then not serve."""
        tablet_ids = []
        for path in await self._disk.list(_FOLDER):
            if path.endswith(_NAME):
                body = await checked_file.read(self._disk, path, _MAGIC)
                tablet_ids.append(msgspec.json.decode(body, type=Superblock))
        return tablet_ids

    async def write(self, superblock: Superblock) -> None:
        path = f"{_FOLDER}{superblock.tablet_id}{_NAME}"
        await checked_file.write(self._disk, path, _MAGIC, msgspec.json.encode(superblock))

    async def remove(self, tablet_id: str) -> None:
        """Remove the superblock of a deleted tablet, after all other files of the tablet."""
        await self._disk.remove(f"{_FOLDER}{tablet_id}{_NAME}")
