"""Small files that are replaced as a whole, each with its own checksum.

A node stores all data except its logs in such files. Their format resembles the protobuf containers
of Kudu's instance, consensus metadata and superblock (`util/pb_util.h`): a magic number, the length
of the content, and a checksum. A node that reads a damaged file exits, because it must not serve
from that file.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from harness.env import Disk
from harness.errors import TargetError

_HEADER: Final = struct.Struct(">8sQI")


class DamagedFileError(TargetError):
    """A node's file is damaged or missing, so no component may start from it."""


async def write(disk: Disk, path: str, magic: bytes, body: bytes) -> None:
    """Durably replace the file's content with `body`. `magic` (8 bytes) identifies its format."""
    await disk.replace(path, _HEADER.pack(magic, len(body), zlib.crc32(body)) + body)


async def read(disk: Disk, path: str, magic: bytes) -> bytes:
    """Return the body of the file. Raises `FileNotFoundError`, or `DamagedFileError`."""
    data = await disk.read(path)
    body = data[_HEADER.size :]
    if data[: _HEADER.size] != _HEADER.pack(magic, len(body), zlib.crc32(body)):
        raise DamagedFileError(f"the file {path!r} is damaged: its checksum is wrong")
    return body
