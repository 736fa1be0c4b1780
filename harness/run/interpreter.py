"""The interpreter, which runs a generator against real clients, in every environment.

One scheduler asks the generator for operations and starts one task per operation, like
`jepsen.generator.interpreter`. Unlike Jepsen, the interpreter only uses asyncio's `sleep`-like
primitives, and time comes from the run's clock, so that it also runs in virtual time, where equal
seeds must give equal histories. Therefore it does not use `asyncio.wait`, whose result order
varies, or anything that starts threads.

Verdicts depend on these rules:

* The task that gets a completion records it at once, and an invocation is recorded just before its
  task starts. So intervals in the history are as short as possible, and never too short.
* The scheduler processes completions before it asks for new operations, and lets a new task run
  before it asks again. Both rules reduce concurrency that only the harness causes.
* After `info` the process is retired: its thread continues as the process `old + concurrency` with
  a new client. An operation whose client cannot be opened has done nothing: `fail`. A client that
  raises may have done anything: `info`, with the exception in the history.
* An operation always ends. If a client hangs beyond its timeout, the client is cancelled, and the
  operation ends as `info`.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from harness.env import ClientEnv
from harness.errors import InternalError, UsageError, described, shown
from harness.generator.core import (
    SLEEP,
    Context,
    Draft,
    Emit,
    Generator,
    GeneratorLike,
    due_ns,
    new_context,
)
from harness.generator.diagnosis import validate
from harness.nodes.caller import call_as
from harness.ops import NS_PER_S, Attempt, Op, OpType
from harness.plugins import Client, Completion, Request
from harness.run.recorder import Recorder
from harness.support.interrupts import PLUGIN_FAILURES, UserInterrupt, blaming

GUARD_MARGIN_S: Final = 1.0
"""By how much a client may exceed the timeout of an operation before it counts as hanging."""
CLOSE_S_MAX: Final = 1.0
"""The time limit for closing a client. Afterwards the client is abandoned."""
POLL_S: Final = 0.01
"""How often a pending generator is asked again while threads are free, because it may be waiting
for a certain time."""
IDLE_S_MAX: Final = 60.0
"""How long a generator may be pending with no operation in flight before it counts as stuck."""
ERROR_CHARACTERS_MAX: Final = 500
"""The maximum length of an exception's text in the history."""
LOG: Final = "log"
"""The `f` of an op that records a message of a generator or of a client."""
_WAIT_S_MIN: Final = 1e-6  # a rounded wait must not become zero


@dataclass(eq=False, slots=True)
class _Flight:
    """One operation in progress on the client thread with the number `index`."""

    index: int
    process: int
    draft: Draft
    client: Client | None = None  # while the task is using it
    task: asyncio.Task[None] | None = None
    guard: asyncio.TimerHandle | None = None
    ended: bool = False


