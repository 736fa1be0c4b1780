"""A client, which reads from a majority and then writes to a majority, without any leader.

A read must write its value back to a majority before it answers. Without that (the switch
NO-WRITE-BACK), a value that reached only one node can be returned by one read and be missing in the
next.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from abd_register.node import PORT
from harness.env import Address, ClientEnv, Conn
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Request

NO_MAJORITY = "NO_MAJORITY: too few nodes answered"


class Channel:
    """One connection to one node: one request at a time, dropped after any failure."""

    def __init__(self, env: ClientEnv, node: str) -> None:
        self.env = env
        self.node = node
        self.lock = asyncio.Lock()
        self.conn: Conn | None = None

    async def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any] | None:
        """Return the node's answer; `None` if it is unknown whether the node got the request."""
        try:
            async with asyncio.timeout(timeout_s), self.lock:
                try:
                    self.conn = self.conn or await self.env.net.connect(Address(self.node, PORT))
                    await self.conn.send(msgspec.json.encode(request))
                    frame = await self.conn.recv()
                    if frame is not None:
                        return dict(msgspec.json.decode(frame))
                    self.drop()
                except BaseException:
                    self.drop()  # a late answer must not be taken for the answer to the next request
                    raise
        except (OSError, TimeoutError):
            pass
        return None

    def drop(self) -> None:
        """Close the connection."""
        if self.conn is not None:
            self.conn.close()
            self.conn = None


class AbdClient:
    """The client of one process, whose number makes its stamps unique."""

    def __init__(
        self, env: ClientEnv, nodes: Sequence[str], process: int, *, write_back: bool
    ) -> None:
        self.env = env
        self.process = process
        self.write_back = write_back
        self.channels = [Channel(env, node) for node in nodes]
        self.asking: list[asyncio.Task[None]] = []
        self.attempts: list[Attempt] = []

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Run one operation; a write that reached a node, but no majority, is `info`."""
        self.attempts = []
        deadline_ns = self.env.clock.monotonic_ns() + int(timeout_s * 1e9)
        if request.f == "cas":
            return self._ended(OpType.FAIL, error="UNSUPPORTED: a majority cannot compare")
        answers = await self._majority({"do": "get"}, deadline_ns)
        if answers is None:
            return self._ended(OpType.FAIL, error=NO_MAJORITY)
        newest = max(answers, key=lambda answer: answer["stamp"])
        if request.f == "read":
            kept = not self.write_back or await self._tell(newest, deadline_ns)
            value = {"value": newest["value"]}
            return self._ended(OpType.OK, value) if kept else self._ended(OpType.FAIL)
        stamp = [newest["stamp"][0] + 1, self.process + 1]
        new = {"stamp": stamp, "value": request.value["value"]}
        if await self._tell(new, deadline_ns):
            return self._ended(OpType.OK, request.value)
        return self._ended(OpType.INFO, request.value)

    async def _tell(self, kept: dict[str, Any], deadline_ns: int) -> bool:
        return await self._majority({"do": "put", **kept}, deadline_ns) is not None

    async def _majority(
        self, request: dict[str, Any], deadline_ns: int
    ) -> list[dict[str, Any]] | None:
        """Return the first answers of a majority, or `None` if too few come in time."""
        needed = len(self.channels) // 2 + 1
        answers: list[dict[str, Any]] = []
        ended: list[str] = []
        decided = asyncio.Event()

        async def ask(channel: Channel) -> None:
            answer = await self._ask(channel, request, deadline_ns)
            ended.append(channel.node)
            if answer is not None:
                answers.append(answer)
            if len(answers) >= needed or len(ended) == len(self.channels):
                decided.set()

        # Late requests continue, because cancelling a request would cost its connection.
        self.asking = [task for task in self.asking if not task.done()]
        self.asking += [asyncio.ensure_future(ask(channel)) for channel in self.channels]
        await decided.wait()
        return answers if len(answers) >= needed else None

    async def _ask(
        self, channel: Channel, request: dict[str, Any], deadline_ns: int
    ) -> dict[str, Any] | None:
        start_ns = self.env.clock.monotonic_ns()
        attempts = self.attempts
        answer = await channel.ask(request, (deadline_ns - start_ns) / 1e9)
        end_ns = self.env.clock.monotonic_ns()
        attempts.append(Attempt(channel.node, start_ns, end_ns, "ok" if answer else "NO_ANSWER"))
        return answer

    def _ended(self, kind: OpType, value: Any = None, error: str | None = None) -> Completion:
        if kind is not OpType.OK and error is None:
            error = NO_MAJORITY
        return Completion(kind, value, error, None, tuple(self.attempts))

    async def close(self) -> None:
        """End open requests and drop all connections."""
        for task in self.asking:
            task.cancel()
        await asyncio.gather(*self.asking, return_exceptions=True)
        for channel in self.channels:
            channel.drop()
