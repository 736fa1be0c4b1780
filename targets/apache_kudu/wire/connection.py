"""One connection to a server of Kudu, with any number of calls in progress.

Every failure says whether the server may have executed the call (`RpcError.sent`). `sent` is true
if the answer does not come in time, or if the connection ends before the answer. This module never
repeats a call.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from harness.env import Address, ClientEnv
from targets.apache_kudu.wire.errors import rpc_error_of
from targets.apache_kudu.wire.frames import (
    FRAME_BYTES_MAX,
    GREETING,
    LENGTH_BYTES,
    Answer,
    RowsId,
    Step,
    context_frame,
    initiate_frame,
    negotiate_frame,
    read_answer,
    read_step,
    request_frame,
)
from targets.apache_kudu.wire.messages import RPC_ERROR
from targets.apache_kudu.wire.methods import Method
from targets.apache_kudu.wire.protobuf import Values, WireFormatError, decode, encode
from targets.kudu.rpc import RpcBusyError, RpcConnectionError, RpcError, RpcTimeoutError

_PENDING_CALLS_MAX: Final = 4096
_CALL_IDS_MAX: Final = 2**31 - 1


class Reply(Values):
    """The decoded body of an answer, and its sidecars (raw bytes such as rows)."""

    sidecars: tuple[bytes, ...] = ()


class Connection:
    """An open connection. Once it is `broken`, further calls need a new connection."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.address = address
        self.broken = False
        self._reader, self._writer = reader, writer
        self._calls: dict[int, asyncio.Future[Answer | RpcError]] = {}
        self._call_id = 0
        self._received = 0
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, env: ClientEnv, address: Address, user: str, *, timeout_s: float
    ) -> Connection:
        """Connect and shake hands. Raises an `RpcError` whose `sent` is false."""
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                host, port = env.endpoint(address)
                streams = await asyncio.open_connection(host, port)  # determinism: not simulated
                connection = cls(address, *streams)
                await connection._shake_hands(user)
        except TimeoutError as error:
            message = f"no connection to {address} within {timeout_s:g} s"
            raise RpcTimeoutError(message, sent=False) from error
        except (OSError, EOFError, WireFormatError) as error:
            message = f"cannot connect to {address}: {error}"
            raise RpcConnectionError(message, sent=False) from error
        else:
            connection._task = env.spawn(connection._read(), name=f"answers of {address}")
            return connection
        finally:
            if connection is not None and connection._task is None:
                connection.close()

    async def _shake_hands(self, user: str) -> None:
        self._writer.write(GREETING + negotiate_frame())
        await self._step(Step.NEGOTIATE)
        self._writer.write(initiate_frame(user))
        await self._step(Step.SUCCESS)
        self._writer.write(context_frame())

    async def _step(self, expected: int) -> None:
        answer = await self._answer()
        if answer.is_error:
            reason = decode(RPC_ERROR, answer.body).get("message", "no reason given")
            raise WireFormatError(f"the server refused the handshake: {reason}")
        step = read_step(answer)
        if step != expected:
            raise WireFormatError(f"the handshake has step {step} instead of {expected}")

    async def _answer(self) -> Answer:
        size = int.from_bytes(await self._reader.readexactly(LENGTH_BYTES), "big")
        if size > FRAME_BYTES_MAX:
            raise WireFormatError(f"an answer of {size} bytes; at most {FRAME_BYTES_MAX} fit")
        return read_answer(await self._reader.readexactly(size))

    # --- calls -------------------------------------------------------------------------------

    async def call(
        self, method: Method, request: Values, *, timeout_s: float, rows_id: RowsId | None = None
    ) -> Reply:
        """Make one call and return its answer. The answer may contain an application's error.

        Raises `RpcError`.
        """
        if self.broken or self._writer.is_closing():
            raise RpcConnectionError(f"the connection to {self.address} is closed", sent=False)
        if len(self._calls) >= _PENDING_CALLS_MAX:
            message = f"{len(self._calls)} calls to {self.address} wait for an answer already"
            raise RpcBusyError(message, sent=False)
        self._call_id = self._call_id % _CALL_IDS_MAX + 1
        call_id, before = self._call_id, self._received
        timeout_ms = max(1, int(timeout_s * 1000))
        body = encode(method.request, request)
        future = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        try:
            self._writer.write(
                request_frame(call_id, method, body, timeout_ms=timeout_ms, rows_id=rows_id)
            )
            async with asyncio.timeout(timeout_s):
                outcome = await future
        except TimeoutError as error:
            if self._received == before:
                # after a partition has healed, an old connection may still be dead
                self.broken = True
            message = f"no answer from {self.address} to {method.name} within {timeout_s:g} s"
            raise RpcTimeoutError(message, sent=True) from error
        finally:
            self._calls.pop(call_id, None)
            if self.broken and not self._calls:
                self.close()
        if isinstance(outcome, RpcError):
            raise outcome
        return self._reply(method, outcome)

    def _reply(self, method: Method, answer: Answer) -> Reply:
        try:
            if answer.is_error:
                raise rpc_error_of(self.address, method.name, decode(RPC_ERROR, answer.body))
            reply = Reply(decode(method.answer, answer.body))
        except WireFormatError as error:
            self.close()
            message = f"{self.address} sent an unreadable answer to {method.name}: {error}"
            raise RpcConnectionError(message, sent=True) from error
        reply.sidecars = answer.sidecars
        return reply

    async def _read(self) -> None:
        why = "it was closed"
        try:
            while True:
                answer = await self._answer()
                self._received += 1
                future = self._calls.get(answer.call_id)
                if future is not None and not future.done():
                    future.set_result(answer)
        except (OSError, EOFError, WireFormatError) as error:
            why = str(error) or type(error).__name__
        finally:
            self._task = None
            self._break(why)

    def _break(self, why: str) -> None:
        self.broken = True
        message = f"the connection to {self.address} ended before the answer came: {why}"
        for future in self._calls.values():
            if not future.done():
                # Set an error as a result, because asyncio would log an exception that is never
                # read.
                future.set_result(RpcConnectionError(message, sent=True))
        with contextlib.suppress(RuntimeError):  # the event loop is already closed
            self._writer.transport.abort()

    def close(self) -> None:
        """End the connection. Its unanswered calls fail with `RpcConnectionError`."""
        if self._task is not None:
            self._task.cancel()
        self._break("the client closed it")
