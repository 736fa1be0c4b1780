"""A scripted RPC client, in virtual time."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

from targets.kudu import messages as m
from targets.kudu.rpc import RpcError
from tests.support import env
from tests.support.virtual import VirtualClock

Handler = Callable[[str, Any], Any]


class FakeEnv(env.FakeEnv):
    def __init__(self) -> None:
        super().__init__("client", clock=VirtualClock())


@dataclasses.dataclass
class Silence:
    """A scripted answer that never comes."""


@dataclasses.dataclass
class Late:
    """A scripted answer that comes after a delay."""

    after_s: float
    answer: Any


@dataclasses.dataclass
class Overdue:
    """A scripted answer that arrives after its time limit, as after a pause of the caller."""

    after_s: float
    answer: Any


class FakeRpc:
    """Scripted answers by `(address, method)`; the last entry of a list is repeated."""

    def __init__(self, script: dict[tuple[str, str], list[Any]]) -> None:
        self.script = {key: list(answers) for key, answers in script.items()}
        self.sent: list[tuple[str, str, Any]] = []
        self.closed = False

    async def call(self, address, request, *, timeout_s):
        name = request.method.partition(".")[2]
        self.sent.append((address, name, request))
        answers = self.script[address, name]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Overdue):
            await asyncio.sleep(answer.after_s)
            answer = answer.answer
        if isinstance(answer, Late):
            if answer.after_s > timeout_s:
                await asyncio.sleep(timeout_s)
                raise RpcError("timed out", sent=True)
            await asyncio.sleep(answer.after_s)
            answer = answer.answer
        if isinstance(answer, Silence):
            await asyncio.sleep(timeout_s)
            raise RpcError("timed out", sent=True)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, request.answer_type)
        return answer

    def close(self) -> None:
        self.closed = True

    def requests(self, name: str) -> list[Any]:
        return [request for _, method, request in self.sent if method == name]


def connect(
    term: int,
    role: str = "FOLLOWER",
    error: m.MasterError | None = None,
    members: tuple[str, ...] = (),
):
    return m.ConnectToMasterResponse(
        m.Meta("u", term), role=role, error=error, master_addresses=members
    )
