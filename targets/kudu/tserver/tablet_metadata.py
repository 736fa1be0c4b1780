"""The metadata of one replica on disk: Kudu's tablet superblock (`tablet/metadata.proto`).

`tablets/<id>/superblock` is replaced atomically; the Raft group of the tablet keeps its own files
under `tablets/<id>/raft`. The superblock holds what the replica was created with; later schemas
are in the log and its snapshots. It is written before the group's first file and removed after
its last, so that a crash in between leaves something that start-up can finish.
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
    """A replica as it was created, and whether its data are still there."""

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
    tombstone_config_index: int = -1  # the committed configuration when it was tombstoned
    copied_at: int = -1  # a copy is complete once it has committed this, as its source had before


class SuperblockStore:
    """All superblocks of a tablet server."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    @staticmethod
    def raft_folder(tablet_id: str) -> str:
        return f"{_FOLDER}{tablet_id}/raft"

    async def load_all(self) -> list[Superblock]:
        """Every superblock, by tablet id.

        Raises `DamagedFileError`: the disk lies, and the node must not serve.
        """
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
        """Forget one; the last file of a deleted tablet."""
        await self._disk.remove(f"{_FOLDER}{tablet_id}{_NAME}")
