"""The program by which clients that have links of their own call from addresses of their own.

The harness reaches containers through published ports, and all that comes in there wears the
address of the network's gateway. So a container on the network listens on a port for each client
and each port of a node, and goes on from an address that is the client's alone: the nodes' rules
then tell clients apart as they tell nodes apart. It runs as text on a command line, so it imports
the standard library only. A reset on one side becomes one on the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
import sys
from typing import Final, NamedTuple

_READ_BYTES: Final = 1 << 16
_BACKLOG: Final = 1024
_AT_ONCE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: the end of the connection is a reset


class Route(NamedTuple):
    """Connections to `listen` go on from the address `source` to `host:port`."""

    listen: int
    source: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listen}:{self.source}:{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> Route:
        """The inverse of `str`; raises `ValueError`."""
        listen, source, host, port = text.split(":")
        return Route(int(listen), source, host, int(port))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_READ_BYTES):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def _pass_on(
    route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One connection, to its end."""
    writers = [writer]
    try:
        far_reader, far_writer = await asyncio.open_connection(
            route.host, route.port, local_addr=(route.source, 0)
        )
        writers.append(far_writer)
        async with asyncio.TaskGroup() as both:  # the first that is reset ends the other
            both.create_task(_pump(reader, far_writer))
            both.create_task(_pump(far_reader, writer))
    except (OSError, ExceptionGroup):
        for each in writers:
            with contextlib.suppress(OSError):  # the one that was reset has no socket any more
                end = each.get_extra_info("socket")
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            each.transport.abort()
    finally:
        for each in writers:
            each.close()


async def _serve(routes: list[Route]) -> None:
    everywhere = "0.0.0.0"  # noqa: S104 - in a container of its own
    servers = [
        await asyncio.start_server(
            functools.partial(_pass_on, route), everywhere, route.listen, backlog=_BACKLOG
        )
        for route in routes
    ]
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(_serve([Route.parse(word) for word in sys.argv[1:]]))
