"""Combinators that say when: rates, spacing, windows, schedules.

Times are integer ns since the start of the run; arguments are seconds. `stagger` and `delay`
rule all operations of their generator together, not those of each thread (as in Jepsen since
0.2), so a rate is a rate at any concurrency.

Being late: a driver asks again a little after the planned moment. `stagger` plans from the
planned moment while it is late by less than one longest interval, so that its mean rate is exact,
and from now on after that, so that a stall of the whole system is not followed by a burst.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from harness.errors import UsageError
from harness.generator.core import (
    SLEEP,
    Context,
    Draft,
    Emit,
    Generator,
    GeneratorLike,
    Node,
    Pending,
    Step,
    complete,
    due_ns,
    indices,
    nanoseconds,
)
from harness.generator.plain import NOTHING, lift
from harness.ops import Op, OpType

__all__ = [
    "WINDOWS_MAX",
    "Scheduled",
    "cache",
    "cycle_times",
    "delay",
    "sleep",
    "stagger",
    "time_limit",
    "timed_ops",
]

WINDOWS_MAX: Final = 10_000
"""How many windows ahead `cycle_times` looks for an operation."""


class _TimeLimit(Node, frozen=True):
    limit_ns: int
    generator: Generator
    end_ns: int | None = None

    def op(self, ctx: Context) -> Step:
        end_ns = self.end_ns
        if end_ns is not None and ctx.time_ns >= end_ns:
            return None
        step = self.generator.op(ctx)
        if step is None:
            return None
        if isinstance(step, Pending):
            if step.next is self.generator:
                return Pending(self)
            return Pending(_TimeLimit(self.limit_ns, step.next, end_ns))
        time_ns = due_ns(step.draft)
        if end_ns is None:
            end_ns = time_ns + self.limit_ns
        if time_ns >= end_ns:
            return None
        return Emit(step.draft, _TimeLimit(self.limit_ns, step.next, end_ns))

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        if inner is self.generator:
            return self
        return _TimeLimit(self.limit_ns, inner, self.end_ns)


def time_limit(seconds: float, generator: GeneratorLike) -> Generator:
    """Only operations that start less than `seconds` after its first one does."""
    inner, limit_ns = lift(generator), nanoseconds(seconds, "time_limit")
    return NOTHING if inner is NOTHING or limit_ns == 0 else _TimeLimit(limit_ns, inner)


class _Stagger(Node, frozen=True):
    interval_ns_max: int
    generator: Generator
    next_ns: int | None = None

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        if isinstance(step, Pending):
            if step.next is self.generator:
                return Pending(self)
            return Pending(_Stagger(self.interval_ns_max, step.next, self.next_ns))
        draft, longest_ns = step.draft, self.interval_ns_max
        time_ns = due_ns(draft)
        planned_ns = time_ns if self.next_ns is None else self.next_ns
        if draft.together:
            planned_ns = max(planned_ns, time_ns)
        elif planned_ns > time_ns:
            draft = draft.replace(time_ns=planned_ns)
        elif time_ns - planned_ns >= longest_ns:
            planned_ns = time_ns
        next_ns = planned_ns + int(ctx.random.random() * longest_ns)
        return Emit(draft, _Stagger(longest_ns, step.next, next_ns))

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        if inner is self.generator:
            return self
        return _Stagger(self.interval_ns_max, inner, self.next_ns)


def stagger(dt_s: float, generator: GeneratorLike) -> Generator:
    """Operations at random intervals, uniform in 0 .. 2 `dt_s`: a total rate of 1 / `dt_s`."""
    inner = lift(generator)
    longest_ns = nanoseconds(2 * dt_s, "twice the dt of stagger")
    return inner if inner is NOTHING else _Stagger(longest_ns, inner)


class _Delay(Node, frozen=True):
    interval_ns: int
    generator: Generator
    next_ns: int | None = None

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        if isinstance(step, Pending):
            return Pending(_Delay(self.interval_ns, step.next, self.next_ns))
        draft = step.draft
        time_ns = due_ns(draft)
        if self.next_ns is not None and self.next_ns > time_ns:
            time_ns = self.next_ns
            draft = Draft(draft.f, draft.value, draft.process, time_ns, draft.type)
        return Emit(draft, _Delay(self.interval_ns, step.next, time_ns + self.interval_ns))

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        if inner is self.generator:
            return self
        return _Delay(self.interval_ns, inner, self.next_ns)


def delay(dt_s: float, generator: GeneratorLike) -> Generator:
    """Operations exactly `dt_s` apart, or further where no thread is free in time."""
    inner, interval_ns = lift(generator), nanoseconds(dt_s, "delay")
    return inner if inner is NOTHING else _Delay(interval_ns, inner)


def sleep(dt_s: float) -> Generator:
    """One directive that keeps the thread which takes it idle for `dt_s`; not in the history."""
    nanoseconds(dt_s, "sleep")
    return lift(Draft(SLEEP, dt_s, type=OpType.INFO))


class _CycleTimes(Node, frozen=True):
    intervals_ns: tuple[int, ...]
    generators: tuple[Generator, ...]
    start_ns: int | None = None

    def op(self, ctx: Context) -> Step:
        now_ns = ctx.time_ns
        start_ns = now_ns if self.start_ns is None else self.start_ns
        window_ns = now_ns - (now_ns - start_ns) % sum(self.intervals_ns)
        position = 0
        while window_ns + self.intervals_ns[position] <= now_ns:
            window_ns += self.intervals_ns[position]
            position += 1
        for _ in range(WINDOWS_MAX):
            # A later window's generator is asked as if its time had come.
            step = self.generators[position].op(ctx.at(max(now_ns, window_ns)))
            if step is None:
                return None
            end_ns = window_ns + self.intervals_ns[position]
            if isinstance(step, Pending):
                return Pending(self._with(position, step.next, start_ns))
            if due_ns(step.draft) < end_ns:
                return Emit(step.draft, self._with(position, step.next, start_ns))
            window_ns, position = end_ns, (position + 1) % len(self.generators)
        raise UsageError(
            f"no generator of cycle_times has an operation within {WINDOWS_MAX} windows; "
            "make the windows longer or the delays inside them shorter"
        )

    def _with(self, position: int, state: Generator, start_ns: int) -> Generator:
        generators = self.generators
        if state is not generators[position]:
            generators = (*generators[:position], state, *generators[position + 1 :])
        return _CycleTimes(self.intervals_ns, generators, start_ns)

    def update(self, ctx: Context, event: Op) -> Generator:
        updated = tuple(generator.update(ctx, event) for generator in self.generators)
        if all(old is new for old, new in zip(self.generators, updated, strict=True)):
            return self
        return _CycleTimes(self.intervals_ns, updated, self.start_ns)


def cycle_times(*windows: tuple[float, GeneratorLike]) -> Generator:
    """Pairs `(seconds, generator)` in turn, on a rotating schedule that starts when first asked.

    Each keeps its state from turn to turn; all learn of every event. Ends when one is exhausted.
    """
    intervals_ns = tuple(nanoseconds(seconds, "a window of cycle_times") for seconds, _ in windows)
    if not windows:
        return NOTHING
    if 0 in intervals_ns:
        raise UsageError("a window of cycle_times is 0 s long; it must be longer")
    return _CycleTimes(intervals_ns, tuple(lift(generator) for _, generator in windows))


class Scheduled(Protocol):
    """An operation at a fixed time, such as `harness.case.ScheduledOp`."""

    @property
    def at_ns(self) -> int:
        """Ns after the start of the schedule."""
        ...

    @property
    def process(self) -> int:
        """The process of a recorded run; its thread is `process % concurrency`."""
        ...

    @property
    def f(self) -> str:
        """The operation's name."""
        ...

    @property
    def value(self) -> Any:
        """Its argument."""
        ...


