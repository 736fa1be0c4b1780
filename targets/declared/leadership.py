"""The leader of a system, found by the probe in `[leader]` or by the protocol itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from harness.env import Address, ClientEnv
from harness.errors import UsageError, shown
from harness.plugins import NodeRole
from targets.declared.file import Declared
from targets.declared.probes import condition, number
from targets.declared.protocols import (
    FAILURES,
    DeclinedError,
    Protocol,
    Session,
    described,
    protocol_of,
    session_with,
)

__all__ = ["LEADER", "Leadership", "Seen"]

LEADER: Final = "leader"
_WITHIN_S: Final = 1.0


class Seen(NamedTuple):
    """The roles and answers of the nodes that answered, and the problems of the other nodes.

    `servers` has the identities of the leading servers, if the protocol has identities.
    """

    by_node: Mapping[str, NodeRole]
    problems: Mapping[str, str]
    answers: Mapping[str, str]
    servers: Mapping[str, str] = {}

    @property
    def leaders(self) -> list[str]:
        """Return the nodes that report that they lead."""
        return [name for name, role in self.by_node.items() if role.role == LEADER]

    @property
    def leads_once(self) -> bool:
        """Whether exactly one server leads.

        Several nodes may be that server, because a proxy such as HAProxy answers for the server
        behind it.
        """
        return len({self.servers.get(name, name) for name in self.leaders}) == 1


class Leadership:
    """Asks each node whether it leads."""

    def __init__(self, declared: Declared, protocol: Protocol, port: int) -> None:
        """Read the table `[leader]`. Raises `UsageError`."""
        table = declared.declaration.leader
        self._protocol, self._port = protocol, port
        self.is_declared = table is not None
        if table is None:
            return
        if table.protocol is not None and table.protocol != protocol.name:
            try:
                self._protocol = protocol_of(table.protocol, {})
            except UsageError as error:
                raise declared.error("leader.protocol", f"is wrong: {error}") from error
            chosen = table.port or self._protocol.port
            if chosen is None:
                raise declared.error("leader.port", "is missing; add the port that the probe asks")
            self._port = chosen
        self._port = table.port or self._port
        try:
            self._template = self._protocol.template("leader.probe", table.probe, "raw")
        except UsageError as error:
            raise declared.document.explained(error) from error
        try:
            self._leads = condition(table.leads)
        except UsageError as error:
            raise declared.error("leader.leads", str(error)) from error
        try:
            self._term = None if table.term is None else number(table.term)
        except UsageError as error:
            raise declared.error("leader.term", str(error)) from error

    @property
    def is_known(self) -> bool:
        """Whether the file or the protocol can tell which node leads."""
        return self.is_declared or self._protocol.knows_leader

    @property
    def port(self) -> int:
        return self._port

    async def seen(self, env: ClientEnv, names: Sequence[str]) -> Seen:
        """Ask every node, each for at most a second. A node that does not answer has no role."""
        roles: dict[str, NodeRole] = {}
        problems: dict[str, str] = {}
        answers: dict[str, str] = {}
        servers: dict[str, str] = {}

        async def ask(name: str) -> None:
            try:
                async with asyncio.timeout(_WITHIN_S):
                    leads, term, answer, server = await self._asked(env, name)
            except (*FAILURES, DeclinedError) as error:
                problems[name] = described(error)
                return
            roles[name] = NodeRole(LEADER if leads else "follower", term)
            answers[name] = answer
            if server is not None:
                servers[name] = server

        if self.is_known:
            await asyncio.gather(*map(ask, names))
        ordered = {name: roles[name] for name in names if name in roles}
        return Seen(ordered, problems, answers, servers)

    async def _asked(self, env: ClientEnv, name: str) -> tuple[bool, int, str, str | None]:
        address = Address(name, self._port)
        async with session_with(self._protocol, env, address, observes=True) as session:
            if not self.is_declared:
                leads, term = await session.leadership()
                return leads, term, "", await _server(session) if leads else None
            answer = await session.perform(self._template, {}, changes=False)
        leads = self._leads(answer)
        term = 0 if self._term is None else self._term(answer)
        return leads, term, shown(answer, 200), None


async def _server(session: Session) -> str | None:
    try:
        return await session.server()
    except (*FAILURES, DeclinedError):
        return None
