"""The parts of a declaration: nodes, protocol, operations and leader, checked together."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Final

from harness.cluster import NodeSpec
from harness.errors import UsageError, choices_near
from harness.nodes.deployment import check_nodes
from targets.declared.compose.services import compose_nodes
from targets.declared.file import Declared, from_case
from targets.declared.leadership import Leadership
from targets.declared.nodes import command_nodes, only_port, serving
from targets.declared.operations import Operations
from targets.declared.protocols import protocol_of
from targets.declared.quorum import check_quorum

__all__ = ["Parts", "parts_of"]

_PREFERRED: Final = "register"


class Parts:
    """The parts of one declaration, all checked before anything starts."""

    def __init__(self, declared: Declared) -> None:
        """Read the client, its operations and the leader. Raises `UsageError`."""
        self.declared = declared
        try:
            self.protocol = protocol_of(declared.client.protocol, declared.settings)
        except UsageError as error:
            what = str(error)
            if what.startswith("no protocol"):
                raise declared.error(
                    "client.protocol", f"is {declared.client.protocol!r}: {what}"
                ) from error
            raise declared.document.explained(error) from error
        port = declared.client.port or self.protocol.port or only_port(declared)
        if port is None or not 1 <= port <= 65535:
            raise declared.error(
                "client.port",
                "is missing; add the port of the nodes that clients talk to"
                if port is None
                else f"is {port}; a port is in 1 .. 65535",
            )
        self.port: int = port
        try:
            self.operations = Operations(self.protocol, declared.declaration.operations)
        except UsageError as error:
            raise declared.document.explained(error) from error
        if not self.operations.vocabularies:
            try:
                self.operations.speaking(_PREFERRED)
            except UsageError as error:
                raise declared.document.explained(error) from error
        self.leadership = Leadership(declared, self.protocol, port)

    def vocabulary(self, wanted: str | None) -> str:
        """Return the vocabulary for a run: the `wanted` one, or else the system's default."""
        able = self.operations.vocabularies
        if wanted is not None:
            return wanted
        return _PREFERRED if _PREFERRED in able else min(able)

    def nodes(self, environment: str | None) -> list[NodeSpec]:
        """Declare the nodes for an environment. Raises `UsageError`."""
        declared = self.declared
        if declared.declaration.compose is not None:
            nodes = compose_nodes(declared, self.port, self.protocol.addresses)
            if environment not in {None, "docker"}:
                raise declared.error(
                    "compose",
                    "declares containers, which only Docker runs; use --env docker, or write a "
                    "command line in [nodes]",
                )
        else:
            nodes = command_nodes(declared, environment, self.port)
            if environment == "sim" and not self.protocol.in_simulation:
                raise declared.error(
                    "client.protocol",
                    f"is {self.protocol.name!r}, whose connections the simulation cannot see; use "
                    "--env process, or a protocol on asyncio, such as http",
                )
        try:
            check_nodes(nodes)
        except UsageError as error:
            raise UsageError(f"{declared.document.name}: {error}") from error
        self.serving(nodes)
        self._check_addresses(nodes)
        check_quorum(declared, dict(Counter(node.role for node in nodes)))
        leader = self.leadership
        if leader.is_declared and not any(leader.port in node.ports for node in nodes):
            raise declared.error(
                "leader.port",
                f"is {leader.port}, which no node has among its ports; add it to the nodes' ports",
            )
        return nodes

    def _check_addresses(self, nodes: Sequence[NodeSpec]) -> None:
        ports = {node.name: node.ports for node in nodes}
        for address in self.protocol.addresses:
            if address.node not in ports:
                raise self.declared.error(
                    "client",
                    f"names {address.node!r}, which is not a node; "
                    f"{choices_near(address.node, list(ports))}",
                )
            if address.port not in ports[address.node]:
                raise self.declared.error(
                    "client",
                    f"names {address}, and {address.node} has no such port; add {address.port} to "
                    "its `ports`",
                )

    def serving(self, nodes: Sequence[NodeSpec]) -> tuple[str, ...]:
        """Return the nodes that clients talk to."""
        return serving(self.declared, nodes, self.port)


# a run needs the parts several times, and a soak needs them for each seed
@functools.lru_cache(maxsize=8)
def parts_of(text: str) -> Parts:
    """Return the parts of the declaration that a case keeps. Raises `UsageError`."""
    return Parts(from_case(text))
