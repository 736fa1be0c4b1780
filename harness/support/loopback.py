"""Names in `Host` that a server answers to, because no foreign page can point them here.

A foreign page whose name resolves to 127.0.0.1 (DNS rebinding) could read the answers of a server
of this machine, unless the server checks `Host`: the browser sends the name of the page there.
"""

from __future__ import annotations

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
    """Whether a host, an address or a name without brackets, is the loopback device."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _named(header: str | None) -> str:
    """The host without brackets and port; empty where there is none."""
    match = None if header is None else _HOST.fullmatch(header.strip())
    if match is None:
        return ""
    bracketed, plain = match.groups()
    if bracketed is None:
        return str(plain)
    # Only an IPv6 address has brackets (RFC 3986, 3.2.2).
    return str(bracketed) if ":" in bracketed else ""


def names_loopback(header: str | None) -> bool:
    """Whether a `Host` header names the loopback device; one that is missing does not."""
    return is_loopback(_named(header))


def names_neighbour(header: str | None) -> bool:
    """Whether a `Host` header has an address or a name of one label, as nodes have in Docker.

    Such names are not of the public DNS, so no foreign page has one.
    """
    host = _named(header)
    return bool(host) and (_address(host) is not None or "." not in host)
