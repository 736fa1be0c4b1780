"""The kinds of ZooKeeper that metastores can use, and a function that opens a session."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from harness.env import Address, Env
from targets.hive.zookeeper.protocol import ZooKeeper
from targets.hive.zookeeper.remote import RemoteZooKeeper


class ZooKeeperKind(enum.StrEnum):
    """The kind of the nodes `zk1..n`: one bundled server, or three from the Debian package."""

    NODE = "node"
    ENSEMBLE = "ensemble"

    @property
    def servers(self) -> int:
        return 1 if self is ZooKeeperKind.NODE else 3


def session_with(env: Env, servers: Sequence[Address], kind: ZooKeeperKind) -> ZooKeeper:
    """Create a session with these servers; it connects on first use."""
    if kind is ZooKeeperKind.NODE:
        return RemoteZooKeeper(env, servers[0])
    from targets.hive.zookeeper.kazoo import KazooZooKeeper  # never imported in a simulation

    return KazooZooKeeper(env, servers)
