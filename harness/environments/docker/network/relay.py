"""A program that gives each client a source address of its own.

The harness reaches containers through published ports, so all its connections come from the
network's gateway. Packet rules could not tell clients apart. Therefore a relay container on the
network listens on one port for each pair of a client and a node's port. It opens the onward
connection from an address that only this client has. A reset on one side causes a reset on the
other side.

The harness passes this source on a command line (`python3 -c`), so it imports only the standard
library.
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
_AT_ONCE: Final = struct.pack("ii", 1, 0)  # an SO_LINGER value with which `close` sends a reset


class Route(NamedTuple):
    """One route: a connection to port `listen` continues from address `source` to `host:port`."""

    listen: int
    source: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listen}:{self.source}:{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> Route:
        """Parse the text that `str` makes of a route; raises `ValueError` for any other text."""
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
    writers = [writer]
    try:
        far_reader, far_writer = await asyncio.open_connection(
            route.host, route.port, local_addr=(route.source, 0)
        )
        writers.append(far_writer)
        async with asyncio.TaskGroup() as both:  # a reset in one direction ends both
            both.create_task(_pump(reader, far_writer))
            both.create_task(_pump(far_reader, writer))
    except (OSError, ExceptionGroup):
        for each in writers:
            with contextlib.suppress(OSError):  # the socket may be closed already
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
