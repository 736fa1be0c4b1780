"""Combinators that set the time of operations: rates, delays, time limits, schedules.

Times are integer ns since the start of the run; arguments are seconds. `stagger` and `delay` apply
to all operations of their generator together, not per thread (as in Jepsen since 0.2), so a rate
does not depend on the concurrency.

The interpreter asks for an operation again a little after its planned time. So if `stagger` is late
by less than its longest interval, it counts the next interval from the planned time, and its mean
rate is exact. If it is later than that, it counts from the current time, so that no burst of
operations follows when the whole system has stalled.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.errors import UsageError
from harness.generator.core import (
    SLEEP,
    Around,
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
from harness.ops import OpType, ScheduledOp


class _TimeLimit(Around, frozen=True):
    limit_ns: int
    end_ns: int | None = None

    def op(self, ctx: Context) -> Step:
        over = self.end_ns is not None and ctx.time_ns >= self.end_ns
        return None if over else Around.op(self, ctx)

    def emitted(self, ctx: Context, step: Emit) -> Step:  # noqa: ARG002  the protocol's shape
        time_ns = due_ns(step.draft)
        end_ns = time_ns + self.limit_ns if self.end_ns is None else self.end_ns
        if time_ns >= end_ns:
            return None
        return Emit(step.draft, _TimeLimit(step.next, self.limit_ns, end_ns))


def time_limit(seconds: float, generator: GeneratorLike) -> Generator:
    """Emit the operations that start less than `seconds` after the generator's first operation."""
    inner, limit_ns = lift(generator), nanoseconds(seconds, "time_limit")
    return NOTHING if inner is NOTHING or limit_ns == 0 else _TimeLimit(inner, limit_ns)


class _Stagger(Around, frozen=True):
    interval_ns_max: int
    next_ns: int | None = None

    def emitted(self, ctx: Context, step: Emit) -> Step:
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
        return Emit(draft, _Stagger(step.next, longest_ns, next_ns))


def stagger(dt_s: float, generator: GeneratorLike) -> Generator:
    """Emit operations at random intervals, uniform in 0 .. 2 `dt_s`, on average `dt_s`."""
    inner = lift(generator)
    longest_ns = nanoseconds(2 * dt_s, "twice the dt of stagger")
    return inner if inner is NOTHING else _Stagger(inner, longest_ns)


class _Delay(Around, frozen=True):
    interval_ns: int
    next_ns: int | None = None

    def emitted(self, ctx: Context, step: Emit) -> Step:  # noqa: ARG002  the protocol's shape
        draft = step.draft
        time_ns = due_ns(draft)
        if self.next_ns is not None and self.next_ns > time_ns:
            time_ns = self.next_ns
            draft = Draft(draft.f, draft.value, draft.process, time_ns, draft.type)
        return Emit(draft, _Delay(step.next, self.interval_ns, time_ns + self.interval_ns))


def delay(dt_s: float, generator: GeneratorLike) -> Generator:
    """Emit operations exactly `dt_s` apart, or further apart if no thread is free in time."""
    inner, interval_ns = lift(generator), nanoseconds(dt_s, "delay")
    return inner if inner is NOTHING else _Delay(inner, interval_ns)


def sleep(dt_s: float) -> Generator:
    """Keep one thread idle for `dt_s`. The history has no op for this."""
    nanoseconds(dt_s, "sleep")
    return lift(Draft(SLEEP, dt_s, type=OpType.INFO))


class _TimedOps(Node, frozen=True):
    ops: tuple[ScheduledOp, ...]
    offset_ns: int
    start_ns: int | None = None
    queues: tuple[tuple[int, ...], ...] | None = None  # positions in `ops`, by thread
    heads: tuple[int, ...] = ()

    def op(self, ctx: Context) -> Step:
        if self.queues is None:
            return self._started(ctx).op(ctx)
        start_ns, queues, heads = self.start_ns, self.queues, self.heads
        assert start_ns is not None, "set together with the queues"
        best: tuple[int, int] | None = None  # start time and position in `ops` of the earliest op
        for index in indices(ctx.free_mask):
            if heads[index] < len(queues[index]):
                place = queues[index][heads[index]]
                offer = (max(ctx.time_ns, start_ns + self.ops[place].at_ns), place)
                if best is None or offer < best:
                    best = offer
        if best is None:
            left = any(head < len(q) for head, q in zip(heads, queues, strict=True))
            return Pending(self) if left else None
        time_ns, place = best
        op = self.ops[place]
        index = op.process % len(ctx.processes)
        draft = complete(Draft(op.f, op.value, ctx.processes[index], time_ns), ctx)
        assert draft is not None, "the thread is free"
        moved = (*heads[:index], heads[index] + 1, *heads[index + 1 :])
        return Emit(draft, _TimedOps(self.ops, self.offset_ns, start_ns, queues, moved))

    def _started(self, ctx: Context) -> _TimedOps:
        threads = len(ctx.processes)
        queues: list[list[int]] = [[] for _ in range(threads)]
        for place, op in enumerate(self.ops):
            if not ctx.all_mask >> op.process % threads & 1:
                raise UsageError(
                    f"the scheduled op {op.f!r} at {op.at_ns} ns is for process {op.process}, "
                    f"whose thread is not among {ctx.threads[:10]} of this generator"
                )
            queues[op.process % threads].append(place)
        begin_ns = ctx.time_ns if self.start_ns is None else self.start_ns
        start_ns = begin_ns + self.offset_ns
        heads = (0,) * threads
        return _TimedOps(self.ops, self.offset_ns, start_ns, tuple(map(tuple, queues)), heads)


def timed_ops(
    ops: Sequence[ScheduledOp], *, offset_ns: int = 0, start_ns: int | None = None
) -> Generator:
    """Replay scheduled ops. Their times count from `offset_ns` after `start_ns`.

    By default, `start_ns` is the time of the first call of `op`. The interpreter must pass a fixed
    start: it drops an offer that is due later, and asks the same generator again, so each call
    would be the first.

    An op runs on the thread of its process (`process % concurrency`), even if the thread has a
    newer process by then. A thread that is late does its ops in order as soon as it can, and does
    not delay other threads.
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
    return _TimedOps(in_order, offset_ns, start_ns) if ops else NOTHING
