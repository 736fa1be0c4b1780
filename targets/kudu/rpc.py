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
import contextlib
import functools
import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

import msgspec

from harness.env import FRAME_BYTES_MAX, Address, Conn, Env, Listener

__all__ = [
    "CALLS_IN_FLIGHT_MAX",
    "Handler",
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
_CONNECTIONS_MAX: Final = 1024
"""Connections a server keeps; further ones are closed at once."""
_PARSED_ADDRESSES_MAX: Final = 1024
_TIMER_SLACK_S: Final = 1e-6
"""Loops round deadlines; without slack a timer could fire again and again at one instant."""
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


class _Frame(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A frame whose body is decoded once its type is known."""

    kind: int
    call_id: int
    method: str
    body: msgspec.Raw


_FRAME_DECODER: Final = msgspec.msgpack.Decoder(_Frame)
_ERROR_DECODER: Final = msgspec.msgpack.Decoder(tuple[str, str])
_encode: Final = msgspec.msgpack.Encoder().encode


@functools.lru_cache(maxsize=256)
def _decoder(message_type: type[Response]) -> msgspec.msgpack.Decoder[Response]:
    # Typed calls of one process share decoders; they keep no state.
    return msgspec.msgpack.Decoder(message_type)


def _error_frame(call_id: int, code: str, message: str) -> bytes:
    return _encode((_ERROR, call_id, "", (code, message)))


def _answer_frame(call_id: int, response: msgspec.Struct) -> bytes:
    frame = _encode((_RESPONSE, call_id, "", response))
    if len(frame) > FRAME_BYTES_MAX:
        message = f"an answer of {len(frame)} bytes; a frame holds {FRAME_BYTES_MAX}"
        return _error_frame(call_id, _REMOTE, message)
    return frame


# --- server ----------------------------------------------------------------------------------


class _Method:
    """A served method."""

    __slots__ = ("decoder", "handler", "name", "service")

    def __init__(self, name: str, handler: Handler, request_type: type[msgspec.Struct]) -> None:
        self.name = name
        self.service = name.partition(".")[0]
        self.handler = handler
        self.decoder = _decoder(request_type)


class RpcServer:
    """Serves registered methods on one port of the node.

    `handler(request, peer)` is a coroutine function, or a plain function that returns either the
    answer at once (no task is made) or an awaitable of it. `peer` is the caller's node name.
    """

    def __init__(
        self, env: Env, port: int, *, calls_in_flight_max: int = CALLS_IN_FLIGHT_MAX
    ) -> None:
        self._env = env
        self._port = port
        self._calls_in_flight_max = calls_in_flight_max
        self._methods: dict[str, _Method] = {}
        self._in_flight: dict[str, int] = {}
        self._connections: dict[int, Conn] = {}
        self._connection_count = 0
        self._listener: Listener | None = None

    def register(self, method: str, handler: Handler, request_type: type[msgspec.Struct]) -> None:
        """Serve `method`, e.g. `MasterService.CreateTable`; a second handler is an error."""
        assert method not in self._methods, f"{method} has a handler already"
        self._methods[method] = _Method(method, handler, request_type)

    async def start(self) -> None:
        """Listen. Methods may be registered before or after."""
        assert self._listener is None, "the server listens already"
        self._listener = await self._env.net.listen(self._port, self._serve)

    def close(self) -> None:
        """Stop listening and end all connections; calls that run go on without an answer."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections.values()):
            connection.close()

    async def _serve(self, conn: Conn) -> None:
        """Read one connection to its end; calls started here outlive it."""
        if len(self._connections) >= _CONNECTIONS_MAX:
            conn.close()
            return
        self._connection_count += 1
        key = self._connection_count
        self._connections[key] = conn
        seen = _SeenCalls()
        try:
            while True:
                frame = await _recv(conn)
                if frame is None:
                    return
                try:
                    request = _FRAME_DECODER.decode(frame)
                except msgspec.MsgspecError:
                    return  # not our protocol: hang up
                if request.kind != _REQUEST or not seen.add(request.call_id):
                    continue
                answer = self._dispatch(request, conn)
                if answer is not None:
                    await _send(conn, answer)
        finally:
            conn.close()
            del self._connections[key]

    def _dispatch(self, call: _Frame, conn: Conn) -> bytes | None:
        """Run a call, or start it in a task; returns the answer where there is one at once."""
        method = self._methods.get(call.method)
        if method is None:
            return _error_frame(call.call_id, _REMOTE, f"unknown method {call.method!r}")
        in_flight = self._in_flight.get(method.service, 0)
        if in_flight >= self._calls_in_flight_max:
            message = f"too busy: {in_flight} calls of {method.service} are in flight"
            return _error_frame(call.call_id, _BUSY, message)
        try:
            request = method.decoder.decode(call.body)
        except msgspec.MsgspecError as error:
            return _error_frame(call.call_id, _REMOTE, f"bad request of {method.name}: {error}")
        try:
            result = method.handler(request, conn.peer)
        except RpcHandlerError as error:
            return _error_frame(call.call_id, _REMOTE, str(error))
        if isinstance(result, msgspec.Struct):
            return _answer_frame(call.call_id, result)
        if isinstance(result, types.CoroutineType):
            result = _Unstarted(result)
        self._in_flight[method.service] = in_flight + 1
        self._env.spawn(self._finish(method, result, call.call_id, conn), name=method.name)
        return None

    async def _finish(
        self, method: _Method, result: Awaitable[msgspec.Struct], call_id: int, conn: Conn
    ) -> None:
        try:
            frame = _answer_frame(call_id, await result)
        except RpcHandlerError as error:
            frame = _error_frame(call_id, _REMOTE, str(error))
        finally:
            self._in_flight[method.service] -= 1
        await _send(conn, frame)


class _Unstarted:
    """Owns a handler's coroutine, and closes it if the node dies before its task first runs."""

    def __init__(self, coroutine: types.CoroutineType[Any, Any, msgspec.Struct]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, msgspec.Struct]:
        return self._coroutine.__await__()

    def __del__(self) -> None:
        self._coroutine.close()


class _SeenCalls:
    """The call ids of one connection that were handled, within a bounded window.

    A client counts its calls up, so ids far below the highest one must be late copies.
    """

    __slots__ = ("_highest", "_recent")

    def __init__(self) -> None:
        self._highest = 0
        self._recent: dict[int, None] = {}  # in order of arrival

    def add(self, call_id: int) -> bool:
        """Note `call_id`; false when it was handled before, or is too old to tell."""
        if call_id in self._recent or call_id <= self._highest - _SEEN_CALLS_MAX:
            return False
        self._recent[call_id] = None
        if len(self._recent) > _SEEN_CALLS_MAX:
            del self._recent[next(iter(self._recent))]
        self._highest = max(self._highest, call_id)
        return True


async def _recv(conn: Conn) -> bytes | None:
    """The next frame; None when the connection is over, in whatever way."""
    try:
        return await conn.recv()
    except OSError:
        return None


async def _send(conn: Conn, frame: bytes) -> None:
    """Send an answer. If the connection is gone, its caller has given up or will notice."""
    with contextlib.suppress(OSError):
        await conn.send(frame)


# --- client ----------------------------------------------------------------------------------


class _Call:
    """A call without an answer yet. `outcome` yields a frame or the error to raise."""

    __slots__ = ("deadline", "expired", "outcome", "received_before", "sender", "sender_cancels")

    def __init__(
        self, outcome: asyncio.Future[_Frame | RpcError], deadline: float, received_before: int
    ) -> None:
        self.outcome = outcome
        self.deadline = deadline
        self.received_before = received_before
        self.sender: asyncio.Task[Any] | None = asyncio.current_task()
        self.sender_cancels = 0 if self.sender is None else self.sender.cancelling()
        self.expired = False

    def finish(self, outcome: _Frame | RpcError) -> None:
        # Errors travel as results: a future whose caller was cancelled at the same instant would
        # otherwise complain of an exception nobody retrieved.
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class _Link:
    """One connection and the calls on it."""

    def __init__(self, client: RpcClient, address: Address, conn: Conn) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._conn = conn
        self._calls: dict[int, _Call] = {}
        self._call_count = 0
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None
        self.address = address
        self.reader: asyncio.Task[None] | None = None

    async def call(self, method: str, request: msgspec.Struct, deadline: float) -> msgspec.Raw:
        """Send one request and return the body of its answer."""
        if len(self._calls) >= _PENDING_CALLS_MAX:
            message = f"{len(self._calls)} calls to {self.address} wait for an answer already"
            raise RpcBusyError(message, sent=False)
        self._call_count += 1
        call_id = self._call_count
        frame = _encode((_REQUEST, call_id, method, request))
        if len(frame) > FRAME_BYTES_MAX:
            raise ValueError(
                f"a request of {len(frame)} bytes for {method}; a frame holds {FRAME_BYTES_MAX}"
            )
        call = _Call(self._loop.create_future(), deadline, self._received)
        self._calls[call_id] = call
        self._arm(deadline)
        try:
            await self._send(frame, call)
            outcome = await call.outcome
        finally:
            self._calls.pop(call_id, None)
        if isinstance(outcome, RpcError):
            raise outcome
        if outcome.kind == _RESPONSE:
            return outcome.body
        code, message = _ERROR_DECODER.decode(outcome.body)
        if code == _BUSY:
            raise RpcBusyError(message, sent=False)
        raise RpcRemoteError(message)

    async def _send(self, frame: bytes, call: _Call) -> None:
        """Send within the call's deadline; its timer cancels a send that back-pressure holds."""
        try:
            await self._conn.send(frame)
        except OSError as error:
            message = f"the connection to {self.address} broke: {error}"
            self.drop(message)
            raise RpcConnectionError(message, sent=True) from error
        except asyncio.CancelledError:
            sender = call.sender
            if call.expired and sender is not None and sender.uncancel() <= call.sender_cancels:
                raise self._timeout() from None
            raise
        call.sender = None

    def _timeout(self) -> RpcTimeoutError:
        return RpcTimeoutError(f"no answer from {self.address} within the deadline", sent=True)

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Time out the calls that are due, and re-arm for the earliest of the others."""
        self._timer = None
        due_s = self._loop.time() + _TIMER_SLACK_S
        silent = False
        deadline_next: float | None = None
        for call_id, call in list(self._calls.items()):
            if call.deadline > due_s:
                if deadline_next is None or call.deadline < deadline_next:
                    deadline_next = call.deadline
                continue
            del self._calls[call_id]
            silent = silent or call.received_before == self._received
            if call.sender is not None:
                call.expired = True
                call.sender.cancel()
            call.finish(self._timeout())
        if deadline_next is not None:
            self._arm(deadline_next)
        if silent:
            self._client.retire(self)
        if not self._calls and self._client.is_retired(self):
            self.drop(f"the connection to {self.address} was given up")

    async def read(self) -> None:
        """Hand answers to their calls until the connection ends."""
        while True:
            frame = await _recv(self._conn)
            if frame is None:
                break
            self._received += 1
            try:
                answer = _FRAME_DECODER.decode(frame)
            except msgspec.MsgspecError:
                break  # not our protocol: give the connection up
            call = self._calls.pop(answer.call_id, None)
            if call is not None:
                call.finish(answer)
                if not self._calls and self._client.is_retired(self):
                    break
        self.reader = None
        self.drop(f"the connection to {self.address} ended before the answer came")

    def drop(self, message: str) -> None:
        """End the connection; calls under way may have been processed or not."""
        self._client.retire(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.reader is not None:
            self.reader.cancel()
            self.reader = None
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.finish(RpcConnectionError(message, sent=True))
        self._conn.close()


class _Dial:
    """An attempt to connect, and those who wait for it."""

    __slots__ = ("task", "waiters")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiters: list[asyncio.Future[_Link | RpcError]] = []


class RpcClient:
    """Calls methods of other nodes over one cached connection per address."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._links: dict[Address, _Link] = {}
        self._dials: dict[Address, _Dial] = {}
        self._parsed: dict[str, Address] = {}
        self._closed = False

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
        where = self._address(address)
        deadline = asyncio.get_running_loop().time() + timeout_s
        link = self._links.get(where)
        if link is None:
            link = await self._connect(where, deadline)
        body = await link.call(method, request, deadline)
        try:
            response: Response = _decoder(response_type).decode(body)
        except msgspec.MsgspecError as error:
            message = f"{where} answered {method} with something unreadable: {error}"
            raise RpcRemoteError(message) from error
        return response

    def close(self) -> None:
        """End all connections; calls under way fail with `RpcConnectionError`."""
        self._closed = True
        for address in list(self._dials):
            dial = self._dials.pop(address)
            if dial.task is not None:
                dial.task.cancel()
            _finish_dial(dial, RpcConnectionError("the RPC client was closed", sent=False))
        for link in list(self._links.values()):
            link.drop("the RPC client was closed")

    def retire(self, link: _Link) -> None:
        """Let no further call use `link`; those on it keep their deadlines."""
        if self._links.get(link.address) is link:
            del self._links[link.address]

    def is_retired(self, link: _Link) -> bool:
        """Whether later calls to that address use another connection."""
        return self._links.get(link.address) is not link

    def _address(self, address: Address | str) -> Address:
        if isinstance(address, Address):
            return address
        parsed = self._parsed.get(address)
        if parsed is None:
            parsed = parse_address(address)
            if len(self._parsed) >= _PARSED_ADDRESSES_MAX:
                self._parsed.clear()
            self._parsed[address] = parsed
        return parsed

    async def _connect(self, address: Address, deadline: float) -> _Link:
        """The link to `address` once it is up. Raises `RpcError` with `sent` False."""
        if self._closed:
            raise RpcConnectionError("the RPC client is closed", sent=False)
        dial = self._dials.get(address)
        if dial is None:
            dial = self._dials[address] = _Dial()
            dial.task = self._env.spawn(self._dial(address, dial), name=f"connect {address}")
        if len(dial.waiters) >= _PENDING_CALLS_MAX:
            raise RpcBusyError(f"{len(dial.waiters)} calls wait for {address} already", sent=False)
        waiter: asyncio.Future[_Link | RpcError] = asyncio.get_running_loop().create_future()
        dial.waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                outcome = await waiter
        except TimeoutError:
            raise RpcTimeoutError(
                f"no connection to {address} within the deadline", sent=False
            ) from None
        finally:
            dial.waiters.remove(waiter)
        if isinstance(outcome, RpcError):
            raise outcome
        return outcome

    async def _dial(self, address: Address, dial: _Dial) -> None:
        """Try to connect for as long as somebody waits.

        Each attempt is bounded: one that began behind a cut must not outlive the cut for long.
        """
        timeout_s = _CONNECT_TIMEOUT_FIRST_S
        outcome: _Link | RpcError
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    conn = await self._env.net.connect(address)
            except TimeoutError:
                timeout_s = min(timeout_s * 2, _CONNECT_TIMEOUT_MAX_S)
                if not dial.waiters:
                    outcome = RpcTimeoutError(f"no connection to {address}", sent=False)
                    break
            except OSError as error:
                outcome = RpcConnectionError(f"cannot connect to {address}: {error}", sent=False)
                break
            else:
                outcome = _Link(self, address, conn)
                self._links[address] = outcome
                outcome.reader = self._env.spawn(outcome.read(), name=f"answers of {address}")
                break
        del self._dials[address]
        _finish_dial(dial, outcome)


def _finish_dial(dial: _Dial, outcome: _Link | RpcError) -> None:
    for waiter in dial.waiters:
        if not waiter.done():
            waiter.set_result(outcome)
