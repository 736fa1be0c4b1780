"""Tests of `Wakeup`: set before a wait, set during a wait, cleared again, and a cancelled wait."""

import asyncio

from targets.kudu.wakeup import Wakeup
from tests.async_tests import on
from tests.sim.toy import run


@on(run)
async def test_set_before_the_wait_needs_no_wait(session):
    wakeup = Wakeup()
    wakeup.set()
    assert await wakeup.wait(5)
    assert asyncio.get_running_loop().time() < 0.01


@on(run)
async def test_set_during_the_wait_ends_it(session):
    wakeup = Wakeup()
    asyncio.get_running_loop().call_later(2, wakeup.set)
    assert await wakeup.wait(5)
    assert 2 <= asyncio.get_running_loop().time() < 2.01


@on(run)
async def test_the_time_passes_and_a_clear_takes_a_set_back(session):
    wakeup = Wakeup()
    wakeup.set()
    wakeup.clear()
    assert not await wakeup.wait(5)
    assert 5 <= asyncio.get_running_loop().time() < 5.01


@on(run)
async def test_a_cancelled_wait_leaves_room_for_the_next(session):
    wakeup = Wakeup()
    first = asyncio.create_task(wakeup.wait(5))
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.sleep(1)
    wakeup.set()
    assert first.cancelled()
    assert await wakeup.wait(5)
