"""Sessions with ZooKeeper: persistent znodes with data, versions and sequences.

A suite of tests checks the promises of every implementation
(`tests/hive/tokens/zookeeper_cases.py`):

* a write is atomic, durable once it is answered, and seen by all in one order;
* a read sees everything that this session has seen or written before. After a `fence`, a read also
  sees all writes of other sessions that were answered before the fence began. Without a fence, a
  server may answer with old data;
* a version grows with each change of the data, and a sequence with each child named by it. Neither
  goes back while the parent exists.

Sessions do not expire here, since nothing is ephemeral. `ConnectionLossError` says nothing about
whether a write was done, or will yet be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

import msgspec

_PATH: Final = re.compile(r"/|(/[^/\0]+)+")
_PREFIX: Final = re.compile(r"(/[^/\0]+)*/[^/\0]*")
"""A path whose last name may be empty: the name of a sequential znode may be just its number."""


class Znode(NamedTuple):
    """The data and version of a znode."""

    data: bytes
    version: int


class ZooKeeperError(Exception):
    """An error from ZooKeeper; `code` is a `KeeperException.Code`."""

    code: ClassVar[int] = -1


class ConnectionLossError(ZooKeeperError):
    """No answer came."""

    code = -4


class BadPathError(ZooKeeperError):
    """The path is not `/` followed by names between slashes (BadArguments)."""

    code = -8


class NoNodeError(ZooKeeperError):
    """The znode, or its parent, does not exist."""

    code = -101


class BadVersionError(ZooKeeperError):
    """The znode has another version than the call requires."""

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
    """The error with this code; an unknown code leaves the outcome open, like a lost connection."""
    return _BY_CODE.get(code, ConnectionLossError)(message)


def check_path(path: str, *, is_prefix: bool = False) -> None:
    """Raise `BadPathError` unless `path` is that of a znode, or a prefix of one."""
    if not (_PREFIX if is_prefix else _PATH).fullmatch(path):
        raise BadPathError(f"{path!r} is not the path of a znode")


class Create(msgspec.Struct, frozen=True, tag="create"):
    """Creates a znode; answers its path, with ten digits appended if it is `sequential`."""

    path: str
    data: bytes
    sequential: bool = False


class Get(msgspec.Struct, frozen=True, tag="getData"):
    """Answers the data and version of a znode."""

    path: str


class SetData(msgspec.Struct, frozen=True, tag="setData"):
    """Replaces the data; answers the new version. With `version`, only if the znode has it."""

    path: str
    data: bytes
    version: int | None = None


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Removes a znode without children. With `version`, only if the znode has it."""

    path: str
    version: int | None = None


class Children(msgspec.Struct, frozen=True, tag="getChildren"):
    """Answers the names of a znode's children, sorted."""

    path: str


Call = Create | Get | SetData | Delete | Children


class ZooKeeper(Protocol):
    """A session with ZooKeeper. All methods raise `ZooKeeperError`s."""

    async def create(self, path: str, data: bytes, *, sequential: bool = False) -> str:
        """Create a znode, whose parent must exist; returns its path."""
        ...

    async def get(self, path: str) -> Znode:
        """The data and version of a znode."""
        ...

    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Replace the data of a znode; returns the new version."""
        ...

    async def delete(self, path: str, version: int | None = None) -> None:
        """Remove a znode."""
        ...

    async def children(self, path: str) -> Sequence[str]:
        """The names of a znode's children, sorted."""
        ...

    async def fence(self) -> None:
        """Wait until this session sees all writes that any session was answered before the call."""
        ...

    def close(self) -> None:
        """Close the session; safe to call twice."""
        ...
