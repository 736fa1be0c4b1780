"""The server side of RPC: reads requests, runs their handlers, and sends the answers."""

from __future__ import annotations

import functools
import types
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, get_type_hints

import msgspec

from harness.env import Conn, Env, Listener
from targets.kudu.rpc.errors import RpcHandlerError
from targets.kudu.rpc.wire import (
    BUSY,
    FRAME_DECODER,
    REMOTE,
    REQUEST,
    Call,
    Frame,
    answer_frame,
    error_frame,
)

CALLS_IN_FLIGHT_MAX: Final = 256
"""Maximum number of unanswered calls per service (the part of the method before the dot).

The limit is per service, because writes that wait must not block the consensus calls that would end
the wait.
"""

_SEEN_CALLS_MAX: Final = 1024
"""The number of call ids per connection that a server remembers, to drop duplicates."""
_CONNECTIONS_MAX: Final = 1024


class Answer:
    """An answer that a handler promises and later sends with `set`.

    Only the first `set` counts. Setting an `RpcHandlerError` sends a remote error.
    """

    __slots__ = ("_on_set", "response")

    def __init__(self) -> None:
        self.response: Any = None
        self._on_set: Callable[[Any], None] | None = None

    def set(self, response: Any) -> None:
        if self.response is None:
            self.response = response
            if self._on_set is not None:
                self._on_set(response)

    def when_set(self, on_set: Callable[[Any], None]) -> None:
        """Register the function `on_set`. A later `set` calls it with the response."""
        assert self.response is None, "answered already"
        self._on_set = on_set


Handler = Callable[[Any, str], Awaitable[msgspec.Struct] | msgspec.Struct | Answer]


class _Method:
    """A method that the server serves, with its handler."""

    __slots__ = ("decode", "handler", "name", "service")

    def __init__(self, handler: Handler, request_type: type[Call[Any]]) -> None:
        self.name = request_type.method
        self.service = request_type.service
        self.handler = handler
        self.decode = _decoder(request_type).decode


class RpcServer:
    """Serves the RPC methods of one node, on one port.

    `handler(request, peer)` is either a coroutine function or a plain function. A plain function
    returns the answer, an `Answer` or an awaitable. Only an awaitable needs a task. `peer` is the
    caller's node name.
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
        self.calls: dict[str, int] = {}
        """The number of calls of each method since this server was created."""
        self.put_off = Counter[str]()
        """The number of calls of each method that did not finish their work.

        The server was busy (`calls_in_flight_max`), the handler postponed the call, or more chunks
        of a snapshot must follow.
        """
        self._listener: Listener | None = None

    @property
    def is_listening(self) -> bool:
        return self._listener is not None

    def serve(self, handler: Handler, request_type: type[Call[Any]] | None = None) -> None:
        """Serve the method of `request_type` with `handler`; a method has one handler.

        By default, `request_type` is the type that the handler declares for its first parameter.
        """
        method = _Method(handler, request_type or request_type_of(handler))
        assert method.name not in self._methods, f"{method.name} has a handler already"
        self._methods[method.name] = method

    async def start(self) -> None:
        """Start to listen. `serve` may be called before or after."""
        assert self._listener is None, "the server listens already"
        self._listener = await self._env.net.listen(self._port, self._serve)

    def close(self) -> None:
        """Stop listening and end all connections. Running calls continue, but send no answer."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self._connections.values()):
            connection.close()

    async def _serve(self, conn: Conn) -> None:
        if len(self._connections) >= _CONNECTIONS_MAX:
            conn.close()
            return
        self._connection_count += 1
        key = self._connection_count
        self._connections[key] = conn
        seen = _SeenCalls()
        decode = FRAME_DECODER.decode
        try:
            while True:
                try:
                    frame = await conn.recv()
                except OSError:
                    return  # the connection has ended
                if frame is None:
                    return
                try:
                    request = decode(frame)
                except msgspec.MsgspecError:
                    return  # the peer does not speak this protocol: close the connection
                if request.kind == REQUEST and seen.add(request.call_id):
                    answer = self._dispatch(request, conn)
                    if answer is not None and not _try_send(conn, answer):
                        await _send(conn, answer)
        finally:
            conn.close()
            del self._connections[key]

    def _dispatch(self, call: Frame, conn: Conn) -> bytes | None:
        method = self._methods.get(call.method)
        if method is None:
            return error_frame(call.call_id, REMOTE, f"unknown method {call.method!r}")
        self.calls[method.name] = self.calls.get(method.name, 0) + 1
        service = method.service
        in_flight = self._in_flight.get(service, 0)
        if in_flight >= self._calls_in_flight_max:
            self.put_off[method.name] += 1
            message = f"too busy: {in_flight} calls of {service} are in flight"
            return error_frame(call.call_id, BUSY, message)
        try:
            request = method.decode(call.body)
        except msgspec.MsgspecError as error:
            return error_frame(call.call_id, REMOTE, f"bad request of {method.name}: {error}")
        try:
            result = method.handler(request, conn.peer)
        except RpcHandlerError as error:
            return error_frame(call.call_id, REMOTE, str(error))
        if isinstance(result, Answer):
            if result.response is not None:
                return _encode_answer(call.call_id, result.response)
            self._in_flight[service] = in_flight + 1
            self._await_answer(result, service, call.call_id, conn)
            return None
        if isinstance(result, types.CoroutineType):
            result = _Unstarted(result)
        elif isinstance(result, msgspec.Struct):
            return answer_frame(call.call_id, result)
        self._in_flight[service] = in_flight + 1
        self._env.spawn(self._finish(service, result, call.call_id, conn), name=method.name)
        return None

    def _await_answer(self, answer: Answer, service: str, call_id: int, conn: Conn) -> None:
        def send(response: Any) -> None:
            self._in_flight[service] -= 1
            frame = _encode_answer(call_id, response)
            if not _try_send(conn, frame):
                self._env.spawn(_send(conn, frame), name=f"answer of {service}")

        answer.when_set(send)

    async def _finish(
        self, service: str, result: Awaitable[msgspec.Struct], call_id: int, conn: Conn
    ) -> None:
        try:
            frame = answer_frame(call_id, await result)
        except RpcHandlerError as error:
            frame = error_frame(call_id, REMOTE, str(error))
        finally:
            self._in_flight[service] -= 1
        if not _try_send(conn, frame):
            await _send(conn, frame)


