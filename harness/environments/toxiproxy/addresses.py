"""An address that many callers share: each connection goes on through the proxy of its caller.

So a destination has one address for all, and a link between two ends is still a proxy of its own,
with toxics, counters and resets as ever. See `harness.environments.callers`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from harness.environments.callers import CallerBook, CallerGoneError
from harness.environments.toxiproxy.proxy import ApiError, Proxy, listen
from harness.errors import InfrastructureError

__all__ = ["SharedAddress"]

_log = logging.getLogger(__name__)


class SharedAddress:
    """One listening address, and the proxy of each caller. Raises `ApiError`."""

    def __init__(
        self, address: str, book: CallerBook, proxies: Mapping[str, Proxy], *, otherwise: str
    ) -> None:
        """Who is not in the book is taken for the caller `otherwise`."""
        if otherwise not in proxies:
            raise ApiError(400, f"there is no proxy for the caller {otherwise!r}")
        self.address = address
        self._book = book
        self._proxies = proxies
        self._otherwise = otherwise
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
        try:
            caller = await self._book.wait_found(
                writer.get_extra_info("peername"), writer.get_extra_info("sockname")
            )
            proxy = self._proxies.get(caller or "", self._proxies[self._otherwise])
        except CallerGoneError:
            # It may have been on the other side of a cut. It waits for no answer, at least.
            _log.info("%s: a caller was gone before it was known; dropped", self.address)
            writer.transport.abort()
            return
        except (OSError, InfrastructureError) as error:
            _log.warning("%s: a caller is not known and was dropped: %s", self.address, error)
            writer.transport.abort()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        proxy.adopt(reader, writer)
