"""The base of clients for foreign systems that speak JSON over HTTP.

A target implements its operations as a coroutine function of a `Web` and a `Request` that returns
the value of the answer. This module does the rest: it keeps one connection to one node, switches to
the next node after a failure, pauses after a refusal, records every exchange as an attempt, and
classifies the outcome. The pause is needed because a dead node refuses at once: without it, these
failures would use up the workload's rate. An operation that failed before it sent a mutating
request definitely did not happen: `fail`. After that the outcome is unknown: `info`, unless the
operation declares that it had no effect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from harness.env import Address, ClientEnv
from harness.ops import Attempt, OpType
from harness.plugins import Completion, Convergence, Request
from harness.support.http1 import fetch, hang_up
from harness.support.loopback import dial

__all__ = ["DeclinedError", "Web", "WebClient", "agreement", "ask_each"]

BACK_OFF_S: Final = 0.2
_ERROR_CHARACTERS_MAX: Final = 300
_FAILURES: Final = (OSError, TimeoutError, EOFError, ValueError)
"""The errors of a request, including malformed answers."""


class DeclinedError(Exception):
    """The system refused the request and did nothing. `value` goes into the completion."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value


class Web:
    """The connection of one client, and the state of its current operation."""

    def __init__(self, env: ClientEnv, address: Address, *, hello: str | None) -> None:
        self.address = address
        self.attempts: list[Attempt] = []
        self.sent = False
        self.may_have_changed = False
        self._env = env
        self._hello = hello
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, body: object = None, *, changes: bool = False
    ) -> Any:
        """Send a request; returns the decoded JSON of the answer, which must have status 2xx.

        `changes` says whether the request may have an effect. Raises `OSError`, `EOFError` or
        `ValueError`, which the operation must not catch.
        """
        start = self._env.clock.monotonic_ns()
        outcome = "not answered"
        try:
            reader, writer = await self._connect()
            self.sent = True
            self.may_have_changed |= changes
            answer = await self._exchange(reader, writer, method, path, body)
            outcome = "ok"
        except _FAILURES as error:
            outcome = _text_of(error)
            raise
        finally:
            end = self._env.clock.monotonic_ns()
            self.attempts.append(Attempt(self.address.node, start, end, outcome))
        return answer

    def had_no_effect(self) -> None:
        """Declare that all requests so far changed nothing, so the operation may be tried again."""
        self.may_have_changed = False

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            host, port = self._env.endpoint(self.address)
            streams = await dial(host, port)
            self._streams = streams
            if self._hello is not None:
                await self._exchange(*streams, "GET", self._hello, None)
        return self._streams

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        body: object,
    ) -> Any:
        text = b"" if body is None else json.dumps(body).encode()
        host = [("Host", self.address.node)]
        response, lives_on = await fetch(reader, writer, method, path, host, text)
        if not lives_on:
            await self.close()
        if not 200 <= response.status < 300:
            why = response.body.decode("utf-8", "replace").strip()
            raise ValueError(f"status {response.status}: {why}")
        if response.may_be_cut():
            raise EOFError("the answer may be cut: it has neither a Content-Length nor chunks")
        return json.loads(response.body) if response.body else None

    async def close(self) -> None:
        if self._streams is not None:
            (_, writer), self._streams = self._streams, None
            await hang_up(writer)


class WebClient:
    """One client process (`harness.plugins.Client`).

    Process p begins with node number p modulo the number of nodes.
    """

    def __init__(
        self,
        env: ClientEnv,
        process: int,
        nodes: Sequence[Address],
        operate: Callable[[Web, Request], Awaitable[Any]],
        *,
        hello: str | None = None,
        pinned: bool = False,
    ) -> None:
        """Make a client without a connection.

        `hello` is a path: a new connection is used only after the node has answered a GET of this
        path. This is needed because Docker's port proxy accepts connections even for a dead
        container. `pinned` means that the client stays with its first node, like a naive client.
        """
        self._env, self._nodes, self._operate = env, nodes, operate
        self._hello, self._pinned, self._number = hello, pinned, process
        self._web = self._next_web()

    def _next_web(self) -> Web:
        address = self._nodes[self._number % len(self._nodes)]
        return Web(self._env, address, hello=self._hello)

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        """Do one operation and return its completion, classified as the module's docstring says."""
        web = self._web
        web.attempts, web.sent, web.may_have_changed = [], False, False
        value, error, kind = None, None, OpType.OK
        try:
            async with asyncio.timeout(timeout_s):
                value = await self._operate(web, request)
        except DeclinedError as declined:
            value, kind = declined.value, OpType.FAIL
        except _FAILURES as failure:
            error = _text_of(failure)
            kind = OpType.INFO if web.may_have_changed else OpType.FAIL
            await web.close()
            self._number += not self._pinned
            self._web = self._next_web()
            if not web.sent:
                await asyncio.sleep(min(BACK_OFF_S, timeout_s / 2))
        node = None if error else web.address.node
        return Completion(kind, value, error, node, tuple(web.attempts))

    async def close(self) -> None:
        await self._web.close()


async def ask_each(
    env: ClientEnv,
    nodes: Iterable[Address],
    method: str,
    path: str,
    body: object = None,
    *,
    within_s: float = 1.0,
) -> dict[str, Any]:
    """Send the same request to each node; returns the answers by node name.

    Nodes that fail or do not answer within `within_s` are left out.
    """
    answers: dict[str, Any] = {}

    async def ask_one(address: Address) -> None:
        web = Web(env, address, hello=None)
        try:
            async with asyncio.timeout(within_s):
                answers[address.node] = await web.ask(method, path, body)
        except _FAILURES:
            return
        finally:
            await web.close()

    asked = list(nodes)
    await asyncio.gather(*map(ask_one, asked))
    return {address.node: answers[address.node] for address in asked if address.node in answers}


def agreement(answers: Mapping[str, Any], names: Iterable[str], *fields: str) -> Convergence:
    """Return a `Convergence`, which is good if `answers` has all `names` and equal `fields`."""
    pending = [f"{name} does not answer" for name in names if name not in answers]
    for field in fields:
        values = {name: answer.get(field) for name, answer in answers.items()}
        if None in values.values() or len(set(map(repr, values.values()))) > 1:
            pending.append(f"they disagree on {field}: {values}")
    return Convergence(not pending, tuple(pending))


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS_MAX]
