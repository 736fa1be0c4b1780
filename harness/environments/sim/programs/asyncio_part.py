"""The substitute for `asyncio` in simulated programs.

It is a copy of the real module, without the functions that block, start threads, or depend on the
order of sets. In Python 3.11, `asyncio.wait`, `as_completed`, `all_tasks` and `TaskGroup` keep
tasks in real sets, whose order depends on memory addresses.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from harness.environments.sim.programs.ordered import OrderedSet

if TYPE_CHECKING:
    from harness.environments.sim.programs.program_loop import ProgramLoop


class TaskGroup(asyncio.TaskGroup):
    """A task group that cancels its tasks in the order of their creation."""

    def __init__(self) -> None:
        super().__init__()
        self._tasks: Any = OrderedSet()


async def wait(
    fs: Any,
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - the signature of `asyncio.wait`
    return_when: str = asyncio.ALL_COMPLETED,
) -> Any:
    """Act like `asyncio.wait`, but return ordered sets."""
    futures = list(fs)
    done, _ = await asyncio.wait(futures, timeout=timeout, return_when=return_when)
    complete = OrderedSet(future for future in futures if future in done)
    return complete, OrderedSet(future for future in futures if future not in done)


def as_completed(fs: Any, *, timeout: float | None = None) -> Any:
    """Act like `asyncio.as_completed`, but create tasks in the order of `fs`."""
    tasks = [asyncio.ensure_future(future) for future in dict.fromkeys(fs)]
    return asyncio.as_completed(tasks, timeout=timeout)


class Calls:
    """The functions of `asyncio` that use the program's loop."""

    def __init__(self, loop: ProgramLoop) -> None:
        self._loop = loop

    def all_tasks(self, loop: Any = None) -> Any:
        """Act like `asyncio.all_tasks`, but return tasks in the order of their creation."""
        del loop
        tasks = self._loop.tasks()
        return OrderedSet(task for task in tasks if not self._loop.is_system(task))

    def current_task(self, loop: Any = None) -> Any:
        """Return the current task of the program."""
        return asyncio.current_task(self._loop if loop is None else loop)

    def run(self, main: Any, *, debug: Any = None) -> Any:
        with self.runner(debug=debug) as runner:
            return runner.run(main)

    def runner(self, *, debug: Any = None, loop_factory: Any = None) -> Runner:
        del debug, loop_factory
        return Runner(self._loop)

    def loop(self) -> ProgramLoop:
        """Return the node's only loop, in place of `get_event_loop` and `new_event_loop`."""
        return self._loop

    async def subprocess(self, *_: Any, **__: Any) -> NoReturn:
        """End the run: a simulated program starts no subprocess."""
        self._loop.refuse("a subprocess", "a node of its own for the other program")

    def run_coroutine_threadsafe(self, *_: Any) -> NoReturn:
        """End the run: a simulated program has no threads."""
        self._loop.refuse("a thread (run_coroutine_threadsafe)", "asyncio.create_task")


class Runner:
    """The program's version of `asyncio.Runner`, for synchronous code."""

    def __init__(self, loop: ProgramLoop) -> None:
        self._loop = loop

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_loop(self) -> ProgramLoop:
        return self._loop

    def run(self, coro: Any, *, context: Any = None) -> Any:
        loop = self._loop
        loop.main = loop.create_task(coro, context=context)
        try:
            return loop.complete(loop.main)
        except asyncio.CancelledError:
            loop.check_interrupted()
            raise
        finally:
            loop.main = None

    def close(self) -> None:
        """Cancel the remaining tasks. The loop itself ends with the node."""
        self._loop.complete(self._loop.create_task(end_tasks(self._loop)))


class Policy(asyncio.AbstractEventLoopPolicy):
    """The event loop policy of a program, which has only one loop."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def get_event_loop(self) -> Any:
        return self._calls.loop()

    new_event_loop = get_event_loop

    def set_event_loop(self, loop: Any) -> None:
        """Ignore the loop: a simulated node has only one."""

    def get_child_watcher(self) -> NoReturn:
        self._calls.loop().refuse("a subprocess", "a node of its own for the other program")

    def set_child_watcher(self, watcher: Any) -> None:
        """Ignore the watcher: a simulated node has no child processes."""


def asyncio_module(loop: ProgramLoop) -> ModuleType:
    """Return a copy of `asyncio` for the program that runs on `loop`."""
    calls = Calls(loop)
    policy = Policy(calls)
    module = ModuleType("asyncio", asyncio.__doc__)
    module.__dict__.update(asyncio.__dict__)
    module.__dict__.update(
        wait=wait,
        as_completed=as_completed,
        TaskGroup=TaskGroup,
        all_tasks=calls.all_tasks,
        current_task=calls.current_task,
        run=calls.run,
        Runner=calls.runner,
        get_event_loop=calls.loop,
        new_event_loop=calls.loop,
        set_event_loop=lambda _: None,
        get_event_loop_policy=lambda: policy,
        set_event_loop_policy=lambda _: None,
        create_subprocess_exec=calls.subprocess,
        create_subprocess_shell=calls.subprocess,
        run_coroutine_threadsafe=calls.run_coroutine_threadsafe,
    )
    return module


async def end_tasks(loop: ProgramLoop) -> None:
    """Cancel the program's remaining tasks, as `asyncio.run` does before it returns."""
    mine = asyncio.current_task()
    left = [task for task in loop.tasks() if task is not mine and not loop.is_system(task)]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    for task in left:
        if not task.cancelled() and task.exception() is not None:
            message = "unhandled exception during asyncio.run() shutdown"
            loop.call_exception_handler({"message": message, "exception": task.exception()})
    await loop.shutdown_asyncgens()
