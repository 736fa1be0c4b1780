"""TCP connections to others, and never to oneself.

A socket that connects to a free port of its own machine in the ephemeral range may be given this
very port, and TCP then connects it to itself (simultaneous open, RFC 9293 section 3.5): the caller
reads its own request as an answer. Ports that an engine publishes are in that range.
"""

from __future__ import annotations

import asyncio


async def dial(
    host: str, port: int, *, limit: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """`asyncio.open_connection`; raises `ConnectionRefusedError` where only the caller answers."""
    reader, writer = await asyncio.open_connection(host, port, limit=limit)
    if writer.get_extra_info("sockname") == writer.get_extra_info("peername"):
        writer.transport.abort()
        raise ConnectionRefusedError(
            f"{host}:{port} has no listener: the socket connected to itself"
        )
    return reader, writer
