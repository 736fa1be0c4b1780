"""Detects generators that break the protocol of `harness.generator.core`."""

from __future__ import annotations

from harness.errors import InternalError
from harness.generator.core import (
    SLEEP,
    Around,
    Context,
    Emit,
    Generator,
    GeneratorLike,
    Pending,
    Step,
    indices,
)
from harness.generator.plain import NOTHING, lift
from harness.ops import OpType

_TEXT_MAX = 2000  # in characters, of a generator or context


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}... ({len(text)} characters)"


def _problem(ctx: Context, step: object) -> str | None:
    """Return how a generator's step breaks the protocol, or `None`."""
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
    if draft.type is not OpType.INVOKE and (draft.type is not OpType.INFO or draft.f != SLEEP):
        return f"its draft {draft} is of type {draft.type.value}; drafts are invocations"
    return None


class _Validate(Around, frozen=True):
    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        problem = _problem(ctx, step)
        if problem is not None:
            raise InternalError(
                f"a generator broke its contract: {problem}. Context: time {ctx.time_ns} ns, "
                f"threads {ctx.threads[:20]}, free {indices(ctx.free_mask)[:20]}, "
                f"processes {ctx.processes[:20]}. Generator: {_shown(self.generator)}"
            )
        if step is None:
            return None
        rest = NOTHING if step.next is NOTHING else _Validate(step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)


def validate(generator: GeneratorLike) -> Generator:
    """Wrap a generator so that it raises `InternalError` for a step that breaks the protocol.

    The interpreter wraps the outermost generator. To find out which generator is at fault, wrap one
    inside a combinator.
    """
    inner = lift(generator)
    return inner if inner is NOTHING else _Validate(inner)
