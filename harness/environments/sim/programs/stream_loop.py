"""An event loop that offers asyncio's transports and servers over the simulated network."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, Final, NoReturn

from harness.env import Address
from harness.environments.sim.connection import SimConn
from harness.environments.sim.programs.datagrams import DatagramTransport
from harness.environments.sim.programs.net_loop import NetLoop
from harness.environments.sim.programs.servers import StreamListener, StreamServer
from harness.environments.sim.programs.sockets import SimSocket
from harness.environments.sim.programs.transports import StreamTransport

_REFUSED: Final = {
    "TLS": "plain TCP: the simulated network needs no encryption",
    "a Unix socket": "TCP between nodes, by their names",
    "a subprocess": "a node of its own for the other program",
    "the file descriptor of a socket": "asyncio streams or transports",
}
_PORTS_MAX: Final = 65535


class StreamLoop(NetLoop):
    """A node's event loop with streams, for programs and for the driver."""

    # --- names ------------------------------------------------------------------------------

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        del flags
        return self.names.look_up(host, port, self.name, family=family, kind=type, proto=proto)

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        node = self.names.node_at(sockaddr[0], self.name)
        numeric = flags & socket.NI_NUMERICHOST
        return (sockaddr[0] if numeric or node is None else node), str(sockaddr[1])

    # --- connections ------------------------------------------------------------------------

    async def _connect(self, host: Any, port: Any) -> tuple[SimConn, tuple[str, int]]:
        *_, there = self.names.look_up(host, port, self.name, kind=socket.SOCK_STREAM)[0]
        node = self.names.node_at(there[0], self.name)
        assert node is not None, f"{there} was looked up"
        await self.thawed()
        try:
            return await self._fabric.connect(self._host, Address(node, there[1])), there
        except ConnectionRefusedError as error:
            message = f"Connect call failed {there!r}"
            raise ConnectionRefusedError(errno.ECONNREFUSED, message) from error

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        ssl: Any = None,
        sock: SimSocket | None = None,
        **_: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if ssl:
            self.refuse("TLS", _REFUSED["TLS"])
        if sock is not None:
            if sock.conn is None:
                raise ValueError(f"{sock!r} is not connected; use loop.sock_connect first")
            conn = sock.conn
        elif host is None and port is None:
            raise ValueError("host and port was not specified and no sock specified")
        else:
            conn, _there = await self._connect(host, port)
        protocol = protocol_factory()
        transport = StreamTransport(self, conn, protocol)
        opened = self.create_future()
        self.call_soon(_open, opened)
        try:
            await opened
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        sock: SimSocket | None = None,
        ssl: Any = None,
        start_serving: bool = True,
        **_: Any,
    ) -> StreamServer:
        if ssl:
            self.refuse("TLS", _REFUSED["TLS"])
        if sock is not None:
            host, port = sock.getsockname()
        hosts = [host] if host is None or isinstance(host, str) else list(host)
        places = [(self.names.binds(each, self.name), int(port or 0)) for each in hosts]

        def listening(server: StreamServer) -> list[StreamListener]:
            listeners = []
            for at, number in dict.fromkeys(places):
                listener = self._listen(server, protocol_factory, at, number)
                if listener is not None:
                    listeners.append(listener)
            return listeners

        server = StreamServer(self, listening)
        if start_serving:
            await server.start_serving()
        return server

    def _listen(
        self,
        server: StreamServer,
        factory: Callable[[], asyncio.BaseProtocol],
        at: str,
        port: int,
    ) -> StreamListener | None:
        listeners = self._host.listeners
        self._host.check_alive()
        port = port or self.free_port(listeners)
        if not 0 < port <= _PORTS_MAX:
            raise OverflowError(f"port {port} must be 0-65535")
        if port in listeners:
            if any(port == place[1] for place in server.places):
                return None  # a second address of the same node has no listener of its own
            raise OSError(
                errno.EADDRINUSE,
                f"error while attempting to bind on address {(at, port)!r}: address already in use",
            )
        loopback = at.startswith("127.")
        listener = StreamListener(self._host, port, self, factory, server, loopback=loopback)
        listeners[port] = listener
        server.places.append((at, port))
        return listener

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        local_addr: Any = None,
        remote_addr: Any = None,
        *,
        sock: SimSocket | None = None,
        **_: Any,
    ) -> tuple[DatagramTransport, asyncio.BaseProtocol]:
        if sock is not None:
            local_addr = sock.getsockname()
        host, port = local_addr or (None, 0)
        at = self.names.binds(host, self.name)
        port = int(port) or self.free_port(self.datagrams)
        if port in self.datagrams:
            raise OSError(errno.EADDRINUSE, f"address already in use: {(at, port)!r}")
        there = None
        if remote_addr is not None:
            kind = socket.SOCK_DGRAM
            places = self.names.look_up(remote_addr[0], remote_addr[1], self.name, kind=kind)
            there = places[0][-1]
        protocol = protocol_factory()
        transport = DatagramTransport(self, self._fabric, protocol, (at, port), there)
        opened = self.create_future()
        self.call_soon(_open, opened)
        await opened
        return transport, protocol

    # --- sockets that the loop connects -----------------------------------------------------

    async def sock_connect(self, sock: Any, address: Any) -> None:
        conn, there = await self._connect(*address[:2])
        sock.connected(conn, there)

    # --- what the network lacks -------------------------------------------------------------

    async def start_tls(self, *_: Any, **__: Any) -> NoReturn:
        self.refuse("TLS", _REFUSED["TLS"])

    async def create_unix_connection(self, *_: Any, **__: Any) -> NoReturn:
        self.refuse("a Unix socket", _REFUSED["a Unix socket"])

    async def create_unix_server(self, *_: Any, **__: Any) -> NoReturn:
        self.refuse("a Unix socket", _REFUSED["a Unix socket"])

    async def subprocess_exec(self, *_: Any, **__: Any) -> NoReturn:
        self.refuse("a subprocess", _REFUSED["a subprocess"])

    subprocess_shell = subprocess_exec
    connect_read_pipe = connect_write_pipe = subprocess_exec

    def _refuse_descriptor(self, *_: Any, **__: Any) -> NoReturn:
        what = "the file descriptor of a socket"
        self.refuse(what, _REFUSED[what])

    add_reader = add_writer = _refuse_descriptor  # type: ignore[assignment]
    remove_reader = remove_writer = _refuse_descriptor
    sock_recv = sock_recv_into = sock_recvfrom = sock_recvfrom_into = _refuse_descriptor
    sock_sendall = sock_sendto = sock_accept = sock_sendfile = _refuse_descriptor
    connect_accepted_socket = _refuse_descriptor

    async def sendfile(
        self,
        transport: Any,
        file: Any,
        offset: int = 0,
        count: int | None = None,
        *,
        fallback: bool = True,
    ) -> int:
        del fallback
        file.seek(offset)
        data = file.read(-1 if count is None else count)
        transport.write(data)
        return len(data)


def _open(opened: asyncio.Future[None]) -> None:
    if not opened.done():
        opened.set_result(None)
