"""Calls of real Kudu that take the requests of the bundled target (`targets.kudu.messages`).

`WireRpc` replaces `targets.kudu.rpc.RpcClient`. The bundled clients run over it unchanged, and so
classify, retry and record as they do on the bundled target. Each call translates one request into
calls of Kudu's own RPC, all to the same server and within one deadline, and combines their answers.
Only one of these calls is the request itself, sent at most once. The others only read.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import uuid  # determinism: not simulated
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

from harness.env import Address, ClientEnv
from harness.errors import UsageError
from targets.apache_kudu.wire import members, tables, tablets
from targets.apache_kudu.wire import methods as w
from targets.apache_kudu.wire.connection import Connection
from targets.apache_kudu.wire.events import followed
from targets.apache_kudu.wire.protobuf import Values, WireFormatError
from targets.apache_kudu.wire.session import Memory, Session, unsent
from targets.kudu import messages as m
from targets.kudu.consensus import messages as raft
from targets.kudu.rpc import (
    Call,
    R_co,
    RpcConnectionError,
    RpcError,
    RpcTimeoutError,
    parse_address,
)

T = TypeVar("T")
LOOK_S: Final = 0.5
"""Time limit of one look, so that a server that does not answer causes no long wait."""
_DIAL_S: Final = 2.0
"""Time limit of an attempt to connect, so that a new attempt begins soon after a partition."""
_IN_ONE_TERM: Final[Mapping[type, Callable[[Session, Any], Awaitable[m.MasterResponse]]]] = {
    m.AlterTableRequest: tables.alter_table,
    m.CreateTableRequest: tables.create_table,
    m.DeleteTableRequest: tables.delete_table,
    m.GetTableLocationsRequest: tables.get_table_locations,
    m.GetTableSchemaRequest: tables.get_table_schema,
    m.IsAlterTableDoneRequest: tables.is_alter_table_done,
    m.IsCreateTableDoneRequest: tables.is_create_table_done,
    m.ListMastersRequest: members.list_masters,
    m.ListTablesRequest: tables.list_tables,
    m.RemoveMasterRequest: members.remove_master,
}
"""Requests that only a leading master answers. Their answers get the term."""
_PLAIN: Final[Mapping[type, Callable[[Session, Any], Awaitable[Any]]]] = {
    m.ConnectToMasterRequest: members.connect_to_master,
    m.GetMasterRegistrationRequest: members.get_master_registration,
    m.ListTabletServersRequest: members.list_tablet_servers,
    m.ListTabletsRequest: tablets.list_tablets,
    raft.BulkChangeConfigRequest: members.bulk_change_config,
    raft.GetConsensusStateRequest: members.get_consensus_state,
    raft.LeaderStepDownRequest: members.leader_step_down,
}


class WireRpc:
    """A client for Kudu's RPC, with one connection per address (`targets.kudu.rpc.Caller`).

    `names` maps the uuids of servers to "node:port" and may grow. Clients may not know the
    addresses by which servers identify themselves, so answers give the addresses in `names`
    instead.
    """

    def __init__(
        self,
        env: ClientEnv,
        names: Mapping[str, str],
        *,
        user: str = "root",
        hms: bool = False,
    ) -> None:
        """Create a client that calls as `user`. Only the user who runs the servers is an admin.

        `hms` means that the masters have a metastore.
        """
        self._hms = hms
        self._env = env
        self._names = names
        self._user = user
        self._memory = Memory()
        self._attempts = itertools.count(1)
        # The id must be new, since servers remember the clients of earlier runs.
        self._client = uuid.uuid4().hex  # determinism: not simulated
        self._links: dict[Address, tuple[Connection, str]] = {}
        self._dials: dict[Address, asyncio.Task[tuple[Connection, str] | RpcError]] = {}
        self._closed = False

    async def call(self, address: Address | str, request: Call[R_co], *, timeout_s: float) -> R_co:
        """Make one call. Raises `RpcError`; if `sent`, the server may have executed the request."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        session = await self._session(parse_address(address), deadline)
        try:
            answer = await self._translated(session, request, deadline)
        except (KeyError, WireFormatError) as error:
            name = type(request).__name__
            message = f"{address} sent an answer to {name} without {error}"
            raise RpcConnectionError(message, sent=True) from error
        return cast(R_co, answer)

    async def _translated(self, s: Session, request: Any, deadline: float) -> Any:
        kind = type(request)
        if kind is m.WriteRequest:
            return await tablets.write(s, request, next(self._attempts), self._client)
        if kind is m.ScanRequest:
            return await tablets.scan(s, request, functools.partial(self._peer, deadline))
        if kind in _PLAIN:
            return await _PLAIN[kind](s, request)
        handler = _IN_ONE_TERM.get(kind)
        if kind is m.AddMasterRequest:
            host_of = functools.partial(self._host_of, deadline=deadline)
            handler = functools.partial(members.add_master, host_of=host_of)
        if handler is None:
            raise UsageError(f"real Kudu has no method for {kind.__name__}")
        if self._hms:
            handler = functools.partial(followed, handler)
        answer, lead = await s.in_one_term(functools.partial(handler, s, request))
        return tables.with_term(answer, lead.term)

    async def _peer(self, deadline: float, address: str) -> Session:
        return await self._session(parse_address(address), deadline)

    async def node_uuid(self, address: Address | str, *, timeout_s: float) -> str:
        """Return the uuid of the server at an address. Raises `RpcError`."""
        return (await self._session_for(address, timeout_s)).uuid

    async def administer(
        self,
        address: Address | str,
        work: Callable[[Session], Awaitable[T]],
        *,
        timeout_s: float,
    ) -> T:
        """Let `work` make an administrator's calls to a server. Raises `RpcError`."""
        return await work(await self._session_for(address, timeout_s))

    async def advertised(self, address: str, *, timeout_s: float = LOOK_S) -> str | None:
        """Return the "host:port" that a master advertises, or `None` if it does not answer."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            host = await self._host_of(address, deadline=deadline)
        except RpcError:
            return None
        return f"{host['host']}:{host['port']}"

    async def learn_advertised(
        self, addresses: Iterable[str], known: dict[str, str], *, timeout_s: float = LOOK_S
    ) -> None:
        """Ask each master in `addresses` that is not yet in `known` which address it advertises.

        `known` maps advertised addresses to elements of `addresses`. A master that does not answer
        is not added.
        """
        learned = set(known.values())
        missing = [address for address in addresses if address not in learned]
        ask = functools.partial(self.advertised, timeout_s=timeout_s)
        answers = await asyncio.gather(*map(ask, missing))
        pairs = zip(missing, answers, strict=True)
        known.update({place: address for address, place in pairs if place is not None})

    async def _host_of(self, address: str, *, deadline: float) -> Values:
        session = await self._session(parse_address(address), deadline)
        reply: Values = await session.ask(w.GET_MASTER_REGISTRATION)
        hosts = reply.get("registration", {}).get("rpc_addresses", ())
        if not hosts:
            reason = f"the master at {address} reports no RPC addresses"
            raise RpcConnectionError(reason, sent=False)
        host: Values = hosts[0]
        return host

    def close(self) -> None:
        """End all connections. Their unanswered calls fail with `RpcConnectionError`."""
        self._closed = True
        for task in self._dials.values():
            task.cancel()
        for connection, _ in self._links.values():
            connection.close()
        self._links.clear()

    # --- connections -------------------------------------------------------------------------

    async def _session_for(self, address: Address | str, timeout_s: float) -> Session:
        deadline = asyncio.get_running_loop().time() + timeout_s
        return await self._session(parse_address(address), deadline)

    async def _session(self, address: Address, deadline: float) -> Session:
        connection, server = await self._link(address, deadline)
        return Session(connection, server, self._names, self._memory, deadline)

    async def _link(self, address: Address, deadline: float) -> tuple[Connection, str]:
        if self._closed:
            raise RpcConnectionError("the RPC client is closed", sent=False)
        link = self._links.get(address)
        if link is not None and not link[0].broken:
            return link
        dial = self._dials.get(address)
        if dial is None:
            dial = self._env.spawn(self._dial(address), name=f"connect {address}")
            self._dials[address] = dial
            dial.add_done_callback(lambda _: self._dials.pop(address, None))
        try:
            async with asyncio.timeout_at(deadline):
                outcome = await asyncio.shield(dial)
        except TimeoutError as error:
            message = f"no connection to {address} within the deadline"
            raise RpcTimeoutError(message, sent=False) from error
        if isinstance(outcome, RpcError):
            raise outcome
        return outcome

    async def _dial(self, address: Address) -> tuple[Connection, str] | RpcError:
        connection: Connection | None = None
        link: tuple[Connection, str] | None = None
        try:
            connection = await Connection.open(self._env, address, self._user, timeout_s=_DIAL_S)
            asked = connection.call(w.GET_STATUS, {}, timeout_s=_DIAL_S)
            status: Values = await unsent(asked)
        except RpcError as error:
            return error
        else:
            server = status.get("status", {}).get("instance", {}).get("uuid")
            if not server:
                return RpcConnectionError(f"{address} does not say its uuid", sent=False)
            link = self._links[address] = connection, server
            return link
        finally:
            if connection is not None and link is None:  # also if `close` cancels this task
                connection.close()