class _TimedOps(Node, frozen=True):
    ops: tuple[Scheduled, ...]
    offset_ns: int
    start_ns: int | None = None
    queues: tuple[tuple[int, ...], ...] | None = None  # by client thread: positions in `ops`
    heads: tuple[int, ...] = ()

    def op(self, ctx: Context) -> Step:
        if self.queues is None:
            return self._started(ctx).op(ctx)
        start_ns, queues, heads = self.start_ns, self.queues, self.heads
        assert start_ns is not None, "set together with the queues"
        best: tuple[int, int] | None = None  # the time, then the place in the schedule
        for index in indices(ctx.free_mask):
            if index < len(queues) and heads[index] < len(queues[index]):
                place = queues[index][heads[index]]
                offer = (max(ctx.time_ns, start_ns + self.ops[place].at_ns), place)
                if best is None or offer < best:
                    best = offer
        if best is None:
            left = any(head < len(q) for head, q in zip(heads, queues, strict=True))
            return Pending(self) if left else None
        time_ns, place = best
        op = self.ops[place]
        index = op.process % ctx.roster.clients
        draft = complete(Draft(op.f, op.value, ctx.processes[index], time_ns), ctx)
        assert draft is not None, "the thread is free"
        moved = (*heads[:index], heads[index] + 1, *heads[index + 1 :])
        return Emit(draft, _TimedOps(self.ops, self.offset_ns, start_ns, queues, moved))

    def _started(self, ctx: Context) -> _TimedOps:
        clients = ctx.roster.clients
        queues: list[list[int]] = [[] for _ in range(clients)]
        for place, op in enumerate(self.ops):
            if not clients or not ctx.all_mask & ctx.roster.bits[op.process % clients]:
                raise UsageError(
                    f"the scheduled op {op.f!r} at {op.at_ns} ns is for process {op.process}, "
                    f"whose thread is not among {ctx.threads[:10]} of this generator"
                )
            queues[op.process % clients].append(place)
        start_ns = ctx.time_ns + self.offset_ns
        heads = (0,) * clients
        return _TimedOps(self.ops, self.offset_ns, start_ns, tuple(map(tuple, queues)), heads)

    def update(self, ctx: Context, event: Op) -> Generator:  # noqa: ARG002  a fixed schedule
        return self


