"""A deployed system that was declared in a file."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from harness.cluster import NodeSpec
from harness.env import Address
from harness.errors import clipped
from harness.ops import Request
from harness.plugins import Convergence, Deployment, Roles, System
from harness.vocabularies.transactions import Txn
from targets.declared.client import DeclaredClient
from targets.declared.leadership import Seen
from targets.declared.parts import Parts
from targets.declared.protocols import FAILURES, DeclinedError, described, session_with
from targets.declared.quorum import quorum_of

__all__ = ["DeclaredSystem"]

_WITHIN_S: Final = 2.0
_TXN: Final = Request.of(Txn([["r", "ready", None]]))
_READS: Final[Mapping[str, Request]] = {
    **dict.fromkeys(("register", "set", "counter", "bank"), Request("read", {})),
    "registers": Request("read", {"key": "ready"}),
    **dict.fromkeys(("list-append", "rw-register"), _TXN),
}
"""A harmless operation of each vocabulary, with which a node shows that it serves."""
_ANSWER_SHOWN_MAX: Final = 200


class DeclaredSystem(System):
    """A deployed declared system.

    The system is ready if every node that clients talk to answers, at least one of them serves a
    read, and one node leads (if the file says how to find the leader).

    If exactly one server led at first, and the other nodes followed, two leaders at the end are a
    split brain. Then the system is not at rest.
    """

    def __init__(self, deployment: Deployment, parts: Parts) -> None:
        self._env, self._parts = deployment.env, parts
        self._nodes: Mapping[str, NodeSpec] = deployment.nodes
        names = parts.serving(list(deployment.nodes.values()))
        self._addresses = [Address(name, parts.port) for name in names]
        self._vocabulary = parts.vocabulary(deployment.settings.vocabulary)
        self._speaker = parts.operations.speaking(self._vocabulary)
        self._leadership = parts.leadership
        self._led = tuple(
            name for name, spec in self._nodes.items() if self._leadership.port in spec.ports
        )
        self._prepared = False
        self._begins_with_one_leader: bool | None = None
        self._protocol = parts.protocol

    def client(self, process: int) -> DeclaredClient:
        return DeclaredClient(
            self._env,
            process,
            self._addresses,
            self._protocol,
            self._speaker,
            pinned=self._parts.declared.client.pinned,
        )

    def core(self, rng: random.Random) -> Sequence[str]:
        """Draw enough nodes to serve: a quorum of each role."""
        core: list[str] = []
        for role, names in _by_role(self._nodes).items():
            count = quorum_of(self._parts.declared, role, len(names))
            core += rng.sample(names, count)
        return [name for name in self._nodes if name in core]

    async def groups(self) -> Mapping[str, Roles]:
        seen = await self._leadership.seen(self._env, self._led)
        return {self._parts.declared.name: Roles(dict(seen.by_node), self._led)}

    async def ready(self) -> Convergence:
        pending: list[str] = []
        if not self._prepared:
            pending = await self._prepare()
        if not pending:
            pending = await self._not_serving()
        if not pending and self._leadership.is_declared:
            pending = _not_led(await self._leadership.seen(self._env, self._led))
        if not pending and self._begins_with_one_leader is None and self._may_split:
            seen = await self._leadership.seen(self._env, self._led)
            if len(seen.by_node) == len(self._led):
                self._begins_with_one_leader = seen.leads_once
        return Convergence(not pending, tuple(pending))

    async def converged(self) -> Convergence:
        self._refuse_blind_reads()
        convergence = await self.ready()
        if not convergence.ok or not self._begins_with_one_leader:
            return convergence
        seen = await self._leadership.seen(self._env, self._led)
        if seen.leads_once:
            return convergence
        what = " and ".join(seen.leaders) + " lead" if seen.leaders else "no node says it leads"
        silent = [f"{name} does not say who leads: {text}" for name, text in seen.problems.items()]
        pending = (f"one node should lead, as at the start, but {what}", *silent)
        return Convergence(False, tuple(clipped(text, _ANSWER_SHOWN_MAX) for text in pending))

    @property
    def _may_split(self) -> bool:
        """Whether two leaders mean a split brain. Only the protocol's own reports can show this."""
        return not self._leadership.is_declared and not self._protocol.joins_as_follower

    def _refuse_blind_reads(self) -> None:
        """Raise `UsageError` if the file's reads have never found any of the changes.

        The reads prove nothing about the system if they ask for something else.
        """
        count, declared = self._speaker.empty_reads, self._parts.declared
        written = declared.declaration.operations
        table = written.get(self._vocabulary)
        key = f"operations.{self._vocabulary}.read"
        if not isinstance(table, Mapping) or "read" not in table:
            if self._vocabulary not in {"register", "registers"} or "read" not in written:
                return
            key = "operations.read"
        if count:
            raise declared.error(
                key,
                f"found nothing in {count} reads of changes that the system had acknowledged, and "
                "no read found a value; try the request by hand, and correct its path, `value` or "
                "`nothing`, or the request of the change; if all are right, the system loses every "
                "change",
            )

    async def _prepare(self) -> list[str]:
        problems = []
        for address in self._addresses:
            try:
                async with asyncio.timeout(_WITHIN_S):
                    async with session_with(self._protocol, self._env, address) as session:
                        await self._speaker.prepare(session)
            except (*FAILURES, DeclinedError) as error:
                problems.append(f"{address.node} cannot be prepared: {described(error)}")
            else:
                self._prepared = True
                return []
        return problems

    async def _not_serving(self) -> list[str]:
        problems: dict[str, str] = {}
        refusals: dict[str, str] = {}

        async def ask(address: Address) -> None:
            try:
                async with asyncio.timeout(_WITHIN_S):
                    async with session_with(self._protocol, self._env, address) as session:
                        if self._vocabulary in _READS:
                            read = _READS[self._vocabulary]
                            await self._speaker.perform(session, read, process=0)
            except DeclinedError as declined:
                refusals[address.node] = f"{address.node} refuses: {declined}"
            except FAILURES as error:
                problems[address.node] = f"{address.node} does not answer: {described(error)}"

        await asyncio.gather(*map(ask, self._addresses))
        names = [address.node for address in self._addresses]
        if len(refusals) == len(names):
            problems = refusals
        return [clipped(problems[name], _ANSWER_SHOWN_MAX) for name in names if name in problems]


def _by_role(nodes: Mapping[str, NodeSpec]) -> dict[str, list[str]]:
    roles: dict[str, list[str]] = {}
    for name, spec in nodes.items():
        roles.setdefault(spec.role, []).append(name)
    return roles


def _not_led(seen: Seen) -> list[str]:
    if seen.leaders:
        return []
    got = [f"{name}: {text}" for name, text in {**seen.answers, **seen.problems}.items()]
    return [
        "no node leads: `leads` of [leader] matched no answer of its probe; "
        + clipped("; ".join(got) or "no node was asked", 2 * _ANSWER_SHOWN_MAX)
    ]
