"""The stand-in for `asyncio`: the real module, except for what blocks, starts threads or has no
order.

`asyncio.wait`, `as_completed`, `all_tasks` and `TaskGroup` of Python 3.11 keep tasks in real sets,
which iterate in the order of addresses.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness.environments.sim.programs.ordered import OrderedSet

if TYPE_CHECKING:
    from harness.environments.sim.programs.program_loop import ProgramLoop


def asyncio_module(loop: ProgramLoop) -> ModuleType:
    """A copy of `asyncio` for the program of `loop`."""
    module = ModuleType("asyncio", asyncio.__doc__)
    module.__dict__.update(asyncio.__dict__)

    async def wait(  # the signature of `asyncio.wait`
        fs: Any,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        return_when: Any = None,
    ) -> Any:
        futures = list(fs)
        how = return_when or asyncio.ALL_COMPLETED
        done, _ = await asyncio.wait(futures, timeout=timeout, return_when=how)
        complete = [f for f in futures if f in done]
        return OrderedSet(complete), OrderedSet(f for f in futures if f not in done)

    def as_completed(fs: Any, *, timeout: float | None = None) -> Any:
        tasks = dict.fromkeys(asyncio.ensure_future(f, loop=loop) for f in dict.fromkeys(fs))
        return asyncio.as_completed(list(tasks), timeout=timeout)

    own = loop

    def all_tasks(loop: Any = None) -> Any:
        del loop
        return OrderedSet(task for task in own.tasks() if not own.is_system(task))

    def current_task(loop: Any = None) -> Any:
        return asyncio.current_task(own if loop is None else loop)

    class TaskGroup(asyncio.TaskGroup):
        def __init__(self) -> None:
            super().__init__()
            self._tasks: Any = OrderedSet()

    class Runner:
        """Runs coroutines from the synchronous part of the program."""

        def __init__(self, *, debug: Any = None, loop_factory: Any = None) -> None:
            del debug, loop_factory

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def get_loop(self) -> Any:
            return loop

        def run(self, coro: Any, *, context: Any = None) -> Any:
            main = loop.create_task(coro, context=context)
            try:
                return loop.complete(main)
            finally:
                loop.complete(loop.create_task(end_tasks(loop)))

        def close(self) -> None:
            """Do nothing: the loop ends with the node."""

    def run(main: Any, *, debug: Any = None) -> Any:
        with Runner(debug=debug) as runner:
            return runner.run(main)

    class Policy(asyncio.AbstractEventLoopPolicy):
        def get_event_loop(self) -> Any:
            return loop

        def set_event_loop(self, loop: Any) -> None:
            """Do nothing: a simulated node has one loop."""

        def new_event_loop(self) -> Any:
            return loop

        def get_child_watcher(self) -> Any:
            loop.refuse("a subprocess", "a node of its own for the other program")

        def set_child_watcher(self, watcher: Any) -> None:
            """Do nothing: a simulated node has no child processes."""

    policy = Policy()

    async def subprocess(*_: Any, **__: Any) -> Any:
        loop.refuse("a subprocess", "a node of its own for the other program")

    def run_coroutine_threadsafe(coro: Any, of: Any) -> Any:
        del of, coro
        loop.refuse("a thread (run_coroutine_threadsafe)", "asyncio.create_task")

    for name in ("TaskGroup", "Runner"):
        {"TaskGroup": TaskGroup, "Runner": Runner}[name].__qualname__ = name
    module.__dict__.update(
        wait=wait,
        as_completed=as_completed,
        all_tasks=all_tasks,
        TaskGroup=TaskGroup,
        Runner=Runner,
        run=run,
        get_event_loop=lambda: loop,
        new_event_loop=lambda: loop,
        set_event_loop=lambda _: None,
        get_event_loop_policy=lambda: policy,
        set_event_loop_policy=lambda _: None,
        current_task=current_task,
        create_subprocess_exec=subprocess,
        create_subprocess_shell=subprocess,
        run_coroutine_threadsafe=run_coroutine_threadsafe,
    )
    return module


async def end_tasks(loop: ProgramLoop) -> None:
    """Cancel the program's remaining tasks, as `asyncio.run` does at its end."""
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
