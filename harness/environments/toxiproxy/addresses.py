"""An address that many callers share: each connection goes on through the proxy of its caller.

So a destination has one address for all, and a link between two ends is still a proxy of its own,
with toxics, counters and resets as ever. The source address identifies the caller, else
the kernel (`harness.environments.callers`), which does not know the owner of a connection that is
closed already. Such a connection may be of any caller, and there are two ways to be wrong. While no
caller is cut off from here it goes on to the destination at once, by a proxy that no fault touches:
nothing is lost that nothing broke. While one is, the connection is held, as packets across a cut
are sent again until they get through, and goes on when the last cut is over: nothing passes that a
cut must stop. Other callers then wait, too, which is reported, as are dropped connections.
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
"""About as long as Linux tries to open a connection across a cut (tcp(7), tcp_syn_retries)."""
_HELD_MAX: Final = 1024

_log = logging.getLogger(__name__)


class SharedAddress:
    """One listening address, and the proxy of each caller. Raises `ApiError`."""

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
        """`proxies` are by caller; `hosts` has the caller that calls from each of some addresses.

        Any other caller that the kernel knows counts as `otherwise`. For an unknown caller,
        the proxy of the caller `neutral` serves, on which no fault may lie.
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
        """Listen."""
        self._server, self.address = await listen(self.address, self._accepted)

    async def stop(self) -> None:
        """Stop listening; connections are their proxies'."""
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
                # It is open yet, so a cut that is still to come must not pass it by.
                _log.warning("%s: a caller is not known: %s", self.address, error)
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
        """The neutral proxy, as soon as no caller is cut off; `None` where that takes too long."""
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
