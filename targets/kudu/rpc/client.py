"""The client side of RPC: one connection per address, shared by all calls to that address."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol

import msgspec

from harness.env import Address, Conn, Env
from targets.kudu.rpc.errors import (
    RpcBusyError,
    RpcConnectionError,
    RpcError,
    RpcRemoteError,
    RpcTimeoutError,
)
from targets.kudu.rpc.wire import (
    BUSY,
    ERROR,
    ERROR_DECODER,
    FRAME_DECODER,
    RESPONSE,
    Call,
    Frame,
    R_co,
    parse_address,
    request_frame,
)

_ANSWERS: Final = frozenset({RESPONSE, ERROR})
_PENDING_CALLS_MAX: Final = 4096
_PARSED_ADDRESSES_MAX: Final = 1024
_TIMER_SLACK_S: Final = 1e-6
"""Event loops round deadlines. Without slack, a timer could fire many times too early."""
_CONNECT_TIMEOUT_FIRST_S: Final = 1.0
_CONNECT_TIMEOUT_MAX_S: Final = 5.0


class _Call:
    """A call without an answer yet. The caller awaits `outcome`, a frame or an error."""

    __slots__ = ("deadline", "outcome", "received_before", "sender")

    def __init__(self, outcome: asyncio.Future[Frame | RpcError] | None, deadline: float) -> None:
        self.outcome = outcome
        self.deadline = deadline
        self.received_before = 0
        self.sender: asyncio.Task[None] | None = None  # set while back-pressure delays the request

    def answer(self, frame: Frame) -> bool:
        self._finish(frame)
        return True

    def fail(self, error: RpcError) -> None:
        if self.sender is not None:
            self.sender.cancel()
        self._finish(error)

    def _finish(self, outcome: Frame | RpcError) -> None:
        # Set an error as a result, because asyncio complains about exceptions that are never
        # retrieved.
        if self.outcome is not None and not self.outcome.done():
            self.outcome.set_result(outcome)


class _CallWithCallback(_Call, Generic[R_co]):
    """A call that ends in a callback.

    The task that reads an answer passes the answer to the callback. A separate task passes an
    error, so that an exception in the callback fails a task of the node.
    """

    __slots__ = ("_address", "_done", "_env", "_request")

    def __init__(
        self,
        env: Env,
        address: Address,
        request: Call[R_co],
        done: Callable[[R_co | RpcError], None],
        deadline: float,
    ) -> None:
        # Set the fields here: calling `_Call.__init__` would take longer.
        self.outcome = None
        self.deadline = deadline
        self.received_before = 0
        self.sender = None
        self._env = env
        self._address = address
        self._request = request
        self._done = done

    def answer(self, frame: Frame) -> bool:
        try:
            response = _read_answer(frame, self._address, self._request)
        except RpcError as error:
            self._done(error)
            return not isinstance(error, RpcConnectionError)
        self._done(response)
        return True

    def _finish(self, outcome: Frame | RpcError) -> None:
        assert isinstance(outcome, RpcError), "`answer` passes answers on"
        name = f"failure of {self._request.method}"
        self._env.spawn(_call_back(self._done, outcome), name=name)


async def _call_back(done: Callable[[Any], None], outcome: Any) -> None:
    done(outcome)


def _read_answer(frame: Frame, address: Address, request: Call[R_co]) -> R_co:
    try:
        if frame.kind == RESPONSE:
            response: R_co = request.decode_answer(frame.body)
            return response
        code, message = ERROR_DECODER.decode(frame.body)
    except msgspec.MsgspecError as error:
        message = f"{address} sent an unreadable answer to {request.method}: {error}"
        raise RpcConnectionError(message, sent=True) from error
    if code == BUSY:
        raise RpcBusyError(message, sent=False)
    raise RpcRemoteError(message)


class _Link:
    def __init__(self, client: RpcClient, env: Env, address: Address, conn: Conn) -> None:
        self._client = client
        self._env = env
        self._conn = conn
        self._calls: dict[int, _Call] = {}
        self._call_count = 0
        self._received = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self.loop = asyncio.get_running_loop()
        self.address = address
        self.is_retired = False
        """Whether later calls to the address must use another connection."""
        self.reader: asyncio.Task[None] | None = None

    def start(self, request: Call[R_co], call: _Call) -> int:
        """Send a request and return the call's id. The call later gets an answer or an error.

        Raises `RpcBusyError` or `ValueError`; in both cases nothing was sent.
        """
        if len(self._calls) >= _PENDING_CALLS_MAX:
            message = f"{len(self._calls)} calls to {self.address} wait for an answer already"
            raise RpcBusyError(message, sent=False)
        call_id = self._call_count + 1
        frame = request_frame(call_id, request)
        self._call_count = call_id
        call.received_before = self._received
        self._calls[call_id] = call
        if self._timer is None or call.deadline < self._timer_due:
            self._arm(call.deadline)
        try:
            if not self._conn.try_send(frame):
                name = f"send {request.method}"
                call.sender = self._env.spawn(self._send(frame, call), name=name)
        except OSError as error:
            self._break(error)
        return call_id

    def forget(self, call_id: int) -> None:
        """Give up a call. If back-pressure still delays its request, the request is not sent."""
        call = self._calls.pop(call_id, None)
        if call is not None and call.sender is not None:
            call.sender.cancel()

    async def _send(self, frame: bytes, call: _Call) -> None:
        """Send a frame that back-pressure has delayed. The end of the call cancels this task."""
        try:
            await self._conn.send(frame)
        except OSError as error:
            call.sender = None
            self._break(error)
        call.sender = None

    def _break(self, error: OSError) -> None:
        self.drop(f"the connection to {self.address} broke: {error}")

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = deadline
        self._timer = self.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        due_s = self.loop.time() + _TIMER_SLACK_S
        silent = False
        deadline_next: float | None = None
        for call_id, call in list(self._calls.items()):
            if call.deadline > due_s:
                if deadline_next is None or call.deadline < deadline_next:
                    deadline_next = call.deadline
                continue
            del self._calls[call_id]
            silent = silent or call.received_before == self._received
            message = f"no answer from {self.address} within the deadline"
            call.fail(RpcTimeoutError(message, sent=True))
        if deadline_next is not None:
            self._arm(deadline_next)
        if silent:
            self._client.retire(self)
        if not self._calls and self.is_retired:
            self.drop(f"the client gave up the connection to {self.address}")

    async def read(self) -> None:
        """Pass answers to their calls until the connection ends."""
        conn, decode = self._conn, FRAME_DECODER.decode
        while True:
            try:
                frame = await conn.recv()
                if frame is None:
                    break
                self._received += 1
                answer = decode(frame)
            except (OSError, msgspec.MsgspecError):
                break  # the connection is lost, or the peer does not speak this protocol
            if answer.kind not in _ANSWERS:
                break
            call = self._calls.pop(answer.call_id, None)
            if call is not None:
                if not call.answer(answer):
                    break
                if self.is_retired and not self._calls:
                    break
        self.reader = None
        self.drop(f"the connection to {self.address} ended before the answer came")

    def drop(self, message: str) -> None:
        """End the connection. Its unanswered calls may have been processed."""
        self._client.retire(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.reader is not None:
            self.reader.cancel()
            self.reader = None
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.fail(RpcConnectionError(message, sent=True))
        self._conn.close()


class _Dial:
    __slots__ = ("task", "waiters")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiters: list[asyncio.Future[_Link | RpcError]] = []


class Caller(Protocol):
    """The interface of RPC clients, which speak either the bundled protocol or real Kudu's."""

    async def call(self, address: Address | str, request: Call[R_co], *, timeout_s: float) -> R_co:
        """Make one call, without retries. Raises `RpcError`; its `sent` says if it may have run."""
        ...

    def close(self) -> None:
        """End all connections."""
        ...


