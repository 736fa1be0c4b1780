"""One small event loop per node, on top of the world's single heap of virtual time.

asyncio's own C tasks and futures run unchanged on such a loop, and nothing in asyncio is patched.
The abstract base class already refuses sockets, signals, subprocesses, threads and executors, so
nodes that bypass `Env` are noticed.

One loop per node makes faults simple. A kill discards the loop, a pause stops running the loop's
callbacks, drift moves its timers, and a slow CPU multiplies the virtual time of a callback.
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
GeneratorHooks = tuple[Callable[[Any], None] | None, Callable[[Any], None] | None]
"""The hooks of `sys.set_asyncgen_hooks` while a loop's callbacks run."""


class NodeHandle(asyncio.Handle):
    """A callback that is ready to run: an `asyncio.Handle` without debug features.

    A run creates a handle for each callback, so a handle sets only attributes that the world reads.
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
    """A callback that is due at `local_ns` by the node's own clock."""

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
        """Cancel the timer. Its entry stays in the world's heap for a while, without an effect."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = None
            self._args = ()
            self._loop.world.timer_cancelled()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._callback!r} at {self.when():.9f}>"


class NodeLoop(asyncio.AbstractEventLoop):
    """The event loop of a node, from one start of the node to its end. The world runs it."""

    generator_hooks: GeneratorHooks = (None, None)

    def __init__(self, world: Scheduler, name: str, clock: SimClock, *, cost_ns: int) -> None:
        self.world = world
        self.name = name
        self.clock = clock
        self.cost_ns = cost_ns  # the virtual time of each callback
        self.armed = name != CLIENT  # tripwires are active while its callbacks run
        # the node runs no callback before this time, because of a blocking call
        self.busy_until_ns = 0
        self.due_ns = -1  # when the next callback takes effect; -1 if none is ready
        self.alive = True
        self.paused = False
        self._frozen: list[asyncio.Future[None]] = []
        self.scheduled = False  # the world already knows that the loop has callbacks to run
        self.ready: deque[NodeHandle | NodeTimer] = deque()
        self.on_callback_error: Callable[[BaseException], None] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = _TASKS_KEPT_MIN
        self._tasks_named = 0

    # --- the interface that asyncio uses ---------------------------------------------------------

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
        """Create a task of this loop. The loop refers to it until the task is done.

        The loop numbers its own tasks, since asyncio's global counter differs between runs.
        """
        if not self.alive:
            coro.close()
            raise asyncio.CancelledError(f"{self.name} is dead and cannot start a task")
        if name is None:
            self._tasks_named += 1
            name = f"task-{self._tasks_named}"
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=str(name), context=context)
        tasks = self._tasks
        tasks.append(task)
        if len(tasks) >= self._tasks_max:
            # Failed tasks stay, so that the garbage collector does not decide when asyncio logs an
            # error.
            self._tasks = [t for t in tasks if not t.done() or _is_unseen_failure(t)]
            self._tasks_max = max(_TASKS_KEPT_MIN, 2 * len(self._tasks))
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Write an error that asyncio cannot deliver to any task into the node's log."""
        error = context.get("exception")
        if self.alive:
            self.world.log(self.name, f"asyncio: {context.get('message')}: {error!r}")

    get_debug = bool
    """`get_debug()` returns false, as `bool()` does. Every future calls it, and `bool` is faster
    than a Python function.
    """

    def is_running(self) -> bool:
        return self.world.current is self

    def is_closed(self) -> bool:
        return not self.alive

    # --- the interface that the world uses -------------------------------------------------------

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return unfinished tasks, and failed ones with an unretrieved error, oldest first."""
        return [t for t in self._tasks if not t.done() or _is_unseen_failure(t)]

    def pause(self) -> None:
        self.paused = True

    async def thawed(self) -> None:
        """Wait until the node is not paused. A pause may begin while the node's callback runs."""
        while self.paused:
            waiter = self.create_future()
            self._frozen.append(waiter)
            await waiter

    def resume(self) -> None:
        """End the node's pause. Callbacks that became ready meanwhile run in a burst."""
        self.paused = False
        frozen, self._frozen = self._frozen, []
        for waiter in frozen:
            if not waiter.done():
                waiter.set_result(None)
        if self.ready and not self.scheduled:
            self.scheduled = True
            self.world.runnable.append(self)

    def pretend(self, name: str) -> Callable[..., Any] | None:
        """Return the node's own version of a standard-library function, or `None`."""
        del name
        return None

    def die(self) -> None:
        """End the node: discard its ready callbacks. The world skips timers of a dead node."""
        self.alive = False
        self.ready.clear()


def begin(
    coro: Coroutine[Any, Any, None], spawn: Callable[[Coroutine[Any, Any, None]], object]
) -> None:
    """Run `coro` in the current callback up to its first wait; `spawn` the rest, if there is any.

    Most faults of the simulation never wait, so they are complete before the caller continues.
    (Python 3.12 has eager tasks for this purpose.)
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
    """Act like `yield from coro` for a coroutine whose first step has already run."""
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
