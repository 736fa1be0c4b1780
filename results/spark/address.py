"""Checks, before Spark starts, that the address in `--spark-master` accepts connections.

Spark itself takes minutes to report an absent server, and its messages are unclear. The check opens
a connection and closes it, without sending anything.
"""

from __future__ import annotations

import socket
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Final

from harness.errors import InfrastructureError, UsageError

CONNECT_PORT: Final = 15002  # the default port of Spark Connect; a standalone master has no default
CONNECT_TIMEOUT_S: Final = 5.0
MASTERS_MAX: Final = 16
PROXY_SCHEMES: Final = ("grpc", "https", "http")


def addresses_of(url: str) -> list[tuple[str, int]]:
    """Return host and port of each address in a `spark://` or `sc://` URL, else an empty list.

    Raises `UsageError` if a host or port is missing.
    """
    scheme, _, rest = url.partition("://")
    if scheme not in {"spark", "sc"}:
        return []
    places = rest.split(",") if scheme == "spark" else [rest.partition("/")[0]]
    if len(places) > MASTERS_MAX:
        raise UsageError(f"--spark-master is {url!r}; name at most {MASTERS_MAX} masters")
    return [_address(place, url, CONNECT_PORT if scheme == "sc" else None) for place in places]


def _address(place: str, url: str, port_default: int | None) -> tuple[str, int]:
    try:
        parts = urllib.parse.urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port or port_default
    except ValueError:
        host, port = None, None
    if not host or port is None:
        raise UsageError(f"--spark-master is {url!r}; write spark://host:port or sc://host:port")
    return host, port


def check_reachable(url: str) -> None:
    """Raise `InfrastructureError` if no address in `url` accepts connections."""
    addresses = addresses_of(url)
    if not addresses or (url.startswith("sc://") and _behind_proxy(addresses[0][0])):
        return
    reasons = _reasons_against(addresses)
    if len(reasons) == len(addresses):
        raise InfrastructureError(
            f"--spark-master is {url!r}, which accepts no connection ({'; '.join(reasons)}); "
            "start the master, or name another"
        )


def _reasons_against(addresses: Sequence[tuple[str, int]]) -> list[str]:
    """Return a reason per unreachable address. Stop at the first reachable address."""
    reasons: list[str] = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except TimeoutError:
            reasons.append(f"{host}:{port}: no answer within {CONNECT_TIMEOUT_S:g} s")
        except (OSError, UnicodeError) as error:
            reasons.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
        else:
            break
    return reasons


def _behind_proxy(host: str) -> bool:
    """Whether gRPC would connect to `host` through a proxy."""
    proxies = urllib.request.getproxies()
    if not any(proxies.get(scheme) for scheme in PROXY_SCHEMES):
        return False
    return not urllib.request.proxy_bypass(host)
