"""Ops in a short form, and small building blocks for generators in tests."""

from collections.abc import Iterable
from typing import Any

from harness.generator import (
    Context,
    Draft,
    Emit,
    Generator,
    GeneratorLike,
    Pending,
    Step,
    lift,
    repeat,
)
from harness.ops import Op, OpType, Process

S = 1_000_000_000


def short(ops: Iterable[Op]) -> list[tuple[int, Process, str, Any]]:
    """Return (time, process, f, value) of each op."""
    return [(op.time, op.process, op.f, op.value) for op in ops]


def names(ops: Iterable[Op]) -> list[str]:
    return [op.f for op in ops]


def times(ops: Iterable[Op]) -> list[int]:
    return [op.time for op in ops]


def processes(ops: Iterable[Op]) -> list[Process]:
    return [op.process for op in ops]


def forever(f: str) -> Generator:
    return repeat(Draft(f))


def numbered(f: str, count: int) -> list[Draft]:
    return [Draft(f, value) for value in range(count)]


def draw(ctx: Context) -> Draft:
    return Draft("draw", ctx.random.randrange(100))


class UntilOk:
    """A wrapped generator that ends at the first `ok` completion (of an operation `f`)."""

    def __init__(self, generator: GeneratorLike, f: str | None = None) -> None:
        self.generator, self.f = lift(generator), f

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        rest = UntilOk(step.next, self.f)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        if event.type is OpType.OK and self.f in {None, event.f}:
            return lift(None)
        return UntilOk(self.generator.update(ctx, event), self.f)


class Thread:
    """A wrapped generator whose drafts are all for one thread's process."""

    def __init__(self, thread: int, f: str) -> None:
        self.thread, self.f = thread, f

    def op(self, ctx: Context) -> Step:
        return Emit(Draft(self.f, process=ctx.processes[self.thread]), self)

    def update(self, ctx: Context, event: Op) -> Generator:
        return self