def request_type_of(handler: Callable[..., Any], position: int = 0) -> type[Call[Any]]:
    """Return the declared type of a handler's request: parameter `position` after `self`."""
    function = getattr(handler, "__func__", handler)
    # Do not cache closures, because the cache would keep their nodes alive.
    read = _declared if function.__closure__ is None else _declared.__wrapped__
    request_type: type[Call[Any]] = read(function)[position]
    return request_type


@functools.lru_cache(maxsize=256)
def _declared(function: Callable[..., Any]) -> list[Any]:
    """Return a function's declared types, cached because reading types is slow."""
    return list(get_type_hints(function).values())


@functools.lru_cache(maxsize=256)
def _decoder(request_type: type[Call[Any]]) -> msgspec.msgpack.Decoder[Call[Any]]:
    return msgspec.msgpack.Decoder(request_type)


class _Unstarted:
    """Holds a handler's coroutine, to close it if the node dies before the task starts."""

    def __init__(self, coroutine: types.CoroutineType[Any, Any, msgspec.Struct]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, msgspec.Struct]:
        return self._coroutine.__await__()

    def __del__(self) -> None:
        self._coroutine.close()


class _SeenCalls:
    """The call ids that were handled on one connection.

    A client numbers its calls consecutively. Every id up to the highest one was therefore handled,
    except for the recorded skipped ids. An id far below the highest one counts as handled, because
    it must be a late copy.
    """

    __slots__ = ("_highest", "_skipped")

    def __init__(self) -> None:
        self._highest = 0
        self._skipped: dict[int, None] = {}  # in rising order

    def add(self, call_id: int) -> bool:
        """Record `call_id`; return false if it was handled before or is very old."""
        highest = self._highest
        if call_id <= highest:
            if call_id not in self._skipped:
                return False
            del self._skipped[call_id]
            return True
        self._highest = call_id
        if call_id > highest + 1 or self._skipped:
            self._skip(highest + 1, call_id)
        return True

    def _skip(self, first: int, end: int) -> None:
        oldest = end - _SEEN_CALLS_MAX + 1
        for call_id in range(max(first, oldest), end):
            self._skipped[call_id] = None
        while self._skipped and (eldest := next(iter(self._skipped))) < oldest:
            del self._skipped[eldest]


def _encode_answer(call_id: int, response: Any) -> bytes:
    if isinstance(response, RpcHandlerError):
        return error_frame(call_id, REMOTE, str(response))
    return answer_frame(call_id, response)


def _try_send(conn: Conn, frame: bytes) -> bool:
    """Send an answer; return false if back-pressure delays it. Ignore lost connections."""
    try:
        return conn.try_send(frame)
    except OSError:
        return True


async def _send(conn: Conn, frame: bytes) -> None:
    try:
        await conn.send(frame)
    except OSError:
        return
