"""One listening address per destination, which passes each connection to its caller's own proxy.

All callers use one address of a destination, but each link between two ends has its own proxy, with
its own toxics, counters and resets. The server identifies the caller by its source address, or else
asks the kernel (`harness.environments.callers`).

The kernel does not know the owner of a connection that is already closed. Such a connection may
come from any caller. It must not be lost without a fault, and it must not pass a cut. While no
caller is cut off from this destination, the connection continues at once, through a proxy that no
fault affects. While any caller is cut off, the server holds the connection until the last cut is
over, as TCP retransmits when a cut is over. Holding may also delay callers that are not cut off, so
the server reports held and dropped connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from harness.environments.callers import CallerBook, CallerGoneError
from harness.environments.toxiproxy.proxy import ApiError, Proxy, Withheld, listen
from harness.errors import InfrastructureError

_POLL_S: Final = 0.02
_HELD_S_MAX: Final = 120.0
"""How long a connection is held at most, close to Linux's time to connect (tcp_syn_retries)."""
_HELD_MAX: Final = 1024

_log = logging.getLogger(__name__)


class SharedAddress:
    """A listening address that passes each connection to its caller's own proxy."""

    def __init__(
        self,
        address: str,
        book: CallerBook,
        proxies: Mapping[str, Proxy],
        *,
        hosts: Mapping[str, str],
        otherwise: str,
        neutral: str,
        report: Callable[[Withheld], None],
    ) -> None:
        """`proxies` maps callers to proxies, and `hosts` maps source addresses to callers.

        A caller that is unknown or has no proxy counts as `otherwise`. A connection that its caller
        has already closed gets the proxy of `neutral`, which must have no faults. Raises `ApiError`
        if `otherwise` or `neutral` has no proxy.
        """
        for caller in (otherwise, neutral):
            if caller not in proxies:
                raise ApiError(400, f"there is no proxy for the caller {caller!r}")
        self.address = address
        self._book = book
        self._proxies = proxies
        self._hosts = hosts
        self._otherwise = proxies[otherwise]
        self._neutral = proxies[neutral]
        self._report = report
        self._held = 0
        self._dropped = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server, self.address = await listen(self.address, self._accepted)

    async def stop(self) -> None:
        """Stop listening, and drop connections that have no proxy yet. Proxies keep theirs."""
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._hand_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = (writer.get_extra_info(name) for name in ("peername", "sockname"))
        proxy: Proxy | None = None
        try:
            try:
                caller = self._hosts.get(there[0]) or await self._book.wait_found(there, here)
                proxy = self._proxies.get(caller or "", self._otherwise)
            except CallerGoneError:
                proxy = await self._proxy_once_whole()
            except (OSError, InfrastructureError) as error:
                # The connection is still open, so through `neutral` it could pass a cut. Drop it.
                _log.warning("%s: a caller cannot be identified: %s", self.address, error)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        if proxy is None:
            self._dropped += 1
            self._tell()
            writer.transport.abort()
            return
        proxy.adopt(reader, writer)

    async def _proxy_once_whole(self) -> Proxy | None:
        """Wait until no caller is cut off; returns the neutral proxy, or `None` after a timeout."""
        if self._is_any_cut():
            if self._held >= _HELD_MAX:
                return None
            self._held += 1
            if self._held == 1:
                self._tell()
            try:
                async with asyncio.timeout(_HELD_S_MAX):
                    while self._is_any_cut():  # noqa: ASYNC110 - a poll
                        await asyncio.sleep(_POLL_S)
            except TimeoutError:
                return None
            finally:
                self._held -= 1
                if self._held == 0:
                    self._tell()
        return self._neutral

    def _is_any_cut(self) -> bool:
        return any(proxy.is_cut("upstream") for proxy in self._proxies.values())

    def _tell(self) -> None:
        self._report(Withheld(self.address, self._held, self._dropped))
