"""A psycopg connection with one call in progress, for clients of PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import socket  # determinism: never in a simulation; closes a connection to a silent server
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class DriverLink:
    """An `AsyncConnection` of psycopg whose calls are never cancelled.

    When psycopg is cancelled, it asks the server to stop and waits for the reply, which takes
    seconds if the link is cut. Each call therefore runs in a task of its own, which continues in
    the background.
    """

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._asked: asyncio.Task[Any] | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed or bool(self.connection.closed)

    async def answer(self, asking: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
        """Wait for the driver's answer. If none comes within `timeout_s`, close the connection."""
        self._asked = asyncio.ensure_future(asking)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._asked)
        finally:
            if not self._asked.done():
                self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._asked is None or self._asked.done():
            self.connection.pgconn.finish()
            return
        # The driver's task still uses the socket, so only shut it down here; `_end` closes it.
        self._asked.add_done_callback(self._end)
        descriptor = self.connection.pgconn.socket
        with (
            contextlib.suppress(OSError),  # raised if the peer has closed the connection
            socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM) as twin,
        ):
            twin.shutdown(socket.SHUT_RDWR)

    def _end(self, asked: asyncio.Task[Any]) -> None:
        if not asked.cancelled():
            asked.exception()  # retrieve the exception, so that asyncio does not log it
        self.connection.pgconn.finish()
