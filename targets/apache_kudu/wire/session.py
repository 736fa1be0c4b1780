"""The calls of one operation to one server, up to a deadline, and the proof of their term.

Kudu's answers contain neither the term nor the leader. But the term of a Raft group never decreases
on a server, even across restarts. If the term is read before and after a request and is the same,
the request ran in that term (`in_one_term`). The first reading may come from an earlier request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from targets.apache_kudu.wire.connection import Connection, Reply
from targets.apache_kudu.wire.frames import RowsId
from targets.apache_kudu.wire.methods import GET_CONSENSUS_STATE, Method
from targets.apache_kudu.wire.protobuf import Values
from targets.kudu.master.catalog.records import SYSTEM_TABLET_ID
from targets.kudu.messages import (
    Column,
    MasterError,
    MasterErrorCode,
    TabletError,
    TabletErrorCode,
)
from targets.kudu.rpc import RpcConnectionError, RpcError, RpcTimeoutError

_HELD_MAX: Final = 10_000
_NO_LEADER: Final = (
    MasterErrorCode.NOT_THE_LEADER,
    MasterErrorCode.CATALOG_MANAGER_NOT_INITIALIZED,
    TabletErrorCode.NOT_THE_LEADER,
    TabletErrorCode.TABLET_NOT_FOUND,
    TabletErrorCode.TABLET_NOT_RUNNING,
    TabletErrorCode.WRONG_SERVER_UUID,
)
T = TypeVar("T")
K = TypeVar("K")


class Lead(NamedTuple):
    """A server's view of a Raft group: the term, and whether this server leads."""

    term: int
    leads: bool


class Memory:
    """Facts that one client learned from answers. Requests for rows need some of them."""

    def __init__(self) -> None:
        self.columns: dict[str, tuple[Column, ...]] = {}  # by table id
        # by tablet id, for tablets whose schema lags behind the table's
        self.applied: dict[str, tuple[Column, ...]] = {}
        self.tables: dict[str, str] = {}  # table ids by tablet id
        self.leads: dict[tuple[str, str], Lead] = {}  # by uuid of the server, and tablet id
        self.hosts: dict[str, Values] = {}  # the addresses that servers advertise, by uuid

    def columns_of(self, tablet_id: str) -> tuple[Column, ...]:
        """Return the columns of a tablet's table. Raises `RpcConnectionError` if not known."""
        table_id = self.tables.get(tablet_id, "")
        columns = self.applied.get(tablet_id) or self.columns.get(table_id)
        if columns is None:
            message = f"the columns of tablet {tablet_id} are not known yet"
            raise RpcConnectionError(message, sent=False)
        return columns

    def learn_columns(self, table_id: str, columns: tuple[Column, ...]) -> None:
        """Remember the columns of a table, as a master knows them."""
        remember(self.columns, table_id, columns)
        for tablet_id in [each for each in self.applied if self.tables.get(each) == table_id]:
            del self.applied[tablet_id]


def remember(held: dict[K, T], key: K, value: T) -> None:
    """Put `value` into `held`, and drop the oldest entry if there are too many."""
    held.pop(key, None)
    held[key] = value
    if len(held) > _HELD_MAX:
        del held[next(iter(held))]


