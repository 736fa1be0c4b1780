"""The gateway: one listening socket per bundled server, to which Kudu's own clients connect.

The gateway runs in the harness's own process. Its calls use the clients' links, so link faults
affect them. For each accepted connection, the gateway opens a connection to the server. If that
connection breaks, or the server does not answer the handshake in time, the accepted connection
ends. If the server does not answer a call in time, the client gets no answer either, as if the
server were paused or cut off. The gateway sends each call once.

A defect of the gateway ends the run without a verdict.
"""

from __future__ import annotations

import asyncio
import socket  # determinism: not simulated
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from harness.env import ClientEnv
from targets.apache_kudu.gateway.groups import MASTER_GROUP_CALLS, TSERVER_GROUP_CALLS
from targets.apache_kudu.gateway.link import CallError, Handler, Link, Request
from targets.apache_kudu.gateway.masters import MASTER_CALLS
from targets.apache_kudu.gateway.tablets import TSERVER_CALLS
from targets.apache_kudu.wire.connection import Reply
from targets.apache_kudu.wire.errors import RpcCode
from targets.apache_kudu.wire.frames import (
    CONTEXT_ID,
    GREETING,
    LENGTH_BYTES,
    NEGOTIATION_ID,
    Asked,
    Step,
    answer_frame,
    error_frame,
    read_request,
    step_frame,
)
from targets.apache_kudu.wire.methods import Method
from targets.apache_kudu.wire.protobuf import WireFormatError, decode, encode
from targets.kudu import messages as m
from targets.kudu.rpc import (
    Caller,
    RpcBusyError,
    RpcError,
    RpcRemoteError,
    RpcTimeoutError,
    parse_address,
)
from targets.kudu.tserver.write_op import PAYLOAD_BYTES_MAX

_HOST: Final = "127.0.0.1"
_HANDSHAKE_S: Final = 3.0
"""The time limit of a handshake: Kudu's `rpc_negotiation_timeout_ms`."""
_CALL_S_MAX: Final = 60.0
"""The maximum time limit of a call, and the default if the client sets no limit."""
_REQUEST_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
"""Maximum size of a request, because bundled servers accept no larger write."""
_CONNECTIONS_MAX: Final = 400
"""Maximum number of connections; further ones are closed at once.

Each connection takes two of the harness process's file descriptors.
"""
_CALLS_MAX: Final = 256
Calls = Mapping[tuple[str, str], tuple[Method, Handler]]


def _by_name(*tables: Mapping[Method, Handler]) -> Calls:
    return {
        (method.service, method.name): (method, handler)
        for table in tables
        for method, handler in table.items()
    }


MASTER: Final = _by_name(MASTER_CALLS, MASTER_GROUP_CALLS)
TSERVER: Final = _by_name(TSERVER_CALLS, TSERVER_GROUP_CALLS)


