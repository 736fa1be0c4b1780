"""Protects loopback servers from foreign web pages, and clients from connecting to themselves.

A foreign web page whose name resolves to 127.0.0.1 (DNS rebinding) can read the answers of a server
on this machine, unless the server checks `Host`, where the browser sends the page's name.

A socket that connects to a free port of its own machine, in the ephemeral range, may get this port
as its own port. TCP then connects the socket to itself (simultaneous open, RFC 9293 section 3.5),
and the caller reads its own request as an answer. Ports that a container engine publishes are in
the ephemeral range.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from typing import Final

_HOST: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*))(?::[0-9]{0,5})?")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether `host` (an address without brackets, or a name) is the loopback device."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _named(header: str | None) -> str:
    """Return the host in a `Host` header, without brackets and port; "" if it names none."""
    match = None if header is None else _HOST.fullmatch(header.strip())
    if match is None:
        return ""
    bracketed, plain = match.groups()
    if bracketed is None:
        return str(plain)
    # Only an IPv6 address may be in brackets (RFC 3986, 3.2.2).
    return str(bracketed) if ":" in bracketed else ""


def names_loopback(header: str | None) -> bool:
    """Whether a `Host` header refers to the loopback device; false if the header is missing."""
    return is_loopback(_named(header))


def names_neighbour(header: str | None) -> bool:
    """Whether a `Host` header has an address or a name without a dot, like a node in Docker.

    Such names do not exist in the public DNS, so no foreign page has one.
    """
    host = _named(header)
    return bool(host) and (_address(host) is not None or "." not in host)


async def dial(
    host: str, port: int, *, limit: int = 65536
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect like `asyncio.open_connection`.

    Raises `ConnectionRefusedError` if the socket connected to itself.
    """
    reader, writer = await asyncio.open_connection(host, port, limit=limit)
    if writer.get_extra_info("sockname") == writer.get_extra_info("peername"):
        writer.transport.abort()
        raise ConnectionRefusedError(
            f"{host}:{port} has no listener: the socket connected to itself"
        )
    return reader, writer
