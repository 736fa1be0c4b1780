"""The znodes of the bundled ZooKeeper server, in memory. Calls are applied one by one."""

from __future__ import annotations

import msgspec

from targets.hive.zookeeper.protocol import (
    BadPathError,
    BadVersionError,
    Call,
    Children,
    Create,
    Delete,
    Get,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetData,
    Znode,
    check_path,
)

Answer = str | int | Znode | list[str] | None


class _Node(msgspec.Struct):
    data: bytes
    version: int = 0
    created: int = 0  # how many children were ever created: the number of the next sequential child
    children: list[str] = []  # sorted


class Tree:
    """The znodes of a server, by path."""

    def __init__(self, nodes: dict[str, _Node] | None = None) -> None:
        self._nodes = {"/": _Node(b"")} if nodes is None else nodes

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self._nodes)

    @classmethod
    def decode(cls, data: bytes) -> Tree:
        return cls(msgspec.msgpack.decode(data, type=dict[str, _Node]))

    def __len__(self) -> int:
        return len(self._nodes)

    def apply(self, call: Call) -> Answer:
        """Apply a call and return its answer. If it raises `ZooKeeperError`, nothing changed."""
        match call:
            case Create():
                return self._create(call)
            case Get():
                node = self._at(call.path)
                return Znode(node.data, node.version)
            case SetData():
                node = self._at(call.path, call.version)
                node.data = call.data
                node.version += 1
                return node.version
            case Delete():
                self._delete(call)
                return None
            case Children():
                return list(self._at(call.path).children)

    def _at(self, path: str, version: int | None = None) -> _Node:
        check_path(path)
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(f"KeeperErrorCode = NoNode for {path}")
        if version not in (None, node.version):
            raise BadVersionError(f"KeeperErrorCode = BadVersion for {path}")
        return node

    def _create(self, call: Create) -> str:
        check_path(call.path, is_prefix=call.sequential)
        parent_path = call.path.rpartition("/")[0] or "/"
        parent = self._at(parent_path)
        path = f"{call.path}{parent.created:010d}" if call.sequential else call.path
        if path in self._nodes:
            raise NodeExistsError(f"KeeperErrorCode = NodeExists for {path}")
        parent.created += 1
        parent.children = sorted([*parent.children, path.rpartition("/")[2]])
        self._nodes[path] = _Node(call.data)
        return path

    def _delete(self, call: Delete) -> None:
        node = self._at(call.path, call.version)
        if call.path == "/":
            raise BadPathError("the root cannot be deleted")
        if node.children:
            raise NotEmptyError(f"KeeperErrorCode = Directory not empty for {call.path}")
        above, _, name = call.path.rpartition("/")
        self._nodes[above or "/"].children.remove(name)
        del self._nodes[call.path]