class Gateway:
    """The sockets in front of the bundled servers of one deployment."""

    def __init__(
        self,
        env: ClientEnv,
        dial: Callable[[], Caller],
        masters: Iterable[str],
        tservers: Iterable[str],
    ) -> None:
        """Serve `masters` and `tservers` ("node:port"). `dial` creates a bundled RPC client."""
        self.places: dict[str, tuple[str, int]] = {}
        """The host and port at which clients reach each server, by the server's address."""
        self.names: dict[str, str] = {}
        """The addresses of servers by uuid, as learned from connections and answers."""
        self.uuids: dict[str, str] = {}
        """The uuids of servers by "host:port"."""
        self._own: dict[str, tuple[str, int]] = {}
        self.env = env
        self._dial = dial
        self.connections = 0
        """The number of open connections."""
        self._calls = {**dict.fromkeys(masters, MASTER), **dict.fromkeys(tservers, TSERVER)}

    def start(self) -> None:
        """Listen for every server until the environment ends. Repeated calls do nothing."""
        for address in self._calls:
            if address not in self.places:
                self.places[address] = self._open(address)

    def _open(self, address: str) -> tuple[str, int]:
        held = socket.create_server((_HOST, 0))
        host, port = held.getsockname()
        self.env.spawn(self._listen(address, held), name=f"gateway of {address}")
        return host, port

    async def _listen(self, address: str, held: socket.socket) -> None:
        with held:
            accept = partial(self._accept, address)
            server = await asyncio.start_server(accept, sock=held)  # determinism: not simulated
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                server.close()

    def place_of(self, address: str, uuid: str | None = None) -> tuple[str, int]:
        """Return the host and port at which clients reach the server with this address and uuid.

        Kudu's clients identify the replicas of a tablet by host and port only. A server that was
        wiped has a new uuid, and therefore gets another port: each port belongs to a single uuid.
        """
        if address not in self.places:
            node, port = parse_address(address)
            return node, port
        if uuid is None:
            return self.places[address]
        if uuid not in self._own:
            is_first = address not in self.names.values()
            host, port = self.places[address] if is_first else self._open(address)
            self._own[uuid] = host, port
            self.names[uuid] = address
            self.uuids[f"{host}:{port}"] = uuid
        return self._own[uuid]

    def _accept(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self.connections == _CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self.connections += 1
        if self.connections == _CONNECTIONS_MAX:
            self.env.event("gateway-full", connections=self.connections)
        self.env.spawn(self._serve(address, reader, writer), name=f"gateway of {address}")

    async def _serve(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        rpc = self._dial()
        tasks: dict[asyncio.Task[None], None] = {}
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                link = await self._shake_hands(rpc, address, reader, writer)
            while True:
                await writer.drain()  # wait until the client has read its answers
                asked = read_request(await _read_frame(reader))
                if asked.call_id == CONTEXT_ID:
                    continue
                if len(tasks) >= _CALLS_MAX:
                    text = f"{len(tasks)} calls of this connection wait for an answer already"
                    writer.write(error_frame(asked.call_id, RpcCode.TOO_BUSY, text))
                    continue
                call = self._answer(link, asked, writer)
                task = self.env.spawn(call, name=f"{asked.method} at {address}")
                tasks[task] = None
                task.add_done_callback(tasks.pop)
        except (OSError, EOFError, WireFormatError, RpcError, TimeoutError):
            return  # the client's connection ends without an answer
        finally:
            for task in [*tasks]:
                task.cancel()
            rpc.close()
            self.connections -= 1
            writer.transport.abort()

    async def _shake_hands(
        self,
        rpc: Caller,
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> Link:
        if await reader.readexactly(len(GREETING)) != GREETING:
            raise WireFormatError("the client does not speak Kudu's RPC")
        uuid = await self._uuid(rpc, address)
        self.place_of(address, uuid)
        for step in (Step.NEGOTIATE, Step.SUCCESS):
            if read_request(await _read_frame(reader)).call_id != NEGOTIATION_ID:
                raise WireFormatError("a call before the end of the handshake")
            writer.write(step_frame(step))
        return Link(rpc, address, uuid, self.place_of)

    async def _uuid(self, rpc: Caller, address: str) -> str:
        if self._calls[address] is MASTER:
            asked = m.GetMasterRegistrationRequest()
            return (await rpc.call(address, asked, timeout_s=_HANDSHAKE_S)).meta.master_uuid
        return (await rpc.call(address, m.ListTabletsRequest(), timeout_s=_HANDSHAKE_S)).ts_uuid

    async def _answer(self, link: Link, asked: Asked, writer: asyncio.StreamWriter) -> None:
        """Send the answer to one call. If the server's connection breaks, end the client's too."""
        try:
            frame = await self._frame(link, asked)
        except RpcTimeoutError:
            return
        except RpcError:
            writer.transport.abort()
            return
        writer.write(frame)

    async def _frame(self, link: Link, asked: Asked) -> bytes:
        named = self._calls[link.address].get((asked.service, asked.method))
        if named is None:
            text = f"the bundled servers have no method {asked.service}.{asked.method}"
            return error_frame(asked.call_id, RpcCode.NO_SUCH_METHOD, text)
        method, handler = named
        limit_s = min(asked.timeout_ms / 1000 or _CALL_S_MAX, _CALL_S_MAX)
        try:
            values = decode(method.request, asked.body)
            reply = await handler(link, Request(values, limit_s, asked.rows_id))
        except CallError as error:
            return error_frame(asked.call_id, error.code, str(error))
        except WireFormatError as error:
            return error_frame(asked.call_id, RpcCode.INVALID_REQUEST, str(error))
        except RpcBusyError as error:
            return error_frame(asked.call_id, RpcCode.TOO_BUSY, str(error))
        except RpcRemoteError as error:
            return error_frame(asked.call_id, RpcCode.APPLICATION, str(error))
        sidecars = reply.sidecars if isinstance(reply, Reply) else ()
        return answer_frame(asked.call_id, encode(method.answer, reply), sidecars)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    if size > _REQUEST_BYTES_MAX:
        raise WireFormatError(f"a request of {size} bytes; the limit is {_REQUEST_BYTES_MAX}")
    return await reader.readexactly(size)
