"""Sessions with ZooKeeper: persistent znodes with data, versions and sequences.

Every implementation gives these guarantees, which `tests/hive/tokens/zookeeper_cases.py` checks:

* A write is atomic, and is durable once it is answered. All sessions see writes in one order.
* A read sees everything that this session has seen or written before. Without a fence, a server may
  answer with old data. After a `fence`, a read also sees all writes of other sessions that were
  answered before the fence began.
* A znode's version grows with each change of its data. Its sequence grows with each sequential
  child. Neither decreases while the znode exists.

Sessions do not expire, since there are no ephemeral znodes. After a `ConnectionLossError`, a write
may have taken effect, or may still do so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

import msgspec

_PATH: Final = re.compile(r"/|(/[^/\0]+)+")
_PREFIX: Final = re.compile(r"(/[^/\0]+)*/[^/\0]*")
"""Pattern of a sequential znode's path without its number. The last name may be empty."""


class Znode(NamedTuple):
    """The data and version of a znode."""

    data: bytes
    version: int


class ZooKeeperError(Exception):
    """An error from ZooKeeper; `code` is a `KeeperException.Code`."""

    code: ClassVar[int] = -1


class ConnectionLossError(ZooKeeperError):
    """No answer came, so a write may have taken effect, or may still do so."""

    code = -4


class BadPathError(ZooKeeperError):
    """The path is not `/` followed by names separated by slashes (BadArguments)."""

    code = -8


class NoNodeError(ZooKeeperError):
    """The znode, or its parent, does not exist."""

    code = -101


class BadVersionError(ZooKeeperError):
    """The znode does not have the version that the call requires."""

    code = -103


class NodeExistsError(ZooKeeperError):
    """The znode exists already."""

    code = -110


class NotEmptyError(ZooKeeperError):
    """The znode has children."""

    code = -111


_BY_CODE: dict[int | None, type[ZooKeeperError]] = {
    kind.code: kind
    for kind in (BadPathError, NoNodeError, BadVersionError, NodeExistsError, NotEmptyError)
}


def error_of(code: int | None, message: str) -> ZooKeeperError:
    """Build the error with this code; for an unknown code, it is a `ConnectionLossError`."""
    return _BY_CODE.get(code, ConnectionLossError)(message)


def check_path(path: str, *, is_prefix: bool = False) -> None:
    """Raise `BadPathError` unless `path` is valid. With `is_prefix`, digits will follow it."""
    if not (_PREFIX if is_prefix else _PATH).fullmatch(path):
        raise BadPathError(f"{path!r} is not the path of a znode")


class Create(msgspec.Struct, frozen=True, tag="create"):
    """Create a znode. The answer is its path, with ten digits appended if `sequential`."""

    path: str
    data: bytes
    sequential: bool = False


class Get(msgspec.Struct, frozen=True, tag="getData"):
    """Ask for the data and version of a znode."""

    path: str


class SetData(msgspec.Struct, frozen=True, tag="setData"):
    """Replace a znode's data; refused if `version` is outdated. The answer is the new version."""

    path: str
    data: bytes
    version: int | None = None


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Remove a znode without children; refused if `version` is outdated."""

    path: str
    version: int | None = None


class Children(msgspec.Struct, frozen=True, tag="getChildren"):
    """Ask for the names of a znode's children, sorted."""

    path: str


Call = Create | Get | SetData | Delete | Children


class ZooKeeper(Protocol):
    """A session with ZooKeeper. Its methods raise `ZooKeeperError`."""

    async def create(self, path: str, data: bytes, *, sequential: bool = False) -> str:
        """Create a znode below an existing parent; return the znode's path."""
        ...

    async def get(self, path: str) -> Znode:
        """Return the data and version of a znode."""
        ...

    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Replace a znode's data, unless `version` is outdated; return the new version."""
        ...

    async def delete(self, path: str, version: int | None = None) -> None:
        """Remove a znode without children, unless `version` is outdated."""
        ...

    async def children(self, path: str) -> Sequence[str]:
        """Return the names of a znode's children, sorted."""
        ...

    async def fence(self) -> None:
        """Wait until this session sees all writes that were answered before this call."""
        ...

    def close(self) -> None:
        """Close the session; safe to call twice."""
        ...
