"""Sessions with ZooKeeper: persistent znodes with data, versions and sequences.

What every implementation promises is a suite of tests (`tests/hive/tokens/zookeeper_cases.py`):

* a write is atomic, durable once it is answered, and seen by all in one order;
* a read sees all that this session has seen or written before. It sees what others were answered
  before `fence` began: by itself a server may answer from the past;
* a version grows with each change of data, and a sequence with each child that was named by it;
  neither goes back while the parent is there.

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
"""A sequential znode may have no name but its number."""


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
    """A path is `/` and names between slashes (BadArguments)."""

    code = -8


class NoNodeError(ZooKeeperError):
    """There is no such znode, or no parent for it."""

    code = -101


class BadVersionError(ZooKeeperError):
    """The znode has another version than was asked for."""

    code = -103


class NodeExistsError(ZooKeeperError):
    """There is one already."""

    code = -110


class NotEmptyError(ZooKeeperError):
    """It has children."""

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
    """Answers the path, to which ten digits were added where it is `sequential`."""

    path: str
    data: bytes
    sequential: bool = False


class Get(msgspec.Struct, frozen=True, tag="getData"):
    """Answers data and version."""

    path: str


class SetData(msgspec.Struct, frozen=True, tag="setData"):
    """Answers the new version; with `version`, only where it has this one."""

    path: str
    data: bytes
    version: int | None = None


class Delete(msgspec.Struct, frozen=True, tag="delete"):
    """Of a znode without children; with `version`, only where it has this one."""

    path: str
    version: int | None = None


class Children(msgspec.Struct, frozen=True, tag="getChildren"):
    """Answers their names, sorted."""

    path: str


Call = Create | Get | SetData | Delete | Children


class ZooKeeper(Protocol):
    """One session. All methods raise `ZooKeeperError`s."""

    async def create(self, path: str, data: bytes, *, sequential: bool = False) -> str:
        """A new znode, whose parent is there; its path."""
        ...

    async def get(self, path: str) -> Znode:
        """The znode."""
        ...

    async def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Other data; the new version."""
        ...

    async def delete(self, path: str, version: int | None = None) -> None:
        """Remove it."""
        ...

    async def children(self, path: str) -> Sequence[str]:
        """The names of those below it, sorted."""
        ...

    async def fence(self) -> None:
        """Wait until this session sees every answer that any session had before the call."""
        ...

    def close(self) -> None:
        """End the session; safe to call twice."""
        ...
