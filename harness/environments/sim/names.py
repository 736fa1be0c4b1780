"""The names and addresses of a simulated network: each node has one IPv4 address.

Nodes have the addresses 10.0.0.1, 10.0.0.2, ... in the order of their declaration; the driver has
10.0.255.1. A name belongs to a node or is an alias (`Cluster.alias`).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from typing import Any, Final

from harness.cluster import CLIENT

_NETWORK: Final = ipaddress.IPv4Address("10.0.0.0")
_DRIVER: Final = "10.0.255.1"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1", "")
_ANY: Final = ("0.0.0.0", "::")  # noqa: S104 - an address of a simulated network
_EPHEMERAL: Final = range(32768, 60999)
_SERVICES: Final = {"http": 80, "https": 443}

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]


class Names:
    """Maps the names of nodes to addresses, and addresses to names."""

    def __init__(self, nodes: Iterable[str], aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._addresses: dict[str, str] = {}
        for name in nodes:
            place = len(self._addresses) + 1
            self._addresses[name] = str(_NETWORK + (place // 250 << 8) + place % 250)
        self._addresses[CLIENT] = _DRIVER
        self._nodes = {address: name for name, address in self._addresses.items()}

    def address(self, node: str) -> str:
        """Return the IPv4 address of a node, or of the driver."""
        return self._addresses[node]

    def node_at(self, host: str, caller: str) -> str | None:
        """Return the node to which `host` (a name or an address) leads for `caller`, or `None`."""
        if host in _LOOPBACK or host in _ANY or host.startswith("127."):
            return caller
        if host in self._nodes:
            return self._nodes[host]
        name = self._aliases.get(host, host)
        return name if name in self._addresses else None

    def binds(self, host: str | None, node: str) -> str:
        """Return the node's address to bind for `host`; raises `OSError` if it has none."""
        if not host or host in _ANY:
            return _ANY[0]
        if host in _LOOPBACK or host.startswith("127."):
            return _LOOPBACK[1]
        if self.node_at(host, node) == node:
            return self.address(node)
        nodes = ", ".join(f"{name} is {at}" for name, at in self._addresses.items())
        raise OSError(
            99, f"cannot assign requested address {host!r}: {node} is not there ({nodes})"
        )

    def look_up(
        self, host: Any, port: Any, caller: str, *, family: int = 0, kind: int = 0, proto: int = 0
    ) -> list[AddressInfo]:
        """Like `socket.getaddrinfo`, for the simulated network; raises `socket.gaierror`."""
        name = host.decode() if isinstance(host, bytes) else host or "localhost"
        node = self.node_at(name, caller)
        if node is None:
            nodes = ", ".join(self._addresses)
            raise socket.gaierror(
                socket.EAI_NONAME, f"no node of this simulation is named {name!r}; nodes: {nodes}"
            )
        if family not in (socket.AF_UNSPEC, socket.AF_INET):
            raise socket.gaierror(socket.EAI_FAMILY, "the simulated network has only IPv4")
        at = name if name in _ANY or name.startswith("127.") else self.address(node)
        if name == "localhost":
            at = _LOOPBACK[1]
        number = _SERVICES.get(port) if port in _SERVICES else int(port or 0)
        assert number is not None
        kinds = [
            (kind_, proto_)
            for kind_, proto_ in (
                (socket.SOCK_STREAM, socket.IPPROTO_TCP),
                (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
            )
            if kind in (0, kind_) and proto in (0, proto_)
        ]
        return [(socket.AF_INET, kind_, proto_, "", (at, number)) for kind_, proto_ in kinds]


def ephemeral(number: int) -> int:
    """Return the local port at the calling end of the connection with this number."""
    return _EPHEMERAL[number % len(_EPHEMERAL)]
