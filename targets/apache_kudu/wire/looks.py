"""Looks: read-only requests that learn what another client's answers do not say.

`Looker` makes looks. `Leads` watches in which term each server leads which Raft groups. Terms never
decrease on a server. So if a look before a request and a look after its answer show the same term,
the answer was given in that term (`Leads.proven`).

If two looks overlap and the older one ends last, the recorded start of a term is too late. Then
less is proven, but never anything wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from harness.env import Clock
from targets.apache_kudu.wire.methods import GET_CONSENSUS_STATE
from targets.apache_kudu.wire.protobuf import WireFormatError
from targets.apache_kudu.wire.rpc import LOOK_S, WireRpc
from targets.apache_kudu.wire.session import Lead, remember
from targets.apache_kudu.wire.tables import Version, version_of_id, version_of_name
from targets.apache_kudu.wire.tablets import is_confirmed
from targets.kudu import messages as m
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.rpc import RpcError, parse_address

_EVERY_S: Final = 0.2
_TABLETS_MAX: Final = 1000


class Looker(WireRpc):
    """A client that sends only read-only requests. Addresses have the form "node:port"."""

    async def leads(self, address: str, group: str | None = None) -> dict[str, Lead]:
        """Return the server's role and term in its Raft groups, or in one. Raises `RpcError`."""
        session = await self._session_for(address, LOOK_S)
        asked = {"dest_uuid": session.uuid, "tablet_ids": [group] if group else []}
        reply = await session.ask(GET_CONSENSUS_STATE, asked)
        return {
            each["tablet_id"]: session.lead_in(each["state"])
            for each in reply.get("tablets", ())
            if "state" in each
        }

    async def confirmed(self, address: str, tablet_id: str, lead: Lead) -> bool:
        """Whether an answer about a tablet, given in `lead`, is not from a deposed leader.

        `targets.apache_kudu.wire.tablets` explains why this matters.
        """
        deadline = asyncio.get_running_loop().time() + LOOK_S
        try:
            session = await self._session(parse_address(address), deadline)
            return await is_confirmed(session, tablet_id, lead, partial(self._peer, deadline))
        except (RpcError, KeyError, WireFormatError):
            return False

    async def tablets(self, address: str, name: str) -> list[str]:
        """Return the ids of a table's tablets; none if the master does not list the table (yet)."""
        asked = m.GetTableLocationsRequest(
            table=m.TableIdentifier(table_name=name), max_returned_locations=_TABLETS_MAX
        )
        try:
            answer = await self.call(address, asked, timeout_s=LOOK_S)
        except RpcError:
            return []
        return [] if answer.error is not None else [each.tablet_id for each in answer.tablets]

    async def version(
        self, address: str, *, name: str | None = None, table_id: str | None = None
    ) -> Version | None:
        """Return the version of the table with this name or id.

        Returns `None` if the master at `address` does not report it.
        """
        try:
            session = await self._session_for(address, LOOK_S)
            if table_id is not None:
                return await version_of_id(session, table_id)
            return await version_of_name(session, {"table_name": name})
        except (RpcError, KeyError, WireFormatError):
            return None


class Leads:
    """The terms in which servers lead, by address and Raft group, as looks have shown."""

    def __init__(self, looker: Looker, clock: Clock) -> None:
        self._looker = looker
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[Lead, int]] = {}
        """The last `Lead` of each server in each group, and when it was first seen."""
        self._looked = asyncio.Event()

    async def watch(self, address: str) -> None:
        """Look at a server periodically, until the task is cancelled."""
        while True:
            await self._look(address)
            self._looked.set()
            self._looked = asyncio.Event()
            await asyncio.sleep(_EVERY_S)

    async def wait_led(self, tablets: Iterable[str]) -> None:
        """Wait until each of these tablets was seen to have a leader."""
        wanted = set(tablets)
        while not wanted <= {group for (_, group), (lead, _) in self._seen.items() if lead.leads}:
            await self._looked.wait()

    def leader(self, group: str = SYSTEM_TABLET_ID) -> str | None:
        """Return the server that was seen to lead a group in the highest term, if any."""
        leaders = [
            (lead.term, address)
            for (address, of), (lead, _) in self._seen.items()
            if of == group and lead.leads
        ]
        return max(leaders)[1] if leaders else None

    async def proven(
        self, address: str, sent_ns: int, group: str = SYSTEM_TABLET_ID
    ) -> Lead | None:
        """Return a server's term and role for the answer that just arrived; `None` if unproven.

        The request was sent at `sent_ns` or later.
        """
        after = (await self._look(address, group)).get(group)
        if after is None:
            return None
        before, since_ns = self._seen[address, group]
        return after if before == after and since_ns <= sent_ns else None

    async def _look(self, address: str, group: str | None = None) -> dict[str, Lead]:
        try:
            leads = await self._looker.leads(address, group)
        except (RpcError, KeyError, WireFormatError):
            return {}
        for each, lead in leads.items():
            before = self._seen.get((address, each))
            if before is None or before[0] != lead:
                remember(self._seen, (address, each), (lead, self._clock.monotonic_ns()))
        return leads
