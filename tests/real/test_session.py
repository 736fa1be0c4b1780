"""The loop in which a real environment runs: what it prints of asyncio's complaints."""

import asyncio
import gc

import pytest

from harness.environments.real.session import run_interruptible


async def fails(error):
    raise error


def forgotten(loop, error, *, of_task):
    """A task or a future that fails, and that nobody asks why."""
    if of_task:
        return loop.create_task(fails(error))
    future = loop.create_future()
    future.set_exception(error)
    return future


@pytest.mark.parametrize(
    ("error", "of_task", "complaints"),
    [
        (ConnectionResetError("as the stream's reader said"), False, 0),
        (ConnectionResetError("of a task, which nobody else tells"), True, 1),
        (ValueError("a mistake"), False, 1),
    ],
)
def test_only_the_end_of_a_connection_is_not_said_twice(error, of_task, complaints, caplog):
    async def body(_):
        future = forgotten(asyncio.get_running_loop(), error, of_task=of_task)
        await asyncio.wait([future])
        del future
        gc.collect()

    run_interruptible(body)
    assert len([record for record in caplog.records if record.name == "asyncio"]) == complaints