@dataclass(eq=False)
class _Driver:
    """The state of one interpretation. `run` is the main loop."""

    generator: Generator
    ctx: Context
    env: ClientEnv
    open_client: Callable[[int], Client]
    recorder: Recorder
    op_timeout_s: float
    stop: asyncio.Event | None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    clients: dict[int, Client] = field(default_factory=dict)  # idle clients, by thread
    flights: dict[int, _Flight] = field(default_factory=dict)  # operations in progress, by thread
    naps: dict[int, asyncio.TimerHandle] = field(default_factory=dict)  # for sleeping threads
    landed: deque[tuple[int, Op]] = field(default_factory=deque)
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)  # running tasks, by number
    tasks_made: int = 0
    failure: Exception | None = None  # an error of the harness itself, raised by `run`
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    # --- the scheduler -----------------------------------------------------------------------

    async def run(self) -> Generator | None:
        """Run until the generator ends or `stop` is set, then until all operations have ended."""
        exhausted = False
        idle_since_ns: int | None = None
        while not exhausted and not self._stopped():
            self._raise_failure()
            self._process_landed()
            now_ns = self._advance()
            if not self.ctx.free_mask:
                idle_since_ns = None
                await self._wait(None)
                continue
            with blaming("the generator of the workload"):
                step = self.generator.op(self.ctx)
            if step is None:
                exhausted = True
            elif not isinstance(step, Emit):
                self.generator = step.next
                idle_since_ns = self._check_idle(idle_since_ns, now_ns)
                await self._wait(POLL_S)
            elif due_ns(step.draft) > now_ns:
                # Drop the operation, which is due later: an event before then may change it.
                idle_since_ns = None
                await self._wait((due_ns(step.draft) - now_ns) / NS_PER_S)
            else:
                idle_since_ns = None
                self.generator = step.next
                self._begin(step.draft)
                await asyncio.sleep(0)
        await self._land()
        return None if exhausted else self.generator

    def _stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()

    def _advance(self) -> int:
        now_ns = max(self.ctx.time_ns, self.recorder.now_ns())
        if now_ns != self.ctx.time_ns:
            self.ctx = self.ctx.at(now_ns)
        return now_ns

    def _check_idle(self, since_ns: int | None, now_ns: int) -> int | None:
        """Return since when the generator has been pending with nothing in flight.

        Raises `InternalError` if this lasts too long.
        """
        if self.flights or self.naps:
            return None
        if since_ns is None:
            return now_ns
        if now_ns - since_ns > IDLE_S_MAX * NS_PER_S:
            raise InternalError(
                f"the generator has been pending for {IDLE_S_MAX:g} s while nothing was in flight: "
                f"{self.generator!r}"[:2000]
            )
        return since_ns

    async def _wait(self, timeout_s: float | None) -> None:
        """Wait until an operation ends, `stop` is set, or `timeout_s` has passed.

        `None` means no timeout.
        """
        timer = None
        if timeout_s is not None:
            timer = self.loop.call_later(max(timeout_s, _WAIT_S_MIN), self.wake.set)
        try:
            await self.wake.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self.wake.clear()

    async def _land(self) -> None:
        """Wait until all operations in progress have ended. Their timeouts limit the wait."""
        while self.flights or (self.naps and not self._stopped()):
            await self._wait(None)
            self._raise_failure()
            self._process_landed()
        self._process_landed()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _process_landed(self) -> None:
        while self.landed:
            index, op = self.landed.popleft()
            self.ctx = self.ctx.freed(index, op.time)
            self._update(op)
            if op.type is OpType.INFO and op.f != SLEEP:
                self.ctx = self.ctx.retired(index)

    def _update(self, op: Op) -> None:
        with blaming("the generator of the workload"):
            self.generator = self.generator.update(self.ctx, op)

    # --- one operation -----------------------------------------------------------------------

    def _begin(self, draft: Draft) -> None:
        process = draft.process
        assert process is not None, "an emitted draft has a process"
        index = self.ctx.index_of(process)
        if draft.type is OpType.INFO:
            self._nap(index, process, draft)
            return
        op = self.recorder.record(process, OpType.INVOKE, draft.f, draft.value)
        self.ctx = self.ctx.busy(index, op.time)
        self._update(op)
        flight = _Flight(index, process, draft)
        self.flights[index] = flight
        flight.guard = self.loop.call_later(self.op_timeout_s + GUARD_MARGIN_S, self._guard, flight)
        flight.task = self._spawn(partial(self._fly, flight), f"op-{op.index}")

    def _nap(self, index: int, process: int, draft: Draft) -> None:
        self.ctx = self.ctx.busy(index, self.ctx.time_ns)

        def over() -> None:
            del self.naps[index]
            now_ns = self.recorder.now_ns()
            self.landed.append((index, Op(-1, now_ns, process, OpType.INFO, SLEEP, draft.value)))
            self.wake.set()

        self.naps[index] = self.loop.call_later(float(draft.value), over)

    def _spawn(
        self, work: Callable[[], Coroutine[Any, Any, None]], name: str
    ) -> asyncio.Task[None]:
        """Start a task that `shut` waits for. An error of the task ends the interpretation."""
        number = self.tasks_made
        self.tasks_made += 1

        async def guarded() -> None:
            try:
                # called here, so that a task that never runs leaves no coroutine behind
                await work()
            except Exception as error:  # noqa: BLE001  raised again by the scheduler
                self._failed(error)

        def over(_task: asyncio.Task[None]) -> None:
            self.tasks.pop(number, None)
            self.wake.set()

        task = self.env.spawn(guarded(), name=name)
        self.tasks[number] = task
        task.add_done_callback(over)
        return task

    def _failed(self, error: Exception) -> None:
        """End the run with `error`: an op could not be recorded, or the harness has a defect."""
        if self.failure is None:
            self.failure = error
        self.wake.set()

    async def _fly(self, flight: _Flight) -> None:
        """Invoke the operation and record its completion. Close the client of a retired process."""
        completion = await self._completion(flight)
        client, flight.client = flight.client, None
        if not flight.ended:
            self._end(flight, completion)
            if client is None:
                return
            if completion.type is not OpType.INFO:
                self.clients[flight.index] = client
                return
        if client is not None:
            await self._close(client)

    async def _completion(self, flight: _Flight) -> Completion:
        """Run the operation and return its completion, even if the client fails."""
        try:
            call_as(flight.index)  # all processes of a thread share one link end
            flight.client = self.clients.pop(flight.index, None)
            if flight.client is None:
                flight.client = self.open_client(flight.process)
        except UserInterrupt:
            raise
        except PLUGIN_FAILURES as error:  # the error becomes an op in the history
            return _unanswered(flight, OpType.FAIL, f"client did not open: {_described(error)}")
        request = Request(flight.draft.f, flight.draft.value)
        try:
            completion = await flight.client.invoke(request, timeout_s=self.op_timeout_s)
        except asyncio.CancelledError:
            # If the guard or the end of the run cancelled this task, a completion is already
            # recorded. Otherwise the client cancelled itself, which counts as a crash.
            return _unanswered(flight, OpType.INFO, "client crashed: cancelled from inside")
        except UserInterrupt:
            raise
        except PLUGIN_FAILURES as error:  # the error becomes an op in the history
            return _unanswered(flight, OpType.INFO, f"client crashed: {_described(error)}")
        if (text := nonsense(completion)) is not None:
            return _unanswered(flight, OpType.INFO, text)
        return completion

    def _end(self, flight: _Flight, completion: Completion) -> None:
        """Record the completion and release the thread. Called once for each operation."""
        assert not flight.ended, "an operation ends once"
        flight.ended = True
        if flight.guard is not None:
            flight.guard.cancel()
        op = self.recorder.complete(flight.process, flight.draft.f, completion)
        del self.flights[flight.index]
        self.landed.append((flight.index, op))
        self.wake.set()

    def _guard(self, flight: _Flight) -> None:
        """End an operation whose client exceeds its timeout. The outcome is unknown."""
        limit_s = self.op_timeout_s
        over_s = limit_s + GUARD_MARGIN_S
        text = f"client hung: no outcome after {over_s:g} s, against a timeout of {limit_s:g} s"
        try:
            self._end(flight, _unanswered(flight, OpType.INFO, text))
        except Exception as error:  # noqa: BLE001  raised again by the scheduler
            self._failed(error)
        assert flight.task is not None, "set when the guard is"
        flight.task.cancel()

    # --- clients -----------------------------------------------------------------------------

    async def _close(self, client: Client) -> None:
        """Close a client within `CLOSE_S_MAX`. An error of `close` changes no outcome."""
        task = asyncio.current_task()
        assert task is not None, "runs in a task of its own"
        timer = self.loop.call_later(CLOSE_S_MAX, task.cancel)
        try:
            await client.close()
        except UserInterrupt:
            raise
        except (*PLUGIN_FAILURES, asyncio.CancelledError) as error:
            self.recorder.fact(LOG, {"message": f"a client did not close: {_described(error)}"})
        finally:
            timer.cancel()

    async def shut(self) -> None:
        """Close all clients and wait for every task, each with a time limit."""
        for flight in list(self.flights.values()):
            if self.failure is None:
                text = "the run was cancelled before the operation ended"
                self._end(flight, _unanswered(flight, OpType.INFO, text))
            assert flight.task is not None, "set when the flight began"
            flight.task.cancel()
        for index, op in self.landed:
            if op.type is OpType.INFO and op.f != SLEEP:
                self.ctx = self.ctx.retired(index)
        for nap in self.naps.values():
            nap.cancel()
        self.naps.clear()
        for index in sorted(self.clients):
            self._spawn(partial(self._close, self.clients[index]), f"close-{index}")
        self.clients.clear()
        timer = self.loop.call_later(2 * CLOSE_S_MAX, self._abandon)
        try:
            while self.tasks:
                await self._wait(None)
        finally:
            timer.cancel()

    def _abandon(self) -> None:
        """Abandon tasks that ignore their cancellation. Their operations are already recorded."""
        for task in self.tasks.values():
            task.cancel()
        self.tasks = {}
        self.wake.set()


