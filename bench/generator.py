"""Operations per second that the generator algebra and its driver can schedule.

Run it as `python -m bench.generator`. Each figure is the best of a few rounds, per CPU-second of
one core: "algebra" is ask, invoke, update, complete, update, with completions that come in order of
invocation; "driver" is `harness.run.interpreter` with clients that answer at once, on asyncio's own
loop, recording into memory.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, cast

from bench.measure import best_s, machine
from harness.env import ClientEnv, Clock
from harness.generator import (
    Draft,
    Emit,
    Generator,
    each_thread,
    limit,
    mix,
    new_context,
    repeat,
    reserve,
    stagger,
    time_limit,
)
from harness.ops import Op, OpType
from harness.plugins import Completion, Request
from harness.run.interpreter import interpret
from harness.run.recorder import Recorder

ALGEBRA_OPS = 20_000
DRIVER_OPS = 5_000
ROUNDS = 3
TINY_S = 1e-9  # staggering at this distance never holds an operation up


def _write(ctx: Any) -> Draft:
    return Draft("write", ctx.random.randrange(1000))


def _plain(_concurrency: int) -> Generator:
    return repeat(Draft("read"))


def _composite(_concurrency: int) -> Generator:
    mixture = mix(repeat(Draft("read")), _write, repeat(Draft("cas", [1, 2])))
    return time_limit(3600, stagger(TINY_S, mixture))


def _reserved(concurrency: int) -> Generator:
    third = concurrency // 3
    groups = reserve(third, _write, third, repeat(Draft("cas", [1, 2])), repeat(Draft("read")))
    return time_limit(3600, stagger(TINY_S, groups))


def _per_thread(_concurrency: int) -> Generator:
    return each_thread(mix(repeat(Draft("read")), _write))


GENERATORS: dict[str, Callable[[int], Generator]] = {
    "plain": _plain,
    "mix + stagger + time_limit": _composite,
    "reserve, 3 groups": _reserved,
    "each_thread(mix)": _per_thread,
}


def algebra(generator: Generator, concurrency: int, count: int) -> None:
    """Schedules `count` operations with as many in flight as there are threads."""
    ctx = new_context(concurrency, random.Random(1))
    in_flight: deque[Op] = deque()
    index = emitted = now_ns = 0
    while emitted < count:
        now_ns += 1_000
        if len(in_flight) == concurrency:
            invoked = in_flight.popleft()
            ended = Op(index, now_ns, invoked.process, OpType.OK, invoked.f, invoked.value)
            ctx = ctx.freed(ctx.index_of(ended.process), now_ns)
            generator = generator.update(ctx, ended)
            index += 1
        step = generator.op(ctx.at(now_ns))
        assert isinstance(step, Emit), "every generator here has an operation for a free thread"
        draft = step.draft
        assert draft.process is not None
        invoked = Op(index, now_ns, draft.process, OpType.INVOKE, draft.f, draft.value)
        ctx = ctx.busy(ctx.index_of(draft.process), now_ns)
        generator = step.next.update(ctx, invoked)
        in_flight.append(invoked)
        index += 1
        emitted += 1


class _Client:
    async def invoke(self, request: Request, *, timeout_s: float) -> Completion:
        del timeout_s
        return Completion(OpType.OK, request.value)

    async def close(self) -> None:
        return None


class _Clock:
    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class _Env:
    def spawn(self, coro: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(coro, name=name)


async def driver(generator: Generator, concurrency: int, count: int) -> None:
    """Does `count` operations through the interpreter."""
    recorder = Recorder(cast("Clock", _Clock()))
    await interpret(
        limit(count, generator),
        env=cast("ClientEnv", _Env()),
        open_client=lambda _process: _Client(),
        concurrency=concurrency,
        recorder=recorder,
        op_timeout_s=5,
        rng=random.Random(1),
    )
    assert len(recorder.history()) == 2 * count


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    print(f"operations per CPU-second of one core ({machine()}), best of {rounds}")
    print(f"{'generator':28} {'concurrency':>11} {'algebra':>10} {'driver':>10}")
    for name, make in GENERATORS.items():
        for concurrency in (10, 1024):
            made, n = make(concurrency), concurrency
            algebra_s = best_s(lambda g=made, n=n: algebra(g, n, ALGEBRA_OPS), rounds)
            driver_s = best_s(lambda g=made, n=n: asyncio.run(driver(g, n, DRIVER_OPS)), rounds)
            print(
                f"{name:28} {concurrency:>11} {ALGEBRA_OPS / algebra_s:>10,.0f} "
                f"{DRIVER_OPS / driver_s:>10,.0f}"
            )


if __name__ == "__main__":
    _main()
