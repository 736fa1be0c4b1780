"""Sockets of simulated programs, which only carry addresses: the event loop does all the work.

Libraries create a socket, set options on it, and pass it to the loop (`sock_connect`,
`create_connection(sock=...)`, `create_server(sock=...)`). Methods of a socket that send or wait
raise an error that names the method.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from harness.environments.sim.connection import SimConn
    from harness.environments.sim.programs.net_loop import NetLoop

_REFUSED: Final = (
    *("accept", "connect", "connect_ex", "recv", "recv_into", "recvfrom", "recvmsg", "send"),
    *("sendall", "sendto", "sendmsg", "sendfile", "makefile", "share"),
)
_FDS_FROM: Final = 2_000_000  # not real descriptors, so a real system call on one fails


class SimSocket:
    """A socket of the simulated network."""

    def __init__(
        self,
        loop: NetLoop,
        family: int = socket.AF_INET,
        kind: int = socket.SOCK_STREAM,
        proto: int = 0,
        *,
        here: Any = ("0.0.0.0", 0),  # noqa: S104 - an address of a simulated network
        there: Any = None,
    ) -> None:
        self.family = socket.AddressFamily(family if family != -1 else socket.AF_INET)
        self.type = socket.SocketKind(kind if kind != -1 else socket.SOCK_STREAM)
        self.proto = max(proto, 0)
        self.conn: SimConn | None = None
        self.bound = False
        self._loop = loop
        self._here, self._there = here, there
        self._options: dict[tuple[int, int], Any] = {}
        self._fd = loop.next_fd() + _FDS_FROM
        self._timeout: float | None = None

    def bind(self, address: Any) -> None:
        self._here, self.bound = (
            (self._loop.names.binds(address[0], self._loop.name), address[1]),
            True,
        )

    def listen(self, backlog: int = 128) -> None:
        """Do nothing: the loop listens once `create_server` gets the socket."""

    def connected(self, conn: SimConn, there: Any) -> None:
        self.conn, self._there = conn, there

    def getsockname(self) -> Any:
        return self._here

    def getpeername(self) -> Any:
        if self._there is None:
            raise OSError(107, "Transport endpoint is not connected")
        return self._there

    def setsockopt(self, level: int, option: int, value: Any, *_: Any) -> None:
        self._options[level, option] = value

    def getsockopt(self, level: int, option: int, *_: Any) -> Any:
        return self._options.get((level, option), 0)

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        return self._timeout

    def getblocking(self) -> bool:
        return self._timeout != 0.0

    def set_inheritable(self, inheritable: bool) -> None:
        """Do nothing: simulated programs start no processes."""

    def fileno(self) -> int:
        return self._fd

    def shutdown(self, how: int) -> None:
        if self.conn is not None and how != socket.SHUT_RD:
            self.conn.finish()

    def detach(self) -> int:
        self._fd, fd = -1, self._fd
        return fd

    def close(self) -> None:
        self._fd = -1
        if self.conn is not None:
            self.conn.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in _REFUSED:
            self._loop.refuse(f"socket.{name}", "asyncio streams or transports, which wait nowhere")
        raise AttributeError(f"a simulated socket has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<SimSocket {self._here} to {self._there}>"
