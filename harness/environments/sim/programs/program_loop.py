"""The event loop of a program, with the methods that `asyncio.run` and the program call."""

from __future__ import annotations

import asyncio
import inspect
import re
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Final
from weakref import WeakValueDictionary

from harness.environments.sim.loop import GeneratorHooks, NodeTimer
from harness.environments.sim.programs.blocking import wait_for
from harness.environments.sim.programs.stream_loop import StreamLoop

_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{6,}")
_HARMLESS: Final = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1),
    *(signal.SIGUSR2, signal.SIGCHLD, signal.SIGPIPE, signal.SIGWINCH),
)


class ProgramLoop(StreamLoop):
    """The event loop of a program, from a start of its node to the end."""

    on_exit: Callable[[BaseException], None]
    """Ends the node after `SystemExit` or `KeyboardInterrupt` in a callback."""

    slow_callback_duration = 0.1
    main: asyncio.Task[Any] | None = None
    """The task that SIGINT cancels: the task of `asyncio.run`, or of the program's main
    function."""
    interrupted = False
    _factory: Any = None
    _handler: Any = None
    _system: asyncio.Task[Any] | None = None
    _stop: asyncio.Future[None] | None = None

    def prepare(self, pretend: dict[str, Callable[..., Any]]) -> None:
        """Prepare the loop. `pretend` maps names such as `time.sleep` to functions."""
        self._pretend = pretend
        self.signal_handlers: dict[int, Callable[[], object]] = {}
        self._generators: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.on_callback_error = self._callback_failed

    def pretend(self, name: str) -> Callable[..., Any] | None:
        return self._pretend.get(name)

    def mark_system(self) -> None:
        """Hide the current task from the program, because this task runs the program."""
        self._system = asyncio.current_task()

    def is_system(self, task: asyncio.Task[Any]) -> bool:
        """Whether a task belongs to the harness rather than to the program."""
        return task is self._system

    # --- time -------------------------------------------------------------------------------

    @property
    def free_at_ns(self) -> int:
        """The world time at which all blocking calls of the node will have ended."""
        return max(self.world.now_ns, self.busy_until_ns)

    def block(self, takes_ns: int) -> None:
        """Keep the node busy for this long, as a blocking call does."""
        self.busy_until_ns = self.free_at_ns + takes_ns

    def local_ns(self) -> int:
        """Return the node's monotonic clock at the time when its blocking calls will have ended."""
        return self.clock.monotonic_ns() + self.free_at_ns - self.world.now_ns

    def wall_ns(self) -> int:
        """Return the node's wall clock at the time when its blocking calls will have ended."""
        return self.clock.wall_ns() + self.free_at_ns - self.world.now_ns

    def time(self) -> float:
        return self.local_ns() / 1e9

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> NodeTimer:
        local_ns = self.local_ns() + max(0, round(delay * 1e9))
        return self._add_timer(local_ns, callback, args, context)

    # --- tasks ------------------------------------------------------------------------------

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the unfinished tasks. Log the errors that the program did not retrieve."""
        for task in super().tasks():
            if task.done() and (error := task.exception()) is not None:
                where = f"Task exception was never retrieved: {task.get_name()}: {error!r}"
                self.world.log(self.name, f"asyncio: {_ADDRESS.sub('0x...', where)}")
        return [task for task in self._tasks if not task.done()]

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: object = None,
        context: Any = None,
    ) -> asyncio.Task[Any]:
        if self._factory is None:
            return super().create_task(coro, name=name, context=context)
        task: asyncio.Task[Any] = self._factory(self, coro)
        if name is not None:
            task.set_name(name)
        self._tasks.append(task)
        return task

    def set_task_factory(self, factory: Any) -> None:
        self._factory = factory

    def get_task_factory(self) -> Any:
        return self._factory

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call the function in a later callback of the node, in place of a thread.

        If the function blocks, only the caller of the executor waits, as for a thread. The node
        runs other callbacks in the meantime.
        """
        del executor
        future = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            busy_ns, self.busy_until_ns = self.busy_until_ns, 0
            result, error = None, None
            try:
                result = func(*args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except Exception as raised:  # noqa: BLE001 - handed on through the future
                error = raised
                if isinstance(raised, StopIteration):
                    error = RuntimeError("a function of an executor raised StopIteration")
            finally:
                done_ns, self.busy_until_ns = self.free_at_ns, busy_ns
            waits_s = (done_ns - self.world.now_ns) / 1e9
            if waits_s:
                super(ProgramLoop, self).call_later(waits_s, _complete, future, result, error)
            else:
                _complete(future, result, error)

        self.call_soon(call)
        return future

    def set_default_executor(self, executor: Any) -> None:
        """Ignore the executor: the simulation calls its functions in callbacks."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Do nothing: there are no threads."""

    # --- running ----------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        return self.complete(asyncio.ensure_future(future, loop=self))

    def complete(self, future: asyncio.Future[Any]) -> Any:
        """Block the program's synchronous code until the future is done; returns its result."""
        wait_for(future)
        return future.result()

    def run_forever(self) -> None:
        self._stop = self.create_future()
        wait_for(self._stop)

    def interrupt(self) -> bool:
        assert self.main is not None
        self.interrupted = self.main.cancel()
        return self.interrupted

    def check_interrupted(self) -> None:
        """Raise `KeyboardInterrupt` if SIGINT has cancelled the main task."""
        if self.interrupted:
            self.interrupted = False
            raise KeyboardInterrupt from None

    def stop(self) -> None:
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(None)

    def close(self) -> None:
        """Do nothing: the loop ends with the node."""

    @property
    def generator_hooks(self) -> GeneratorHooks:  # type: ignore[override]
        return self._generator_begins, self._generator_is_dropped

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[id(generator)] = generator

    def _generator_is_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Run the `finally` blocks of an async generator that is no longer referenced."""
        if self.alive:
            self.call_soon(self.create_task, generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        generators = list(self._generators.values())
        self._generators.clear()
        closing = [generator.aclose() for generator in generators]
        for result in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(result, Exception):
                message = "an error occurred during closing of asynchronous generator"
                self.call_exception_handler({"message": message, "exception": result})

    def set_debug(self, enabled: bool) -> None:
        """Do nothing: a simulated loop has no debug mode."""

    # --- errors -----------------------------------------------------------------------------

    def set_exception_handler(self, handler: Any) -> None:
        self._handler = handler

    def get_exception_handler(self) -> Any:
        return self._handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._handler is None or not self.alive:
            self.default_exception_handler(context)
            return
        try:
            self._handler(self, context)
        except (SystemExit, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001 - as in asyncio
            self.default_exception_handler({"message": "the handler failed", "exception": error})

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        super().call_exception_handler(context)

    def _callback_failed(self, error: BaseException) -> None:
        if isinstance(error, Exception):
            message = "Exception in callback"
            self.call_exception_handler({"message": message, "exception": error})
        else:
            self.on_exit(error)

    # --- signals ----------------------------------------------------------------------------

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        if inspect.iscoroutinefunction(callback):
            raise TypeError("coroutines cannot be used with add_signal_handler()")
        if sig not in _HARMLESS:
            self.refuse(f"a handler of signal {sig}", "a handler of SIGTERM or SIGINT")
        self.signal_handlers[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self.signal_handlers.pop(sig, None) is not None


def _complete(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
