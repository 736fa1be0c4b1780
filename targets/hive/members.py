"""The list of metastores in the clients' configuration. It changes while clients work.

To add a metastore, an administrator starts it, waits until it answers, and appends it to the list.
To remove a metastore, the administrator takes it off the list and then stops it, which closes its
connections. The node of a stopped metastore runs the variant `IDLE`, which serves no client, so
that faults can still hit the node. The last metastore is never removed.

A metastore that does not answer in time is not added. A metastore that cannot be stopped is taken
off the list anyway, and still serves clients that kept the old list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from harness.cluster import BASE, Variant
from harness.env import Address
from harness.plugins import Restart

ADD: Final = "add-metastore"
REMOVE: Final = "remove-metastore"
SERVING: Final = "serving"
IDLE: Final = "idle"
"""Variants of a node: `SERVING` for a spare that was added, `IDLE` for a removed metastore."""
VARIANTS: Final = {
    SERVING: Variant(config={"serves": True}),
    IDLE: Variant(config={"serves": False}),
}
START_S: Final = 10.0
POLL_S: Final = 0.2


class Members:
    """The configured list of metastores of one deployment."""

    def __init__(
        self,
        first: Sequence[Address],
        spares: Sequence[Address],
        answers: Callable[[Address], Awaitable[bool]],
        *,
        start_s: float = START_S,
    ) -> None:
        """Begin with the list `first`; the metastores in `spares` do not serve yet.

        `answers` says whether a metastore serves now. A metastore that does not serve within
        `start_s` is not added.
        """
        self._first = tuple(first)
        self._nodes = {address.node: address for address in (*first, *spares)}
        self._serves = {address.node: address in self._first for address in (*first, *spares)}
        self._answers, self._start_s = answers, start_s
        self._turn = asyncio.Lock()
        self.listed = self._first

    async def add(self, nodes: Sequence[str], restart: Restart) -> str | None:
        """Start each of `nodes` that is not listed, and list it.

        Returns a description of the added nodes, or `None` if there are none.
        """
        async with self._turn:
            done = [name for name in nodes if await self._add(name, restart)]
        return f"{ADD}: {', '.join(done)}" if done else None

    async def _add(self, name: str, restart: Restart) -> bool:
        address = self._nodes.get(name)
        if address is None or address in self.listed:
            return False
        if not (self._serves[name] or await self._run_as(name, restart, serves=True)):
            return False
        try:
            async with asyncio.timeout(self._start_s):
                while not await self._answers(address):  # noqa: ASYNC110 - no event to wait for
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        self.listed = (*self.listed, address)
        return True

    async def remove(self, nodes: Sequence[str], restart: Restart) -> str | None:
        """Remove each of `nodes` from the list and stop it; the last one on the list stays."""
        done = []
        async with self._turn:
            for name in nodes:
                left = tuple(address for address in self.listed if address.node != name)
                if left and left != self.listed:
                    self.listed = left
                    await self._run_as(name, restart, serves=False)
                    done.append(name)
        return f"{REMOVE}: {', '.join(done)}" if done else None

    async def restore(self, restart: Restart) -> None:
        async with self._turn:
            self.listed = self._first
            for name, address in self._nodes.items():
                if self._serves[name] is not (address in self._first):
                    await self._run_as(name, restart, serves=address in self._first)

    async def _run_as(self, name: str, restart: Restart, *, serves: bool) -> bool:
        as_declared = serves is (self._nodes[name] in self._first)
        done = await restart(name, BASE if as_declared else SERVING if serves else IDLE)
        self._serves[name] = serves if done else self._serves[name]
        return done