class Session:
    """The calls of one operation on one server. `names` maps uuids to "node:port"."""

    def __init__(
        self,
        connection: Connection,
        uuid: str,
        names: Mapping[str, str],
        memory: Memory,
        deadline: float,
    ) -> None:
        self.connection = connection
        self.uuid = uuid
        self.memory = memory
        self._names = names
        self._deadline = deadline

    async def ask(
        self, method: Method, request: Values | None = None, *, rows_id: RowsId | None = None
    ) -> Reply:
        """Make one call. Raises `RpcError`."""
        left_s = self._deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            message = f"no time is left to call {method.name} at {self.connection.address}"
            raise RpcTimeoutError(message, sent=False)
        return await self.connection.call(method, request or {}, timeout_s=left_s, rows_id=rows_id)

    def name_of(self, uuid: str, host_port: Values | None) -> str:
        """Return a server's address "node:port", or an unknown server's advertised one."""
        where = host_port or {}
        if host_port is not None:
            remember(self.memory.hosts, uuid, host_port)
        return self._names.get(uuid) or f"{where.get('host', '?')}:{where.get('port', 0)}"

    def registered_name(self, uuid: str, registration: Values) -> str:
        """Return the address of a server that registered with the masters."""
        return self.name_of(uuid, next(iter(registration.get("rpc_addresses", ())), None))

    def known_name(self, uuid: str) -> str | None:
        """Return the address "node:port" of a server, if it is known."""
        return self._names.get(uuid)

    def uuid_of(self, address: str) -> str | None:
        """Return the uuid of the server at "node:port", if it is known."""
        return next((uuid for uuid, name in self._names.items() if name == address), None)

    # --- terms -------------------------------------------------------------------------------

    async def raft(self, group: str = SYSTEM_TABLET_ID, *, health: bool = False) -> Reply:
        """Ask about a Raft group (by default, the masters'), and remember the server's role."""
        request = {
            "dest_uuid": self.uuid,  # otherwise, servers log an error per request
            "tablet_ids": [group],
            "report_health": 2 if health else 1,
        }
        reply = await self.ask(GET_CONSENSUS_STATE, request)
        remember(self.memory.leads, (self.uuid, group), self.lead_in(state_of(reply, group) or {}))
        return reply

    async def consensus(self, group: str = SYSTEM_TABLET_ID) -> Values:
        """Ask for the consensus state of a Raft group. It is empty if the server has none."""
        return state_of(await self.raft(group), group) or {}

    def lead_in(self, consensus: Values) -> Lead:
        """Return this server's role and term, from its consensus state of a Raft group."""
        leads = consensus.get("leader_uuid", "") == self.uuid
        return Lead(int(consensus.get("current_term", 0)), leads)

    async def lead(self, group: str = SYSTEM_TABLET_ID) -> Lead:
        """Ask for the term of a Raft group, and whether this server leads it."""
        await self.raft(group)
        return self.memory.leads[self.uuid, group]

    async def last_lead(self, group: str = SYSTEM_TABLET_ID) -> Lead:
        """Return the last known term and role if this server led then. Otherwise ask again."""
        last = self.memory.leads.get((self.uuid, group))
        return last if last is not None and last.leads else await unsent(self.lead(group))

    async def in_one_term(
        self, ask: Callable[[], Awaitable[T]], group: str = SYSTEM_TABLET_ID
    ) -> tuple[T, Lead]:
        """Return the answer of `ask`, with this server's term and role when it was given.

        Raises an `RpcError` with `sent` if the term changed meanwhile, because the answer may
        belong to either term. An answer that says nothing about the group's state needs no term.
        """
        before = await self.last_lead(group)
        answer = await ask()
        if _is_of_no_term(answer):
            return answer, before
        try:
            after = await self.lead(group)
        except RpcError as error:
            message = f"the answer came, but not the term in which it was given: {error}"
            raise RpcConnectionError(message, sent=True) from error
        if before != after:
            message = (
                f"the answer came while the term of {self.connection.address} changed from "
                f"{before.term} to {after.term}"
            )
            raise RpcConnectionError(message, sent=True)
        return answer, after


def _is_of_no_term(answer: object) -> bool:
    error = getattr(answer, "error", None)
    if not isinstance(error, MasterError | TabletError):
        return False
    return error.indeterminate or any(error.code is code for code in _NO_LEADER)


async def unsent(call: Awaitable[T]) -> T:
    """Await a call that precedes the request itself, so its `RpcError` has `sent` false."""
    try:
        return await call
    except RpcError as error:
        raise RpcConnectionError(str(error), sent=False) from error


def state_of(reply: Values, group: str) -> Values | None:
    """Return the consensus state of `group` in an answer, if the answer has one."""
    for tablet in reply.get("tablets", ()):
        if tablet.get("tablet_id") == group:
            state: Values | None = tablet.get("state")
            return state
    return None
