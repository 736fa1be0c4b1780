"""Asks Redis Sentinels which node each of them considers the primary.

Primaries are compared by the field `run_id` of INFO, which identifies a run of a server, because a
server can have several addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.env import Address, ClientEnv
from harness.errors import UsageError, shown
from harness.exact import whole_number
from targets.declared.protocols import FAILURES, DeclinedError, MalformedError
from targets.declared.protocols.resp import replies
from targets.declared.protocols.streams import Stream

__all__ = ["Sentinels"]

_PORT: Final = 26379
_ANSWER_S: Final = 0.5
_QUESTIONS: Final = ("GET-MASTER-ADDR-BY-NAME", "MASTER", "REPLICAS")


class _Primary(NamedTuple):
    """The primary that a Sentinel names: its run id, if known, and its epoch, from 0."""

    run_id: bytes | None
    epoch: int


class Sentinels:
    """The Sentinels in a declaration. Each of them watches the primary named `master`."""

    def __init__(self, nodes: Sequence[str], master: str) -> None:
        """Take nodes such as "s1:26379". Raises `UsageError` for any other text."""
        self.addresses, self._master = [_address_of(node) for node in nodes], master

    def __bool__(self) -> bool:
        return bool(self.addresses)

    async def check(self, env: ClientEnv, run_id: bytes) -> None:
        """Raise `DeclinedError` unless the first Sentinel that answers names this primary."""
        for address in self.addresses:
            try:
                named = await self._named_by(env, address)
            except FAILURES:
                continue
            if named.run_id != run_id:
                raise DeclinedError(f"{address} names another primary", elsewhere=True)
            return
        raise DeclinedError("no Sentinel answers", elsewhere=True)

    async def term(self, env: ClientEnv, run_id: bytes) -> int:
        """Return the highest epoch, counted from 1, in which a Sentinel names this primary.

        The result is 0 if no Sentinel names it, for example because it was replaced while it was
        cut off.
        """
        asked = (self._named_by(env, address) for address in self.addresses)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        terms = [0]
        for answer in answers:
            if isinstance(answer, _Primary):
                terms += [answer.epoch + 1] if answer.run_id == run_id else []
            elif not isinstance(answer, FAILURES):
                raise answer
        return max(terms)

    async def _named_by(self, env: ClientEnv, sentinel: Address) -> _Primary:
        """Ask one Sentinel for its primary.

        During a failover, a Sentinel may name the new primary's address and still list it among the
        replicas of the old one, so the address is looked up in both.
        """
        stream = await Stream.open(env, sentinel)
        try:
            async with asyncio.timeout(_ANSWER_S):
                questions = [("SENTINEL", word, self._master) for word in _QUESTIONS]
                address, old, replicas = await replies(stream, questions)
        finally:
            await stream.close()
        if not isinstance(address, list) or not isinstance(replicas, list):
            raise MalformedError(f"no primary: {shown(address)}, replicas: {shown(replicas)}")
        nodes = [_fields(each) for each in (old, *replicas)]
        named = [node for node in nodes if [node.get(b"ip"), node.get(b"port")] == address]
        epoch = int(nodes[0].get(b"config-epoch", 0))
        return _Primary(named[0].get(b"runid") if named else None, epoch)


def _address_of(text: str) -> Address:
    node, _, port = text.partition(":")
    number = whole_number(port) if port else _PORT
    if not node or number is None:
        raise UsageError(f"client.sentinels: {text!r} must be a node, such as 's1' or 's1:26379'")
    return Address(node, number)


def _fields(reply: Any) -> Mapping[bytes, bytes]:
    if not isinstance(reply, list) or len(reply) % 2:
        raise MalformedError(f"not the fields of a node: {shown(reply)}")
    return dict(zip(reply[::2], reply[1::2], strict=True))
