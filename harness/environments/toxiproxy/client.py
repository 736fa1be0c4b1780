"""A typed client of the Toxiproxy API, for the harness's server and for a real Toxiproxy.

The client keeps one connection open, and every request has a timeout. Errors include URL, status
and body for every content type. (`toxiproxy-python` has none of these features.) If the kept
connection has been closed by the server, the client sends the request again, but only if the
request is idempotent.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from harness.environments.toxiproxy.metrics import RECEIVED, SENT, SWALLOWED, parse_metrics
from harness.errors import InfrastructureError
from harness.support.http1 import fetch, hang_up

TIMEOUT_S: Final = 10.0

T = TypeVar("T")


class ToxiproxyError(InfrastructureError):
    """A request to a Toxiproxy failed. `status` is 0 if there was no answer."""

    def __init__(self, method: str, url: str, status: int, body: str) -> None:
        super().__init__(f"{method} {url}: {f'status {status}: ' if status else ''}{body.strip()}")
        self.method = method
        self.url = url
        self.status = status
        self.body = body


class ToxicInfo(msgspec.Struct, frozen=True):
    """A toxic, as the server describes it."""

    name: str
    type: str
    stream: str
    attributes: dict[str, Any]
    toxicity: float = 1.0


class ProxyInfo(msgspec.Struct, frozen=True):
    """A proxy, as the server describes it."""

    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: tuple[ToxicInfo, ...] = ()


class _Populated(msgspec.Struct, frozen=True):
    proxies: tuple[ProxyInfo, ...] | None  # Go encodes an empty list as null


class _WasReset(msgspec.Struct, frozen=True):
    connections: int


class ToxiproxyClient:
    """A client of one Toxiproxy server. Every method may raise `ToxiproxyError`."""

    def __init__(self, url: str, *, token: str = "", timeout_s: float = TIMEOUT_S) -> None:
        """`token` is the token of a server that the harness started. A real Toxiproxy has none."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ToxiproxyError("", url, 0, "the address must have the form http://HOST:PORT")
        self.host = parts.hostname
        self.port = parts.port or 8474
        self.token = token
        self._timeout_s = timeout_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    def url(self, *path: str) -> str:
        """Return the URL of a resource, with each part of the path quoted."""
        quoted = "/".join(urllib.parse.quote(part, safe="") for part in path)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/{quoted}"

    # --- proxies -----------------------------------------------------------------------------

    async def version(self) -> str:
        """Return the server's answer about its version: plain text (old servers) or JSON."""
        return (await self._request("GET", "version")).decode("utf-8", "replace")

    async def proxies(self) -> dict[str, ProxyInfo]:
        return self._decode(await self._request("GET", "proxies"), dict[str, ProxyInfo])

    async def populate(self, proxies: Sequence[tuple[str, str, str]]) -> tuple[ProxyInfo, ...]:
        """Create many proxies at once, from (name, listen, upstream)."""
        body = [
            {"name": name, "listen": listen, "upstream": upstream, "enabled": True}
            for name, listen, upstream in proxies
        ]
        answer = await self._request("POST", "populate", body=body)
        return self._decode(answer, _Populated).proxies or ()

    async def delete(self, proxy: str) -> None:
        """Remove a proxy. A missing proxy is no error."""
        await self._request("DELETE", "proxies", proxy, accept=(404,))

    async def enable(self, proxy: str, *, enabled: bool) -> None:
        """Switch a proxy on or off. Switching it off closes its connections."""
        # newer servers call POST deprecated, but all versions accept it
        await self._request("POST", "proxies", proxy, body={"enabled": enabled})

    async def reset_connections(self, proxy: str) -> int:
        """Reset a proxy's open connections; returns how many. Needs the harness's server."""
        raw = await self._request("POST", "proxies", proxy, "reset")
        return self._decode(raw, _WasReset).connections

    async def share_address(
        self,
        listen: str,
        *,
        callers: str,
        proxies: Mapping[str, str],
        hosts: Mapping[str, str],
        otherwise: str,
        neutral: str,
    ) -> None:
        """Create a shared address (`SharedAddress`). Only the harness's server can do this."""
        body = {
            "listen": listen,
            "callers": callers,
            "proxies": dict(proxies),
            "hosts": dict(hosts),
            "otherwise": otherwise,
            "neutral": neutral,
        }
        await self._request("POST", "addresses", body=body)

    # --- toxics --------------------------------------------------------------------------------

    async def add_toxic(
        self, proxy: str, name: str, kind: str, stream: str, attributes: dict[str, int]
    ) -> None:
        body = {"name": name, "type": kind, "stream": stream, "attributes": attributes}
        await self._request("POST", "proxies", proxy, "toxics", body=body)

    async def remove_toxic(self, proxy: str, name: str) -> None:
        """Remove a toxic. A missing toxic or proxy is no error."""
        await self._request("DELETE", "proxies", proxy, "toxics", name, accept=(404,))

    async def metrics(self) -> dict[tuple[str, str, str], float] | None:
        """Return the server's counters by (family, proxy, direction), or `None` if it has none."""
        raw = await self._request("GET", "metrics", accept=(404,))
        text = raw.decode("utf-8", "replace")
        if text.startswith("404 "):
            return None
        try:
            return parse_metrics(text, (RECEIVED, SENT, SWALLOWED))
        except ValueError as error:
            raise ToxiproxyError("GET", self.url("metrics"), 200, str(error)) from error

    # --- requests --------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the connection to the server at once. An answer that still arrives is discarded."""
        if self._streams is None:
            return
        (_, writer), self._streams = self._streams, None
        await hang_up(writer)

    def _decode(self, raw: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.DecodeError as error:
            raise ToxiproxyError("", self.url(), 200, f"{error}: {raw[:500]!r}") from error

    async def _request(
        self, method: str, *path: str, body: object = None, accept: tuple[int, ...] = ()
    ) -> bytes:
        url = self.url(*path)
        content = b"" if body is None else msgspec.json.encode(body)
        async with self._turn:
            try:
                async with asyncio.timeout(self._timeout_s):
                    status, answer = await self._exchange(method, url, content)
            except (OSError, EOFError, ValueError) as error:
                await self.close()
                raise ToxiproxyError(method, url, 0, repr(error)) from error
            except asyncio.CancelledError:
                # an answer may still arrive, so the connection cannot be used again
                await self.close()
                raise
        if status >= 300 and status not in accept:
            raise ToxiproxyError(method, url, status, answer.decode("utf-8", "replace"))
        return answer

    async def _exchange(self, method: str, url: str, content: bytes) -> tuple[int, bytes]:
        kept = self._streams is not None
        try:
            return await self._exchange_once(method, url, content)
        except (ConnectionError, EOFError):
            if not kept or method == "POST":
                raise
            await self.close()
            return await self._exchange_once(method, url, content)

    async def _exchange_once(self, method: str, url: str, content: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self.host, self.port)
        reader, writer = self._streams
        parts = urllib.parse.urlsplit(url)
        headers = [
            ("Host", parts.netloc),
            ("User-Agent", "harness"),
            ("Content-Type", "application/json"),
        ]
        if self.token:
            headers.append(("Authorization", f"Bearer {self.token}"))
        response, lives_on = await fetch(reader, writer, method, parts.path, headers, content)
        if not lives_on:
            await self.close()
        return response.status, response.body
