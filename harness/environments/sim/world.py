"""The simulated world: one heap of virtual time, and the loop that takes events from it.

The heap contains `(time in ns, sequence, action, argument)`. If the action is `None`, the argument
is a node's timer. Otherwise `action(argument)` is an event outside of all nodes, such as the
arrival of a frame or the end of a disk request. The sequence orders entries with equal times: first
in, first out.

A node runs one callback at a time, and each callback takes virtual time. A node with more callbacks
goes on without the heap as long as nothing else in the world is due earlier (the fast path). A kill
discards the node's callbacks. A pause is noticed when it is the node's turn again.

Each run has limits on events and virtual time. Many events at one instant are a livelock. An empty
heap while the driver still waits is a deadlock, which is reported with the waiting tasks. The
cyclic garbage collector runs at fixed event counts, so that finalizers always run at the same
event.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import sys
from asyncio.events import _get_running_loop, _set_running_loop
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final, NoReturn
from zlib import crc32

from harness.environments.sim.clock import Entry, SimClock
from harness.environments.sim.loop import NodeLoop
from harness.environments.sim.trace import Trace
from harness.environments.sim.tripwires import Tripwires
from harness.errors import InfrastructureError, InternalError, TargetError

CHECKPOINT_EVENTS: Final = 1 << 16
LOG_LINES_MAX: Final = 20_000
_FULL_COLLECTION_CHECKPOINTS: Final = 64
_CANCELLED_TIMERS_MIN: Final = 4096
_CLOSE_ATTEMPTS_MAX: Final = 100
_TASKS_SHOWN_MAX: Final = 20

Before = Callable[[NodeLoop | None, Callable[..., object], Sequence[Any]], None]
"""A function that is called before each event of a world. Its arguments are the node's loop (`None`
outside of all nodes), the event's function and the function's arguments. It must not change the
world."""


class World:
    """The virtual time and all event loops of one run. Each run needs a new world."""

    def __init__(self, *, events_max: int, virtual_ns_max: int) -> None:
        self.now_ns = 0
        self.heap: list[Entry] = []
        self.sequence: Iterator[int] = itertools.count()
        self.runnable: deque[NodeLoop] = deque()
        self.current: NodeLoop | None = None
        self.events = 0
        self.digest = 0
        self.trace: Trace | None = None
        self.before: Before | None = None
        self.loops: list[NodeLoop] = []  # all loops, dead nodes' included, in order of creation
        self.tripwires = Tripwires(lambda message: self.fail(TargetError(message)))
        self._events_max = events_max
        self._timers_cancelled = 0
        self._checkpoints = 0
        self._checkpoint_ns = -1
        self._stopped = False
        self._failure: BaseException | None = None
        self._logs: dict[str, deque[tuple[int, str, bytes]]] = {}
        self._lines_logged: Counter[str] = Counter()
        self.schedule(virtual_ns_max, self._run_out_of_time, virtual_ns_max)

    # --- the interface for loops and machines ----------------------------------------------------

    def new_loop(
        self, name: str, clock: SimClock, *, cost_ns: int, kind: type[NodeLoop] = NodeLoop
    ) -> NodeLoop:
        loop = kind(self, name, clock, cost_ns=cost_ns)
        self.loops.append(loop)
        return loop

    def schedule(self, at_ns: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Call `action(argument)` now or at a future time, outside of all nodes."""
        heappush(self.heap, (at_ns, next(self.sequence), action, argument))

    def timer_cancelled(self) -> None:
        """Count a cancelled timer. Drop all of them once they are most of the heap."""
        self._timers_cancelled += 1
        cancelled = self._timers_cancelled
        if cancelled > _CANCELLED_TIMERS_MIN and cancelled * 2 > len(self.heap):
            # change the list in place, because `_run` refers to it
            self.heap[:] = [e for e in self.heap if e[2] is not None or not e[3].cancelled()]
            heapify(self.heap)
            self._timers_cancelled = 0

    def rekey_timers(self, clock: SimClock) -> None:
        """Compute again when a clock's timers are due, because the clock's speed has changed."""
        for i, (at_ns, order, action, timer) in enumerate(self.heap):
            if action is None and timer._loop.clock is clock:  # noqa: SLF001 (our own class)
                due_ns = max(self.now_ns, clock.world_ns(timer.local_ns))
                self.heap[i] = (due_ns, order, None, timer)
            else:
                self.heap[i] = (at_ns, order, action, timer)
        heapify(self.heap)

    def note(self, node: str, what: str, data: bytes = b"") -> None:
        """Add an event on a node (`what`, with its `data`) to the run's digest and trace."""
        self.digest = crc32(data, crc32(f"{self.now_ns} {node} {what}".encode(), self.digest))
        if self.trace is not None:
            self.trace.noted(self.now_ns, node, what, data)

    def trace_digest(self) -> str:
        """Return the digest of all events so far, with the time and the number of events."""
        return f"{self.digest:08x}-{self.now_ns:x}-{self.events:x}"

    def log(self, node: str, line: str, data: bytes = b"") -> None:
        """Append a line to a node's log. The log keeps the last `LOG_LINES_MAX` lines.

        `data` is text in UTF-8 that belongs to the line; it is decoded when the log is read.
        """
        lines = self._logs.get(node)
        if lines is None:
            lines = self._logs[node] = deque(maxlen=LOG_LINES_MAX)
        lines.append((self.now_ns, line, data))
        self._lines_logged[node] += 1

    def log_lines(self, node: str, *, last_lines: int = LOG_LINES_MAX) -> list[str]:
        """Return the last lines of a node's log, after a line that counts dropped lines."""
        lines = self._logs.get(node, deque())
        start = max(0, len(lines) - last_lines)
        end = [
            f"{t / 1e9:.6f} {line} {data.decode()}" if data else f"{t / 1e9:.6f} {line}"
            for t, line, data in itertools.islice(lines, start, None)
        ]
        dropped = self._lines_logged[node] - len(lines)
        if start == 0 and dropped:
            end.insert(0, f"... {dropped} earlier lines were dropped")
        return end

    def stop(self) -> None:
        """Make `run` return after the current callback."""
        self._stopped = True

    def fail(self, error: BaseException) -> None:
        """Make `run` raise `error` after the current callback, unless it already has an error."""
        if self._failure is None:
            self._failure = error
        self._stopped = True

    @contextlib.contextmanager
    def inside(self, loop: NodeLoop) -> Iterator[None]:
        """Run the code in this context as part of `loop`, even during another node's callback."""
        outer = self.current
        self._enter(loop)
        try:
            yield
        finally:
            if outer is not None:
                self._enter(outer)

    def _enter(self, loop: NodeLoop) -> None:
        self.current = loop
        _set_running_loop(loop)
        self.tripwires.armed = loop.armed
        self.tripwires.pretend = loop.pretend
        sys.set_asyncgen_hooks(*loop.generator_hooks)

    # --- the scheduler, which runs the nodes' event loops -----------------------------------

    def run(self) -> None:
        """Run the world until `stop`. Raises the error of `fail`, a limit, livelock or deadlock."""
        outer, outer_hooks = _get_running_loop(), sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        gc.disable()
        try:
            with self.tripwires.installed():
                self._run()
        finally:
            self.current = None
            self.tripwires.armed = False
            _set_running_loop(outer)
            sys.set_asyncgen_hooks(*outer_hooks)
            if collecting:
                gc.enable()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        heap, runnable = self.heap, self.runnable
        checkpoint = self.events + CHECKPOINT_EVENTS
        while not self._stopped:
            if self.events >= checkpoint:
                self._check()
                checkpoint = self.events + CHECKPOINT_EVENTS
            if runnable:
                self._run_node(runnable.popleft(), checkpoint)
                continue
            if not heap:
                self._raise_deadlock()
            at_ns, _, action, argument = heappop(heap)
            if action is None:
                if argument._cancelled:  # noqa: SLF001 (a hot path, and our own class)
                    self._timers_cancelled -= 1
                    continue
                self.now_ns = at_ns
                loop: NodeLoop = argument._loop  # noqa: SLF001 (as above)
                if loop.alive:
                    loop.ready.append(argument)
                    if not loop.scheduled:
                        loop.scheduled = True
                        runnable.append(loop)
            else:
                self.now_ns = at_ns
                self.events += 1
                if self.before is not None:
                    self.before(None, action, (argument,))
                action(argument)

    def _run_node(self, loop: NodeLoop, checkpoint: int) -> None:
        """Run a node's callbacks until none is ready, or another part of the world is due.

        The virtual time of a callback passes before its effects, so that a slow CPU delays even a
        node's only callback.
        """
        ready = loop.ready
        if not ready or loop.paused or not loop.alive:
            loop.scheduled = False
            loop.due_ns = -1
            return
        heap, runnable, before = self.heap, self.runnable, self.before
        due_ns = loop.due_ns
        if due_ns < 0:
            due_ns = max(self.now_ns, loop.busy_until_ns) + loop.cost_ns
        while True:
            if due_ns > self.now_ns:
                if runnable or self._stopped or (heap and heap[0][0] <= due_ns):
                    loop.due_ns = due_ns
                    heappush(heap, (due_ns, next(self.sequence), runnable.append, loop))
                    return
                self.now_ns = due_ns
            if loop is not self.current:
                self._enter(loop)
            handle = ready.popleft()
            callback = handle._callback  # noqa: SLF001 (a hot path, and our own class)
            if callback is not None:
                self.events += 1
                if before is not None:
                    before(loop, callback, handle._args)  # noqa: SLF001
                try:
                    if args := handle._args:  # noqa: SLF001
                        handle._context.run(callback, *args)  # noqa: SLF001
                    else:
                        handle._context.run(callback)  # noqa: SLF001
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001 (becomes the end of node or run)
                    self._callback_failed(loop, error)
            if not ready:
                loop.scheduled = False
                loop.due_ns = -1
                return
            if callback is not None:
                due_ns = self.now_ns + loop.cost_ns
                if loop.busy_until_ns > self.now_ns:
                    due_ns = loop.busy_until_ns + loop.cost_ns
            others_wait = due_ns <= self.now_ns and (runnable or self._stopped)
            if others_wait or self.events >= checkpoint:
                loop.due_ns = due_ns
                runnable.append(loop)
                return

    def _callback_failed(self, loop: NodeLoop, error: BaseException) -> None:
        if loop.on_callback_error is None:
            self.fail(error)
        else:
            loop.on_callback_error(error)

    def _check(self) -> None:
        """Raise an error for a livelock or too many events, and collect garbage.

        This happens every `CHECKPOINT_EVENTS` events.
        """
        self._checkpoints += 1
        gc.collect(2 if self._checkpoints % _FULL_COLLECTION_CHECKPOINTS == 0 else 1)
        if self.now_ns == self._checkpoint_ns:
            raise TargetError(
                f"livelock: more than {CHECKPOINT_EVENTS} events at {self.now_ns / 1e9:.6f} s "
                f"of virtual time; pending: {self._pending()}"
            )
        self._checkpoint_ns = self.now_ns
        if self.events > self._events_max:
            raise InfrastructureError(
                f"the run took more than {self._events_max} events; "
                "make the run shorter, or raise the knob events_max"
            )

    def _run_out_of_time(self, limit_ns: int) -> None:
        if not self.heap and not self.runnable:
            self._raise_deadlock()
        raise InfrastructureError(
            f"the run took more than {limit_ns / 1e9:g} s of virtual time; make the run shorter, "
            f"or raise the knob virtual_s_max; pending: {self._pending()}"
        )

    def _raise_deadlock(self) -> NoReturn:
        raise InternalError(
            "deadlock: nothing will ever happen again in this world, yet the run waits; "
            f"pending: {self._pending()}"
        )

    def _pending(self) -> str:
        """Name the waiting tasks, each with the line at which it waits."""
        waiting: list[str] = []
        for loop in self.loops:
            if loop.alive:
                state = " (paused)" if loop.paused else ""
                waiting += [f"{loop.name}{state}/{_where(t)}" for t in loop.tasks() if not t.done()]
        more = len(waiting) - _TASKS_SHOWN_MAX
        tail = [f"and {more} more"] if more > 0 else []
        return ", ".join(waiting[:_TASKS_SHOWN_MAX] + tail) or "no task"

    # --- the end ----------------------------------------------------------------------------

    def discard(self) -> list[str]:
        """End all loops and close all coroutines; returns the failures of tasks that were not
        retrieved.

        Only tasks of running nodes count. If a node has ended, no code could retrieve the failure
        of a second task that failed at the same time, for instance on the same full disk.

        Coroutines are closed in order of creation while no `Env` has an effect. So their `finally`
        blocks have no effect either, and do not run later in the garbage collector.
        """
        unseen: list[str] = []
        alive = [loop for loop in self.loops if loop.alive]
        for loop in self.loops:
            loop.die()
        for loop in self.loops:
            for task in loop.tasks():
                if task.done():
                    error = None if task.cancelled() else task.exception()
                    if loop in alive:
                        unseen.append(f"{loop.name}/{task.get_name()}: {error!r}")
                else:
                    task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001
                    self._close(loop, task)
        self.heap.clear()
        self.runnable.clear()
        self.loops.clear()
        return unseen

    def _close(self, loop: NodeLoop, task: asyncio.Task[Any]) -> None:
        coroutine = task.get_coro()
        outer = _get_running_loop()
        _set_running_loop(loop)
        try:
            for _ in range(_CLOSE_ATTEMPTS_MAX):
                try:
                    coroutine.close()
                    break
                except RuntimeError:
                    continue  # it awaited in a `finally` block, so close it again
                except KeyboardInterrupt:
                    raise
                except BaseException:  # noqa: BLE001 (a dead node cannot fail any more)
                    break
        finally:
            _set_running_loop(outer)


def _where(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    if not frames:
        return task.get_name()
    code = frames[-1].f_code
    return f"{task.get_name()} at {code.co_name}:{frames[-1].f_lineno}"
