"""The RPC layer of the bundled target: calls and answers as msgpack frames over `Env.net`.

After Kudu's `rpc/`: one cached connection per remote address, many calls on it at once, told apart
by a call id. A frame is the msgpack array `[kind, call_id, method, body]`.

* **A caller always knows what it may conclude.** Every error carries `sent`: False means that the
  request cannot have been processed (nobody listens, no connection came up, the server refused it
  unread); True means that it may have been. Operations whose answer got lost are indeterminate,
  and this flag is where that begins.
* **Frames may be lost, doubled or reordered** by the nemesis. Answers to unknown call ids are
  ignored; a call id that a connection has already shown is not run again (a bounded window, below
  which everything counts as seen).
* **Nothing waits for ever.** Every call has a deadline; all deadlines of a connection share one
  lazily re-armed timer. A call that times out on a connection which has brought nothing since that
  call was sent retires the connection: later calls open a new one, instead of queueing behind a
  black hole that outlives the partition that caused it.
* **Cheap.** No task per call at the client; at the server none for a handler that answers at once.

A handler that raises anything but `RpcHandlerError` is a bug: its task fails, which panics the
node, so that the crash checker sees it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from harness.env import FRAME_BYTES_MAX, Address, Conn, Env, Listener

__all__ = [
    "CALLS_IN_FLIGHT_MAX",
    "RpcBusyError",
    "RpcClient",
    "RpcConnectionError",
    "RpcError",
    "RpcHandlerError",
    "RpcRemoteError",
    "RpcServer",
    "RpcTimeoutError",
    "parse_address",
]

CALLS_IN_FLIGHT_MAX: Final = 256
"""Unanswered calls a server accepts per service (the part of the method before the dot), so that
hanging writes cannot starve the consensus traffic that would end them."""

_SEEN_CALLS_MAX: Final = 1024
"""The window in which a server recognises a doubled request."""
_PENDING_CALLS_MAX: Final = 4096
"""Unanswered calls a client keeps on one connection."""
_CONNECT_TIMEOUT_FIRST_S: Final = 1.0
_CONNECT_TIMEOUT_MAX_S: Final = 5.0

_REQUEST: Final = 0
_RESPONSE: Final = 1
_ERROR: Final = 2

_BUSY: Final = "ServiceUnavailable"
_REMOTE: Final = "RemoteError"

Response = TypeVar("Response", bound=msgspec.Struct)
Handler = Callable[[Any, str], Awaitable[msgspec.Struct] | msgspec.Struct]


class RpcError(Exception):
    """A call that brought no answer. `sent` False: it was certainly not processed."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class RpcTimeoutError(RpcError):
    """The deadline passed; with `sent` the call may still be processed later."""


class RpcConnectionError(RpcError):
    """No connection came up (`sent` False), or it broke before the answer came (`sent` True)."""


class RpcRemoteError(RpcError):
    """The server answered that it cannot handle the call: unknown method, unreadable request, or
    a handler that said so by `RpcHandlerError`. `message` is the server's.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message, sent=sent)
        self.message = message


class RpcBusyError(RpcError):
    """The server has too many calls in flight and did not start this one (`sent` is False)."""


class RpcHandlerError(Exception):
    """Raised by a handler to answer with a remote error that carries the message."""


def parse_address(address: Address | str) -> Address:
    """`Address` from `"node:port"`; raises `ValueError` quoting what is wrong."""
    if isinstance(address, Address):
        return address
    node, separator, port = address.rpartition(":")
    if not separator or not node or not port.isdigit():
        raise ValueError(f"the address {address!r} is not NODE:PORT, e.g. m1:7051")
    return Address(node, int(port))


class RpcServer:
    """Serves registered methods on one port of the node.

    `handler(request, peer)` is a coroutine function, or a plain function that returns either the
    answer at once (no task is made) or an awaitable of it. `peer` is the caller's node name.
    """

    def __init__(
        self, env: Env, port: int, *, calls_in_flight_max: int = CALLS_IN_FLIGHT_MAX
    ) -> None:
        self._env = env

    def register(self, method: str, handler: Handler, request_type: type[msgspec.Struct]) -> None:
        """Serve `method`, e.g. `MasterService.CreateTable`; a second handler is an error."""

    async def start(self) -> None:
        """Listen. Methods may be registered before or after."""

    def close(self) -> None:
        """Stop listening and end all connections; calls that run go on without an answer."""


class RpcClient:
    """Calls methods of other nodes over one cached connection per address."""

    def __init__(self, env: Env) -> None:
        self._env = env

    async def call(
        self,
        address: Address | str,
        method: str,
        request: msgspec.Struct,
        response_type: type[Response],
        *,
        timeout_s: float,
    ) -> Response:
        """One attempt, no retry. Raises an `RpcError`; see its `sent`."""
        raise NotImplementedError

    def close(self) -> None:
        """End all connections; calls under way fail with `RpcConnectionError`."""