class RpcClient:
    """A client for the RPC methods of other nodes, with one cached connection per address.

    Every attempt to connect resolves the node's name again. After a network error, a call therefore
    reaches the node that has the name now (KUDU-1885).
    """

    def __init__(self, env: Env, *, resolve_once: bool = False) -> None:
        """Create a client. With `resolve_once` (defect DNS-ONCE), resolve each name only once."""
        self._env = env
        self._resolved: dict[Address, Address] | None = {} if resolve_once else None
        self._lost_until_s: dict[Address, float] = {}
        self._links: dict[Address, _Link] = {}
        self._dials: dict[Address, _Dial] = {}
        self._parsed: dict[Address | str, Address] = {}
        self._closed = False

    async def call(self, address: Address | str, request: Call[R_co], *, timeout_s: float) -> R_co:
        """Make one call, without retries. Raises `RpcError`; its `sent` says if it may have run."""
        where = self._parsed.get(address) or self._parse(address)
        link = self._links.get(where)
        if link is None:
            deadline = asyncio.get_running_loop().time() + timeout_s
            link = await self._connect(where, deadline)
        else:
            deadline = link.loop.time() + timeout_s
        future: asyncio.Future[Frame | RpcError] = link.loop.create_future()
        call_id = link.start(request, _Call(future, deadline))
        try:
            outcome = await future
        except asyncio.CancelledError:
            link.forget(call_id)
            raise
        if isinstance(outcome, RpcError):
            try:
                raise outcome
            finally:
                del outcome, future  # the traceback refers to this frame: avoid a reference cycle
        try:
            return _read_answer(outcome, where, request)
        except RpcConnectionError as error:
            link.drop(str(error))
            raise

    def start(
        self,
        address: Address | str,
        request: Call[R_co],
        done: Callable[[R_co | RpcError], None],
        *,
        timeout_s: float,
    ) -> None:
        """Start a call, and later pass its answer or its error to `done`.

        `done` is called exactly once, and never before this method returns. An exception in `done`
        panics the node.
        """
        where = self._parsed.get(address) or self._parse(address)
        link = self._links.get(where)
        if link is None:
            self._env.spawn(
                self._call_with_callback(where, request, done, timeout_s),
                name=f"first call of {where}",
            )
            return
        deadline = link.loop.time() + timeout_s
        call = _CallWithCallback(self._env, where, request, done, deadline)
        try:
            link.start(request, call)
        except RpcBusyError as error:
            call.fail(error)

    async def _call_with_callback(
        self,
        where: Address,
        request: Call[R_co],
        done: Callable[[R_co | RpcError], None],
        timeout_s: float,
    ) -> None:
        try:
            response = await self.call(where, request, timeout_s=timeout_s)
        except RpcError as error:
            done(error)
        else:
            done(response)

    def close(self) -> None:
        """End all connections; their unanswered calls fail with `RpcConnectionError`."""
        self._closed = True
        for address in list(self._dials):
            dial = self._dials.pop(address)
            if dial.task is not None:
                dial.task.cancel()
            _finish_dial(dial, RpcConnectionError("the RPC client was closed", sent=False))
        for link in list(self._links.values()):
            link.drop("the RPC client was closed")

    def retire(self, link: _Link) -> None:
        """Use `link` for no further calls. Its running calls keep their deadlines."""
        link.is_retired = True
        if self._links.get(link.address) is link:
            del self._links[link.address]

    def _parse(self, address: Address | str) -> Address:
        parsed = parse_address(address)
        if len(self._parsed) >= _PARSED_ADDRESSES_MAX:
            self._parsed.clear()
        self._parsed[address] = parsed
        return parsed

    def lose_name(self, name: Address | str, for_s: float) -> None:
        """Make resolving `name` fail for `for_s`, as if the name server did not know it.

        Open connections are not affected.
        """
        if len(self._lost_until_s) >= _PARSED_ADDRESSES_MAX:
            self._lost_until_s.clear()
        until_s = asyncio.get_running_loop().time() + for_s
        self._lost_until_s[self._parse(name)] = until_s

    def resolves(self, name: Address | str) -> bool:
        """Whether `name` can be resolved now."""
        until_s = self._lost_until_s.get(self._parse(name))
        return until_s is None or asyncio.get_running_loop().time() >= until_s

    def _resolve(self, name: Address) -> Address:
        if self._lost_until_s and not self.resolves(name):
            raise OSError(errno.ENOENT, f"the name {name.node!r} cannot be resolved")
        address = self._env.net.resolve(name)
        return address if self._resolved is None else self._resolved.setdefault(name, address)

    async def _connect(self, address: Address, deadline: float) -> _Link:
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
            del waiter
        if isinstance(outcome, RpcError):
            try:
                raise outcome
            finally:
                del outcome  # avoid a reference cycle, as in `call`
        return outcome

    async def _dial(self, address: Address, dial: _Dial) -> None:
        """Try to connect until a connection opens, an `OSError` occurs, or all calls have given up.

        Each attempt has a short time limit, so that the client connects soon after a partition
        heals.
        """
        timeout_s = _CONNECT_TIMEOUT_FIRST_S
        outcome: _Link | RpcError
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    conn = await self._env.net.connect(self._resolve(address))
            except TimeoutError:
                timeout_s = min(timeout_s * 2, _CONNECT_TIMEOUT_MAX_S)
                if not dial.waiters:
                    outcome = RpcTimeoutError(f"no connection to {address}", sent=False)
                    break
            except OSError as error:
                outcome = RpcConnectionError(f"cannot connect to {address}: {error}", sent=False)
                break
            else:
                outcome = _Link(self, self._env, address, conn)
                self._links[address] = outcome
                outcome.reader = self._env.spawn(outcome.read(), name=f"answers of {address}")
                break
        del self._dials[address]
        _finish_dial(dial, outcome)


def _finish_dial(dial: _Dial, outcome: _Link | RpcError) -> None:
    for waiter in dial.waiters:
        if not waiter.done():
            waiter.set_result(outcome)