def _unanswered(flight: _Flight, kind: OpType, error: str) -> Completion:
    return Completion(kind, flight.draft.value, error)


def nonsense(completion: object) -> str | None:
    """Return why a client's completion is malformed, or `None`."""
    if (
        isinstance(completion, Completion)
        and isinstance(completion.type, OpType)
        and completion.type is not OpType.INVOKE
        and all(isinstance(text, str | None) for text in (completion.error, completion.node))
        and isinstance(completion.attempts, tuple | list)
        and all(map(_is_attempt, completion.attempts))
    ):
        return None
    return f"client crashed: it returned {shown(completion, ERROR_CHARACTERS_MAX)}"[
        :ERROR_CHARACTERS_MAX
    ]


def _is_attempt(attempt: object) -> bool:
    return (
        isinstance(attempt, Attempt)
        and all(isinstance(text, str) for text in (attempt.node, attempt.outcome))
        and all(type(time_ns) is int for time_ns in (attempt.start, attempt.end))
    )


def _described(error: BaseException) -> str:
    return described(error, ERROR_CHARACTERS_MAX)


async def interpret(
    generator: GeneratorLike,
    *,
    env: ClientEnv,
    open_client: Callable[[int], Client],
    concurrency: int,
    recorder: Recorder,
    op_timeout_s: float,
    rng: random.Random,
    stop: asyncio.Event | None = None,
    processes: list[int] | None = None,
) -> Generator | None:
    """Run `generator` on `concurrency` client threads until it is exhausted; then return `None`.

    When `stop` is set no new operation begins, and the rest of the generator is returned. In both
    cases all operations in flight end first, and all clients are closed. A cancellation first
    records open operations as `info`.

    `open_client(process)` makes a client when a process first needs it. `processes` has the current
    process of each thread. It is updated in place and passed again to continue the same run, since
    a retired process must never come back.

    Raises `UsageError` for a generator that does not fit the threads, and `InternalError` for a
    generator that breaks the protocol or is stuck.
    """
    if op_timeout_s <= 0:
        raise UsageError(f"op_timeout_s is {op_timeout_s}; it must be above 0")
    ctx = new_context(concurrency, rng, time_ns=recorder.now_ns(), processes=processes)
    driver = _Driver(validate(generator), ctx, env, open_client, recorder, op_timeout_s, stop)
    watcher = None if stop is None else env.spawn(_watch(stop, driver.wake), name="stop-watcher")
    discarded = False
    try:
        return await driver.run()
    except GeneratorExit:
        # The event loop is being torn down, as after a failure in simulation. No task can start or
        # be awaited now, so open operations stay open in the history.
        discarded = True
        raise
    finally:
        if watcher is not None:
            watcher.cancel()
        if not discarded:
            await driver.shut()
        if processes is not None:
            processes[:] = driver.ctx.processes


async def _watch(stop: asyncio.Event, wake: asyncio.Event) -> None:
    """Wake the scheduler, which may be waiting for something else, when `stop` is set."""
    await stop.wait()
    wake.set()
