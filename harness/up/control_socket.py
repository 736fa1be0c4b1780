"""The control socket of a holder (the process that owns a cluster): one question per connection.

A question is one line of JSON, and so is the answer. The socket is in the folder of the cluster,
which other users cannot enter, so only its owner can ask. A socket's path may have at most 108
bytes (unix(7)), and folders may have longer paths, so both ends use `/proc/self/fd`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.errors import HarnessError, InfrastructureError, UsageError
from harness.run.freeze import Violation
from harness.up.records import Failure

_NAME: Final = "door"
_QUESTION_BYTES_MAX: Final = 64 * 1024
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_ASKERS_MAX: Final = 32
ANSWER_TIMEOUT_S: Final = 150.0
"""The time limit for an answer of the holder. It is longer than the limits of an operation
(`run.operations`) and of the stop of a node."""


class _Question(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask"):
    pass


class Status(_Question, frozen=True, kw_only=True, tag="status"):
    """Ask for the state of every node, the leaders, and active faults."""


class Break(_Question, frozen=True, kw_only=True, tag="break"):
    """Inject a fault, in words or by the name of a nemesis, for some time or until it is healed."""

    fault: str
    for_s: float | None = None


class Heal(_Question, frozen=True, kw_only=True, tag="heal"):
    """Undo the fault `id`; without `id`, the only active fault; with `everything`, all faults."""

    id: str | None = None
    everything: bool = False


class Down(_Question, frozen=True, kw_only=True, tag="down"):
    """End the cluster; with `keep_data`, first stop the nodes gracefully and copy their data."""

    keep_data: bool = False


class UseTool(_Question, frozen=True, kw_only=True, tag="tool"):
    """Run the target's own tool (`System.tool`) with these arguments."""

    arguments: tuple[str, ...]


class Freeze(_Question, frozen=True, kw_only=True, tag="freeze"):
    """Freeze the run that the holder conducts. The answer does not wait for the freeze."""

    violation: Violation


class Release(_Question, frozen=True, kw_only=True, tag="release"):
    """Let a run whose phases are over end."""


Question = Status | Break | Heal | Down | UseTool | Freeze | Release


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    value: Any = None
    failure: Failure | None = None


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield a path of the socket that is short enough for a connect, valid inside the block."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{_NAME}"
    finally:
        os.close(descriptor)


@contextlib.asynccontextmanager
async def open_door(
    folder: Path, answer: Callable[[Question], Awaitable[Any]]
) -> AsyncIterator[None]:
    """Answer questions at the control socket with `answer` inside this context.

    An exception in `answer` is sent to the caller.
    """
    places = asyncio.Semaphore(_ASKERS_MAX)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # the caller may have hung up
            async with places:
                reply = await _reply(reader, answer)
                writer.write(msgspec.json.encode(reply) + b"\n")
                await writer.drain()
        writer.close()

    listener = socket.socket(socket.AF_UNIX)
    with _short(folder) as path:
        listener.bind(path)
    server = await asyncio.start_unix_server(serve, sock=listener, limit=_QUESTION_BYTES_MAX)
    try:
        yield
    finally:
        server.close()
        (folder / _NAME).unlink(missing_ok=True)


async def _reply(
    reader: asyncio.StreamReader, answer: Callable[[Question], Awaitable[Any]]
) -> _Answer:
    try:
        question = msgspec.json.decode(await reader.readline(), type=Question)
    except (ValueError, msgspec.DecodeError) as error:
        return _Answer(
            failure=Failure.of(UsageError(f"the holder received an invalid question: {error}"))
        )
    try:
        return _Answer(value=await answer(question))
    except HarnessError as error:
        return _Answer(failure=Failure.of(error))
    except Exception as error:  # noqa: BLE001 - sent to the caller; the cluster keeps running
        return _Answer(failure=Failure(error=f"the holder failed: {error!r}"))


def ask(folder: Path, question: Question, *, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
    """Send a question to the holder; returns its answer.

    Raises the error that the holder sent, or `InfrastructureError` if the holder cannot be reached.
    """
    data = b""
    try:
        with _short(folder) as path, socket.socket(socket.AF_UNIX) as link:
            link.settimeout(timeout_s)
            link.connect(path)
            link.sendall(msgspec.json.encode(question) + b"\n")
            while not data.endswith(b"\n"):
                piece = link.recv(65536)
                if not piece or len(data) > _ANSWER_BYTES_MAX:
                    raise InfrastructureError(
                        f"the holder of {folder.name!r} gave no answer; see {folder / 'holder.log'}"
                    )
                data += piece
    except TimeoutError as error:
        raise InfrastructureError(
            f"the holder of {folder.name!r} did not answer within {timeout_s:g} s"
        ) from error
    except OSError as error:
        raise InfrastructureError(
            f"the holder of {folder.name!r} cannot be reached: {error.strerror}"
        ) from error
    answer = msgspec.json.decode(data, type=_Answer)
    if answer.failure is not None:
        raise answer.failure.as_error()
    return answer.value
