"""Seeing what a generator does, and catching it when it does it wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable

from harness.errors import InternalError
from harness.generator.core import (
    LOG,
    SLEEP,
    Context,
    Draft,
    Emit,
    Generator,
    GeneratorLike,
    Node,
    Pending,
    Step,
)
from harness.generator.plain import NOTHING, lift
from harness.ops import Op, OpType

__all__ = ["friendly_exceptions", "log", "trace", "validate"]

_TEXT_MAX = 2000  # characters of a rendered generator or context


def log(message: str) -> Generator:
    """One directive that writes `message` into the run's history, as a fact of the harness."""
    return lift(Draft(LOG, message, type=OpType.INFO))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}... ({len(text)} characters)"


def _context_shown(ctx: Context) -> str:
    return (
        f"time {ctx.time_ns} ns, threads {ctx.threads[:20]}, free {ctx.free_threads[:20]}, "
        f"processes {ctx.processes[:20]}"
    )


def _problem(ctx: Context, step: object) -> str | None:
    """What is wrong with an answer, or `None`."""
    if step is None or isinstance(step, Pending):
        return None
    if not isinstance(step, Emit):
        return f"it answered {_shown(step)}; it must be None, a Pending or an Emit"
    draft = step.draft
    if draft.process is None or draft.time_ns is None:
        return f"its draft {draft} has no process or no time; see harness.generator.core.complete"
    if draft.time_ns < ctx.time_ns:
        return f"its draft {draft} lies before the context's time, {ctx.time_ns} ns"
    if not ctx.is_free(draft.process):
        return f"its draft {draft} is for a process that is not free"
    if draft.type is not OpType.INVOKE and not (
        draft.type is OpType.INFO and draft.f in {SLEEP, LOG}
    ):
        return f"its draft {draft} is of type {draft.type.value}; drafts are invocations"
    return None


class _Validate(Node, frozen=True):
    generator: Generator

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        problem = _problem(ctx, step)
        if problem is not None:
            raise InternalError(
                f"a generator broke its contract: {problem}. Context: {_context_shown(ctx)}. "
                f"Generator: {_shown(self.generator)}"
            )
        if step is None:
            return None
        rest = NOTHING if step.next is NOTHING else _Validate(step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        return self if inner is self.generator else _Validate(inner)


def validate(generator: GeneratorLike) -> Generator:
    """Raise `InternalError` for an answer that breaks the protocol. The interpreter does this
    to every generator at its top; inside, it finds the culprit.
    """
    inner = lift(generator)
    return inner if inner is NOTHING else _Validate(inner)


class _FriendlyExceptions(Node, frozen=True):
    generator: Generator

    def op(self, ctx: Context) -> Step:
        try:
            step = self.generator.op(ctx)
        except Exception as error:
            raise self._error("asked for an operation", ctx, error) from error
        if step is None:
            return None
        rest = NOTHING if step.next is NOTHING else _FriendlyExceptions(step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        try:
            inner = self.generator.update(ctx, event)
        except Exception as error:
            raise self._error(f"told of {event}", ctx, error) from error
        return self if inner is self.generator else _FriendlyExceptions(inner)

    def _error(self, when: str, ctx: Context, error: Exception) -> InternalError:
        return InternalError(
            f"a generator raised {type(error).__name__}: {error} when {when}. "
            f"Context: {_context_shown(ctx)}. Generator: {_shown(self.generator)}"
        )


def friendly_exceptions(generator: GeneratorLike) -> Generator:
    """Exceptions from inside become an `InternalError` that shows generator, context and event."""
    inner = lift(generator)
    return inner if inner is NOTHING else _FriendlyExceptions(inner)


class _Trace(Node, frozen=True):
    name: str
    sink: Callable[[str], None]
    generator: Generator

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        what = "exhausted" if step is None else step.draft if isinstance(step, Emit) else "pending"
        self.sink(f"{self.name} op: {what}; {_context_shown(ctx)}")
        if step is None:
            return None
        rest = NOTHING if step.next is NOTHING else _Trace(self.name, self.sink, step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        self.sink(f"{self.name} update: {event}; {_context_shown(ctx)}")
        return self if inner is self.generator else _Trace(self.name, self.sink, inner)


def trace(
    name: str, generator: GeneratorLike, *, sink: Callable[[str], None] | None = None
) -> Generator:
    """Write a line to `sink`, by default the log, for every question and every event."""
    inner = lift(generator)
    out = logging.getLogger(__name__).info if sink is None else sink
    return inner if inner is NOTHING else _Trace(name, out, inner)
