"""The part of an event loop that belongs to the simulated network: names, ports and refusals."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from harness.environments.sim.loop import NodeLoop
from harness.environments.sim.names import Names, ephemeral
from harness.environments.sim.network import Fabric, Host
from harness.environments.sim.tripwires import DeterminismError
from harness.errors import TargetError


class Datagrams(Protocol):
    """A bound UDP port, as the network sees it."""

    def receive(self, content: bytes, source: tuple[str, int]) -> None:
        """Pass a datagram to the protocol, in a callback of the node."""


class NetLoop(NodeLoop):
    """An event loop that has access to its node's network."""

    names: Names
    _host: Host
    _fabric: Fabric

    def plug_in(self, host: Host, fabric: Fabric) -> None:
        """Connect the loop to the network. `host` connects and listens for the node."""
        self._host, self._fabric, self.names = host, fabric, fabric.names
        self.datagrams: dict[int, Datagrams] = {}
        self._fds = 0
        self._bound = 0

    def next_fd(self) -> int:
        self._fds += 1
        return self._fds

    def refuse(self, what: str, instead: str) -> NoReturn:
        """End the run: the program needs a feature that the simulation does not have."""
        message = (
            f"{self.name} needs {what}, which the simulation does not have: use {instead}; "
            "or run it with --env process"
        )
        if self.alive:
            self.world.fail(TargetError(message))  # type: ignore[attr-defined]
        raise DeterminismError(message)

    def free_port(self, taken: Any) -> int:
        """Return an unused local port."""
        while True:
            self._bound += 1
            if (port := ephemeral(10_000 + self._bound)) not in taken:
                return port
