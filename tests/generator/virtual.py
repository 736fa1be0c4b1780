"""Fakes for interpreting generators in virtual time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from harness.ops import Op, OpType
from harness.plugins import Completion, Request
from harness.run.interpreter import interpret
from harness.run.recorder import Recorder
from tests.support.env import FakeEnv
from tests.support.virtual import VirtualClock, run

BEGIN_NS = 1_000_000_000_000  # the clock does not start at 0, so a missing conversion is noticed


Behaviour = Callable[["FakeClient", Request], Awaitable[Completion]]


class FakeClient:
    def __init__(self, world: "World", process: int) -> None:
        self.world, self.process = world, process

    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        assert timeout_s == self.world.op_timeout_s
        return await self.world.behaviour(self, request)

    async def close(self) -> None:
        self.world.closed.append(self.process)


class World:
    """An interpreter of generators, with clients that behave as the test says."""

    def __init__(self, behaviour: Behaviour, *, op_timeout_s: float = 5.0) -> None:
        self.behaviour = behaviour
        self.op_timeout_s = op_timeout_s
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.left: Any = "not interpreted"
        self.recorder: Recorder | None = None
        self.env = FakeEnv("driver", clock=VirtualClock(BEGIN_NS))
        self.stop = asyncio.Event()

    def open_client(self, process: int) -> FakeClient:
        self.opened.append(process)
        return FakeClient(self, process)

    async def interpret(self, generator: Any, *, concurrency: int = 2, **options: Any) -> None:
        self.recorder = self.recorder or Recorder(self.env.clock)
        self.left = await interpret(
            generator,
            env=self.env,
            open_client=options.pop("open_client", self.open_client),
            concurrency=concurrency,
            recorder=options.pop("recorder", self.recorder),
            op_timeout_s=self.op_timeout_s,
            rng=random.Random(0),
            stop=self.stop,
            **options,
        )

    @property
    def ops(self) -> list[Op]:
        assert self.recorder is not None
        return list(self.recorder.history())

    def run(self, generator: Any, *, concurrency: int = 2, **options: Any) -> list[Op]:
        run(self.interpret(generator, concurrency=concurrency, **options))
        return self.ops


def answering(kind: OpType = OpType.OK, latency_s: float = 0.01) -> Behaviour:
    async def behave(_client: FakeClient, request: Request) -> Completion:
        if latency_s:
            await asyncio.sleep(latency_s)
        return Completion(kind, request.value)

    return behave
