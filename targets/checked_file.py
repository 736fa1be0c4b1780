"""Small files that are replaced as a whole, each with its own checksum.

A node stores all data outside its logs in such files. They resemble Kudu's protobuf containers for
instance, consensus metadata and superblock (`util/pb_util.h`): a magic number, the length of the
content, and a checksum. A damaged file ends the node, which must not serve from it.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from harness.env import Disk
from harness.errors import TargetError

_HEADER: Final = struct.Struct(">8sQI")


class DamagedFileError(TargetError):
    """A file of the node is damaged or missing; no component may start from it."""


async def write(disk: Disk, path: str, magic: bytes, body: bytes) -> None:
    """Replace the file durably. `magic` has 8 bytes and names the format of `body`."""
    await disk.replace(path, _HEADER.pack(magic, len(body), zlib.crc32(body)) + body)


async def read(disk: Disk, path: str, magic: bytes) -> bytes:
    """The body of the file. Raises `FileNotFoundError`, `DamagedFileError`."""
    data = await disk.read(path)
    body = data[_HEADER.size :]
    if data[: _HEADER.size] != _HEADER.pack(magic, len(body), zlib.crc32(body)):
        raise DamagedFileError(f"the file {path!r} is damaged: its checksum is wrong")
    return body