def timed_ops(ops: Sequence[Scheduled], *, offset_ns: int = 0) -> Generator:
    """Replay a schedule, counted from `offset_ns` after it is first asked.

    An op runs on the thread of its process (`process % concurrency`) whatever that thread's
    process is called by now. A thread that is late does its ops in order as soon as it can, and
    holds up no other thread.
    """
    for op in ops:
        if op.at_ns < 0 or op.process < 0:
            raise UsageError(
                f"the scheduled op {op.f!r} has at_ns {op.at_ns} and process {op.process}; "
                "both must be 0 or more"
            )
    if offset_ns < 0:
        raise UsageError(f"timed_ops got offset_ns = {offset_ns}; it must be 0 or more")
    in_order = tuple(sorted(ops, key=lambda op: op.at_ns))
    return _TimedOps(in_order, offset_ns) if ops else NOTHING


class _CacheCell:
    """What a cache offered last; the only mutable state in this package, and only a memory."""

    __slots__ = ("owner", "serial", "step", "until_ns")

    def __init__(self) -> None:
        self.owner: Generator | None = None
        self.serial = -1
        self.step: Step = None
        self.until_ns = 0


class _Cache(Node, frozen=True):
    period_ns: int
    generator: Generator
    cell: _CacheCell
    serial: int = 0  # grows with each emission: a generator may be its own successor

    def op(self, ctx: Context) -> Step:
        if not ctx.free_mask:
            return Pending(self)
        cell = self.cell
        known = cell.owner is self.generator and cell.serial == self.serial
        if not known or ctx.time_ns > cell.until_ns:
            cell.owner, cell.serial = self.generator, self.serial
            cell.step = self.generator.op(ctx)
            cell.until_ns = ctx.time_ns + self.period_ns
        step = cell.step
        if step is None:
            return None
        if isinstance(step, Pending):
            return Pending(self)
        rest = _Cache(self.period_ns, step.next, cell, self.serial + 1)
        draft = complete(step.draft.replace(process=None), ctx)
        return Pending(self) if draft is None else Emit(draft, rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        return (
            self
            if inner is self.generator
            else _Cache(self.period_ns, inner, self.cell, self.serial)
        )


def cache(period_s: float, generator: GeneratorLike) -> Generator:
    """Remember an offer for `period_s`, for a costly generator whose offers are often dropped.

    An offer made again has the current time, if that is later, and any free process. What the
    generator learns in between makes it forget.
    """
    inner, period_ns = lift(generator), nanoseconds(period_s, "cache")
    return inner if inner is NOTHING else _Cache(period_ns, inner, _CacheCell())
