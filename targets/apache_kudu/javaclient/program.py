"""The Java program that carries out operations: one process per run, one JSON object per line.

The process starts with the first operation, and all clients of the run share it. A task of the
clients' environment runs it, so it ends with the run. If the harness is killed, the program's input
ends and the program exits. If the program ends before the run does, or if a line cannot be read,
the run ends without a verdict and reports the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from harness.env import ClientEnv
from harness.errors import UsageError, clipped, shown
from targets.apache_kudu.javaclient.attempts import OPEN

MAIN: Final = "org.apache.kudu.client.JavaClient"
_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A small heap, and only the quick compiler, because runs are short and the processors shared."""
_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_STDERR_LINES: Final = 5
_REASON_MAX: Final = 500


class Reply(NamedTuple):
    """The program's reply to an operation: the client's answer, or its error.

    `error` is (code, text); the code is `OPEN` if the client is still busy. `frames` are the
    traces of the client's RPCs. `begun` is false if the rows of a write never reached the client.
    """

    answer: Mapping[str, Any] | None
    error: tuple[str, str] | None
    frames: Sequence[Mapping[str, Any]] = ()
    begun: bool = True


class JavaProgram:
    """The program of one run, with the operations that wait for its answers."""

    def __init__(self, env: ClientEnv, java: str, class_path: str) -> None:
        self._env = env
        self._command = (java, *_OPTIONS, "-cp", class_path, MAIN)
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._started: asyncio.Future[asyncio.StreamWriter] | None = None

    async def ask(
        self, masters: Sequence[str], number: int, asked: Mapping[str, Any], *, timeout_s: float
    ) -> Reply:
        """Let client number `number` carry out an operation. The client is created if needed.

        If no answer comes in time, the error is `OPEN`. Raises `RuntimeError` if the program itself
        failed. The outcome is then unknown.
        """
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._exchange(masters, {"client": number, **asked})
        except TimeoutError:
            return Reply(None, (OPEN, "the program did not answer in time"))
        if "fatal" in reply:
            raise RuntimeError(clipped(str(reply["fatal"]), _REASON_MAX))
        error = reply.get("error")
        return Reply(
            reply.get("answer"),
            error and (error[0], error[1]),
            reply.get("frames", ()),
            reply.get("begun", True),
        )

    async def close(self, number: int) -> None:
        """Close the client with this number, if it exists."""
        if self._started is not None:
            await self._exchange((), {"client": number, "f": "close"})

    async def _exchange(self, masters: Sequence[str], line: Mapping[str, Any]) -> dict[str, Any]:
        writer = await self._writer(masters)
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            # the task that reads the program's output reports why the program ended
            with contextlib.suppress(ConnectionError):
                writer.write(json.dumps({"id": number, **line}).encode() + b"\n")
                await writer.drain()
            return await answer
        finally:
            del self._asked[number]

    async def _writer(self, masters: Sequence[str]) -> asyncio.StreamWriter:
        if self._started is None:
            self._started = asyncio.get_running_loop().create_future()
            self._env.spawn(self._run(self._started, masters), name="java-client")
        return await asyncio.shield(self._started)

    async def _run(
        self, started: asyncio.Future[asyncio.StreamWriter], masters: Sequence[str]
    ) -> None:
        try:
            program = await asyncio.create_subprocess_exec(  # determinism: no node runs this module
                *self._command,
                ",".join(masters),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_BYTES_MAX,
                # Keep the program out of the terminal's process group: the harness needs it after
                # Ctrl-C.
                start_new_session=True,
            )
        except OSError as error:
            what = f"cannot run Kudu's Java client ({self._command[0]}): {error}"
            raise UsageError(what) from error
        last: deque[str] = deque(maxlen=_STDERR_LINES)
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        listening = self._env.spawn(_keep_last(program.stderr, last), name="java-client-stderr")
        try:
            started.set_result(program.stdin)
            await self._read(program.stdout)
            code = await program.wait()
            await listening
        finally:
            with contextlib.suppress(ProcessLookupError):
                program.kill()
            await program.wait()
        reason = clipped(" | ".join(last), _REASON_MAX) or "it wrote no reason"
        raise UsageError(
            f"the program of Kudu's Java client ended during the run with exit code {code}: "
            f"{reason}; the run has no verdict, run it again"
        )

    async def _read(self, lines: asyncio.StreamReader) -> None:
        line = b""
        while True:
            try:
                line = await lines.readline()
                if not line:
                    return
                reply = json.loads(line)
                number = reply["id"]
            except (ValueError, KeyError, TypeError) as error:
                what = f"the program of Kudu's Java client wrote {shown(line)}: {error}"
                raise UsageError(f"{what}; the run has no verdict, run it again") from error
            waiting = self._asked.get(number)
            if waiting is not None and not waiting.done():
                waiting.set_result(reply)


async def _keep_last(lines: asyncio.StreamReader, last: deque[str]) -> None:
    async for line in lines:
        text = line.decode(errors="replace").strip()
        if not text.startswith("SLF4J"):
            last.append(text)
