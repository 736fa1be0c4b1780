"""One small event loop per node, on top of the world's single heap of virtual time.

asyncio's own C tasks and futures run on it unchanged; nothing in asyncio is patched. The abstract
base class already refuses sockets, signals, subprocesses, threads and executors, which catches
nodes that bypass `Env`.

One loop per node makes faults simple: a kill discards the loop, a pause stops running its
callbacks, drift converts its timers, a slow CPU multiplies the virtual cost of a callback.
"""

from __future__ import annotations

import asyncio
import math
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heappush
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from harness.cluster import CLIENT
from harness.environments.sim.clock import Scheduler, SimClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_NS: Final = 1_000_000_000
_Future: Final = asyncio.Future
_TASKS_KEPT_MIN: Final = 64


class NodeHandle(asyncio.Handle):
    """A callback that is ready to run: `asyncio.Handle` without its debug features.

    Every callback of the world creates one, so it sets only the attributes that the world reads.
    """

    __slots__ = ()
    _callback: Callable[..., object] | None
    _context: Context

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context

    def cancel(self) -> None:
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        return self._callback is None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._callback!r}>"


class NodeTimer(asyncio.TimerHandle):
    """A callback due at `local_ns` on the node's own clock."""

    __slots__ = ("local_ns",)
    _callback: Callable[..., object] | None
    _context: Context
    _loop: NodeLoop

    def __init__(
        self,
        local_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: NodeLoop,
        context: Context | None,
    ) -> None:
        self.local_ns = local_ns
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def when(self) -> float:
        return self.local_ns / _NS

    def cancel(self) -> None:
        """Cancel the timer; the heap drops its entry later."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = None
            self._args = ()
            self._loop.world.timer_cancelled()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._callback!r} at {self.when():.9f}>"


class NodeLoop(asyncio.AbstractEventLoop):
    """The event loop of one incarnation of a node; the world runs it."""

    def __init__(self, world: Scheduler, name: str, clock: SimClock, *, cost_ns: int) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.cost_ns = cost_ns  # virtual time per callback
        self.armed = name != CLIENT  # whether tripwires are active for its callbacks
        self.due_ns = -1  # when the next callback takes effect; -1: nothing is ready
        self.alive = True
        self.paused = False
        self._frozen: list[asyncio.Future[None]] = []
        self.scheduled = False  # whether the world already knows that something is ready
        self.ready: deque[NodeHandle | NodeTimer] = deque()
        self.on_callback_error: Callable[[BaseException], None] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = _TASKS_KEPT_MIN
        self._tasks_named = 0

    # --- what asyncio asks of a loop --------------------------------------------------------

    def time(self) -> float:
        return self.clock.monotonic_ns() / _NS

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> NodeHandle:
        handle = NodeHandle(callback, args, context)
        self.ready.append(handle)
        if not self.scheduled:
            self.scheduled = True
            self.world.runnable.append(self)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> NodeTimer:
        local_ns = self.clock.monotonic_ns() + max(0, round(delay * _NS))
        return self._add_timer(local_ns, callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> NodeTimer:
        return self._add_timer(math.ceil(when * _NS), callback, args, context)

    def _add_timer(
        self,
        local_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> NodeTimer:
        timer = NodeTimer(local_ns, callback, args, self, context)
        if self.alive:
            world = self.world
            due_ns = max(world.now_ns, self.clock.world_ns(local_ns))
            heappush(world.heap, (due_ns, next(world.sequence), None, timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Create a task of this loop, which keeps a reference until the task is done.

        Each loop numbers its tasks from one, since asyncio's global counter differs between runs.
        """
        if not self.alive:
            coro.close()
            raise asyncio.CancelledError(f"{self.name} is dead: nothing starts there")
        if name is None:
            self._tasks_named += 1
            name = f"task-{self._tasks_named}"
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=str(name), context=context)
        tasks = self._tasks
        tasks.append(task)
        if len(tasks) >= self._tasks_max:
            # Keep failed tasks whose error was not retrieved, so that the moment of their
            # finalization has no effect on the run.
            self._tasks = [t for t in tasks if not t.done() or _is_unseen_failure(t)]
            self._tasks_max = max(_TASKS_KEPT_MIN, 2 * len(self._tasks))
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error that asyncio cannot deliver otherwise."""
        error = context.get("exception")
        if self.alive:
            self.world.log(self.name, f"asyncio: {context.get('message')}: {error!r}")

    get_debug = bool
    """Always false. Every future calls it, and `bool()` returns False without a Python frame."""

    def is_running(self) -> bool:
        return self.world.current is self

    def is_closed(self) -> bool:
        return not self.alive

    # --- what the world asks of a loop ------------------------------------------------------

    def tasks(self) -> list[asyncio.Task[Any]]:
        """All unfinished tasks, and failed ones whose error was not retrieved, oldest first."""
        return [t for t in self._tasks if not t.done() or _is_unseen_failure(t)]

    def pause(self) -> None:
        """Stop running callbacks; ready callbacks wait."""
        self.paused = True

    async def thawed(self) -> None:
        """Wait for the end of a pause, which may have begun within the running callback."""
        while self.paused:
            waiter = self.create_future()
            self._frozen.append(waiter)
            await waiter

    def resume(self) -> None:
        """End the pause; callbacks that became ready meanwhile run in a burst."""
        self.paused = False
        frozen, self._frozen = self._frozen, []
        for waiter in frozen:
            if not waiter.done():
                waiter.set_result(None)
        if self.ready and not self.scheduled:
            self.scheduled = True
            self.world.runnable.append(self)

    def die(self) -> None:
        """Discard all ready callbacks; heap entries of this loop are skipped from now on."""
        self.alive = False
        self.ready.clear()


def begin(
    coro: Coroutine[Any, Any, None], spawn: Callable[[Coroutine[Any, Any, None]], object]
) -> None:
    """Run `coro` inside the current callback up to its first wait; `spawn` runs any rest.

    Most faults of the simulation never wait, so they are complete before the caller continues.
    (Python 3.12 has eager tasks for this.)
    """
    try:
        awaited = coro.send(None)
    except StopIteration:
        return
    spawn(_rest(coro, awaited))


async def _rest(coro: Coroutine[Any, Any, None], awaited: Any) -> None:
    await _continue(coro, awaited)


@types.coroutine
def _continue(coro: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, Any, None]:
    """Behave like `yield from coro` for a coroutine whose first step has already run."""
    while True:
        try:
            try:
                value = yield awaited
            except BaseException as error:  # noqa: BLE001 - handed on to the coroutine
                awaited = coro.throw(error)
            else:
                awaited = coro.send(value)
        except StopIteration:
            return


def _is_unseen_failure(task: asyncio.Task[Any]) -> bool:
    return bool(task.done() and getattr(task, "_log_traceback", False))
