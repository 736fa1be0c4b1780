"""`Wakeup`: set before, set during, set never, cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from harness.environments.sim import SimEnvironment
from harness.plugins import DeploymentPlan, Session
from targets.kudu.wakeup import Wakeup

T = TypeVar("T")


def simulate(body: Coroutine[Any, Any, T]) -> T:
    async def main(session: Session) -> T:
        return await body

    plan = DeploymentPlan(run_id="wakeup", nodes=(), seed=1, knobs={}, folder=None)
    return SimEnvironment().execute(plan, main)


def test_set_before_the_wait_needs_no_wait() -> None:
    async def body() -> tuple[bool, float]:
        wakeup = Wakeup()
        wakeup.set()
        return await wakeup.wait(5), asyncio.get_running_loop().time()

    is_set, at_s = simulate(body())
    assert is_set
    assert at_s < 0.01


def test_set_during_the_wait_ends_it() -> None:
    async def body() -> tuple[bool, float]:
        wakeup = Wakeup()
        asyncio.get_running_loop().call_later(2, wakeup.set)
        return await wakeup.wait(5), asyncio.get_running_loop().time()

    is_set, at_s = simulate(body())
    assert is_set
    assert 2 <= at_s < 2.01


def test_the_time_passes_and_a_clear_takes_a_set_back() -> None:
    async def body() -> tuple[bool, float]:
        wakeup = Wakeup()
        wakeup.set()
        wakeup.clear()
        return await wakeup.wait(5), asyncio.get_running_loop().time()

    is_set, at_s = simulate(body())
    assert not is_set
    assert 5 <= at_s < 5.01


def test_a_cancelled_wait_leaves_room_for_the_next() -> None:
    async def body() -> bool:
        wakeup = Wakeup()
        first = asyncio.create_task(wakeup.wait(5))
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.sleep(1)
        wakeup.set()
        return first.cancelled() and await wakeup.wait(5)

    assert simulate(body())
