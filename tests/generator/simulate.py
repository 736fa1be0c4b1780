"""Runs a generator against simulated completions.

This is like Jepsen's `jepsen.generator.test`, but in the interpreter's order: due completions are
processed before the next operation is requested. The result depends only on the arguments.
"""

import heapq
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from harness.errors import InternalError, UsageError
from harness.generator.core import SLEEP, Context, Draft, Emit, GeneratorLike, due_ns, new_context
from harness.generator.diagnosis import validate
from harness.generator.plain import lift
from harness.ops import NS_PER_S, Op, OpType

LATENCY_NS: Final = 10
"""The duration of operations whose outcome does not define it."""
OPS_MAX: Final = 1_000_000
"""The number of ops after which a generator counts as endless."""
_POLL_NS: Final = 10_000_000
_POLLS_MAX: Final = 1000  # a generator that only waits for time gets 10 s


class Outcome(NamedTuple):
    """The outcome of a simulated operation, which ends `latency_ns` after its invocation."""

    type: OpType
    latency_ns: int = LATENCY_NS


class _Simulation:
    def __init__(
        self, complete: Callable[[Context, Op], Outcome], ctx: Context, ops_max: int
    ) -> None:
        self.complete = complete
        self.ctx = ctx
        self.ops_max = ops_max
        self.history: list[Op] = []
        # (time, sequence, completion, whether it is part of the history)
        self.in_flight: list[tuple[int, int, Op, bool]] = []
        self.sequence = 0

    def run(self, wanted: GeneratorLike) -> list[Op]:
        generator = validate(wanted)
        polls = 0
        while True:
            while self.in_flight and self.in_flight[0][0] <= self.ctx.time_ns:
                event = self._end_next()
                generator = generator.update(self.ctx, event)
                self._retire(event)
            step = generator.op(self.ctx)
            if step is None:
                break
            next_ns = self.in_flight[0][0] if self.in_flight else None
            if isinstance(step, Emit):
                time_ns = due_ns(step.draft)
                if next_ns is None or time_ns < next_ns:
                    polls = 0
                    invoked = self._begin(step.draft, time_ns)
                    generator = step.next
                    if invoked is not None:
                        generator = generator.update(self.ctx, invoked)
                    continue
            else:
                generator = step.next
                if next_ns is None:
                    polls += 1
                    if polls > _POLLS_MAX:
                        raise InternalError(
                            "the generator stays pending although no operation is in flight: "
                            f"{generator!r}"[:2000]
                        )
                    next_ns = self.ctx.time_ns + _POLL_NS
            assert next_ns is not None, "set in all cases that lead here"
            self.ctx = self.ctx.at(max(self.ctx.time_ns, next_ns))
        while self.in_flight:
            self._end_next()
        return self.history

    def _record(self, op: Op) -> Op:
        if len(self.history) >= self.ops_max:
            raise UsageError(
                f"the generator made {self.ops_max} ops and did not end; wrap it in a limit"
            )
        numbered = msgspec.structs.replace(op, index=len(self.history))
        self.history.append(numbered)
        return numbered

    def _begin(self, draft: Draft, time_ns: int) -> Op | None:
        process = draft.process
        assert process is not None, "an emitted draft has a process"
        self.ctx = self.ctx.busy(self.ctx.index_of(process), time_ns)
        if draft.type is OpType.INFO and draft.f == SLEEP:
            invoked = Op(-1, time_ns, process, OpType.INFO, SLEEP, draft.value)
            end_ns = time_ns + round(draft.value * NS_PER_S)
            self._push(msgspec.structs.replace(invoked, time=end_ns), recorded=False)
            return None
        invoked = self._record(Op(-1, time_ns, process, OpType.INVOKE, draft.f, draft.value))
        outcome = self.complete(self.ctx, invoked)
        ended = msgspec.structs.replace(
            invoked, time=time_ns + outcome.latency_ns, type=outcome.type
        )
        self._push(ended, recorded=True)
        return invoked

    def _push(self, op: Op, *, recorded: bool) -> None:
        heapq.heappush(self.in_flight, (op.time, self.sequence, op, recorded))
        self.sequence += 1

    def _end_next(self) -> Op:
        _, _, op, recorded = heapq.heappop(self.in_flight)
        self.ctx = self.ctx.freed(self.ctx.index_of(op.process), op.time)
        return self._record(op) if recorded else op

    def _retire(self, op: Op) -> None:
        if op.type is OpType.INFO and op.f != SLEEP:
            self.ctx = self.ctx.retired(self.ctx.index_of(op.process))


def simulate(
    generator: GeneratorLike,
    complete: Callable[[Context, Op], Outcome],
    *,
    concurrency: int = 2,
    seed: int = 0,
    ops_max: int = OPS_MAX,
) -> list[Op]:
    """Return all ops of a run; `complete(ctx, invocation)` returns each operation's outcome."""
    ctx = new_context(concurrency, random.Random(seed))
    return _Simulation(complete, ctx, ops_max).run(lift(generator))


def invocations(ops: list[Op]) -> list[Op]:
    return [op for op in ops if op.type is OpType.INVOKE]


def quick_history(generator: GeneratorLike, **options: Any) -> list[Op]:
    """Return the ops of a run in which everything succeeds immediately."""
    return simulate(generator, lambda _ctx, _op: Outcome(OpType.OK, 0), **options)


def quick(generator: GeneratorLike, **options: Any) -> list[Op]:
    return invocations(quick_history(generator, **options))


def perfect_history(generator: GeneratorLike, **options: Any) -> list[Op]:
    """Return the ops of a run in which everything succeeds after `LATENCY_NS`."""
    return simulate(generator, lambda _ctx, _op: Outcome(OpType.OK), **options)


def perfect(generator: GeneratorLike, **options: Any) -> list[Op]:
    return invocations(perfect_history(generator, **options))


def perfect_info(generator: GeneratorLike, **options: Any) -> list[Op]:
    """Return the ops of a run in which every operation crashes after `LATENCY_NS`."""
    return invocations(simulate(generator, lambda _ctx, _op: Outcome(OpType.INFO), **options))


def imperfect(generator: GeneratorLike, **options: Any) -> list[Op]:
    """Return the ops of a run in which each thread's operations fail, crash, succeed, fail, ..."""
    turns: dict[int, int] = {}
    kinds = (OpType.FAIL, OpType.INFO, OpType.OK)

    def complete(ctx: Context, op: Op) -> Outcome:
        index = ctx.index_of(op.process)
        turns[index] = turns.get(index, -1) + 1
        return Outcome(kinds[turns[index] % 3])

    return simulate(generator, complete, **options)
