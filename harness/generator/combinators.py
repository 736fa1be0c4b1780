"""Combinators over one generator: what it emits, how often, and when it ends.

Semantics follow `jepsen.generator` (https://github.com/jepsen-io/generator, commit 4908c011),
with four mends. A pending step never counts against `limit` or `repeat`. Everything passes
updates on. `sleep` and `log` are no operations: `map_ops` and `filter_ops` let them pass as they
are. And loops that could turn forever without emitting say so after a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from harness.errors import UsageError
from harness.generator.core import (
    Context,
    Draft,
    Emit,
    Generator,
    GeneratorLike,
    Node,
    Pending,
    Step,
    complete,
)
from harness.generator.plain import NOTHING, lift
from harness.ops import Op, OpType

__all__ = [
    "FILTERED_MAX",
    "FutureLike",
    "cycle",
    "deferred",
    "f_map",
    "filter_ops",
    "lazily",
    "limit",
    "map_ops",
    "on_update",
    "once",
    "repeat",
    "until_event",
    "until_ok",
]

FILTERED_MAX: Final = 100_000
"""How many drafts in a row `filter_ops` may reject before that is called a mistake."""


class _Map(Node, frozen=True):
    function: Callable[[Draft], Draft]
    generator: Generator

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        rest = step.next
        if rest is not self.generator and rest is not NOTHING:
            rest = _Map(self.function, rest)
        elif rest is not NOTHING:
            rest = self
        if isinstance(step, Pending):
            return Pending(rest)
        if step.draft.type is OpType.INFO:
            return Emit(step.draft, rest)
        old, new = step.draft, self.function(step.draft)
        if new.process is None or new.time_ns is None:
            new = Draft(
                new.f,
                new.value,
                old.process if new.process is None else new.process,
                old.time_ns if new.time_ns is None else new.time_ns,
                new.type,
                old.together,
            )
        if new.process != old.process or new.time_ns != old.time_ns:
            checked = complete(new, ctx)
            if checked is None:
                return Pending(self)
            new = checked
        return Emit(new, rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        return self if inner is self.generator else _Map(self.function, inner)


def map_ops(function: Callable[[Draft], Draft], generator: GeneratorLike) -> Generator:
    """Each draft goes through `function`; a process or time it leaves out stays as it was."""
    inner = lift(generator)
    return inner if inner is NOTHING else _Map(function, inner)


def f_map(names: Mapping[str, str], generator: GeneratorLike) -> Generator:
    """Rename the `f` of drafts; names not in the mapping stay. For composing nemeses."""
    return map_ops(lambda draft: draft.replace(f=names.get(draft.f, draft.f)), generator)


class _Filter(Node, frozen=True):
    predicate: Callable[[Draft], bool]
    generator: Generator

    def op(self, ctx: Context) -> Step:
        generator = self.generator
        for _ in range(FILTERED_MAX):
            step = generator.op(ctx)
            if step is None:
                return None
            rest = step.next
            if isinstance(step, Pending):
                return Pending(_Filter(self.predicate, rest))
            if step.draft.type is OpType.INFO or self.predicate(step.draft):
                wrapped = self if rest is self.generator else _Filter(self.predicate, rest)
                return Emit(step.draft, wrapped)
            generator = rest
        raise UsageError(
            f"filter_ops rejected {FILTERED_MAX} drafts in a row; "
            "emit what is wanted in the first place, or put a limit inside the filter"
        )

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        return self if inner is self.generator else _Filter(self.predicate, inner)


def filter_ops(predicate: Callable[[Draft], bool], generator: GeneratorLike) -> Generator:
    """Only the drafts that `predicate` accepts. Raises `UsageError` after `FILTERED_MAX` misses."""
    inner = lift(generator)
    return inner if inner is NOTHING else _Filter(predicate, inner)


class _OnUpdate(Node, frozen=True):
    handler: Callable[[Generator, Context, Op], GeneratorLike]
    generator: Generator

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        rest = _OnUpdate(self.handler, step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        changed = self.handler(inner, ctx, event)
        if changed is self.generator:
            return self
        return _OnUpdate(self.handler, lift(changed))


def on_update(
    handler: Callable[[Generator, Context, Op], GeneratorLike], generator: GeneratorLike
) -> Generator:
    """After every event, go on with `handler(generator, ctx, event)` in place of the generator.

    The generator it is given has learnt of the event already; returning it changes nothing. The
    handler stays in place around whatever it returns.
    """
    return _OnUpdate(handler, lift(generator))


class _Limit(Node, frozen=True):
    remaining: int
    generator: Generator

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        if isinstance(step, Pending):
            return Pending(_Limit(self.remaining, step.next))
        if self.remaining == 1:
            return Emit(step.draft, NOTHING)
        return Emit(step.draft, _Limit(self.remaining - 1, step.next))

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        return self if inner is self.generator else _Limit(self.remaining, inner)


def limit(n: int, generator: GeneratorLike) -> Generator:
    """At most `n` operations."""
    inner = lift(generator)
    _check_count(n, "limit")
    return NOTHING if inner is NOTHING or n == 0 else _Limit(n, inner)


def once(generator: GeneratorLike) -> Generator:
    """At most one operation."""
    return limit(1, generator)


class _Repeat(Node, frozen=True):
    remaining: int | None
    generator: Generator

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        if isinstance(step, Pending):
            return Pending(self)
        if self.remaining is None:
            return Emit(step.draft, self)
        if self.remaining == 1:
            return Emit(step.draft, NOTHING)
        return Emit(step.draft, _Repeat(self.remaining - 1, self.generator))

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        return self if inner is self.generator else _Repeat(self.remaining, inner)


def repeat(generator: GeneratorLike, n: int | None = None) -> Generator:
    """The first operation of the generator over and over, for ever or `n` times.

    The generator's state does not move on, so a random one emits different operations.
    """
    inner = lift(generator)
    if n is not None:
        _check_count(n, "repeat")
    return NOTHING if inner is NOTHING or n == 0 else _Repeat(n, inner)


class _Cycle(Node, frozen=True):
    remaining: int | None
    original: Generator
    current: Generator

    def op(self, ctx: Context) -> Step:
        remaining, step = self.remaining, self.current.op(ctx)
        if step is None:
            if remaining is not None:
                remaining -= 1
                if remaining == 0:
                    return None
            step = self.original.op(ctx)
            if step is None:  # empty from its start: another turn would not differ
                return None
        rest = _Cycle(remaining, self.original, step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        current = self.current.update(ctx, event)
        return self if current is self.current else _Cycle(self.remaining, self.original, current)


def cycle(generator: GeneratorLike, n: int | None = None) -> Generator:
    """Begin again from the original state when it is exhausted, for ever or `n` turns in all."""
    inner = lift(generator)
    if n is not None:
        _check_count(n, "cycle")
    return NOTHING if inner is NOTHING or n == 0 else _Cycle(n, inner, inner)


class _UntilOk(Node, frozen=True):
    generator: Generator
    mine: int = 0  # mask of the threads that carry an operation of ours

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        if isinstance(step, Pending):
            return Pending(_UntilOk(step.next, self.mine))
        assert step.draft.process is not None, "an emitted draft has a process"
        bit = ctx.roster.bits[ctx.index_of(step.draft.process)]
        return Emit(step.draft, _UntilOk(step.next, self.mine | bit))

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        bit = ctx.roster.bits[ctx.index_of(event.process)]
        mine = self.mine
        if event.type is not OpType.INVOKE and mine & bit:
            if event.type is OpType.OK:
                return NOTHING
            mine &= ~bit
        if inner is self.generator and mine == self.mine:
            return self
        return _UntilOk(inner, mine)


def until_ok(generator: GeneratorLike) -> Generator:
    """Until one of its own operations ends in `ok`; those under way then are left to end."""
    inner = lift(generator)
    return inner if inner is NOTHING else _UntilOk(inner)


class _UntilEvent(Node, frozen=True):
    predicate: Callable[[Op], bool]
    generator: Generator

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        rest = _UntilEvent(self.predicate, step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        if self.predicate(event):
            return NOTHING
        inner = self.generator.update(ctx, event)
        return self if inner is self.generator else _UntilEvent(self.predicate, inner)


def until_event(predicate: Callable[[Op], bool], generator: GeneratorLike) -> Generator:
    """Early termination: until any invocation or completion of the run meets `predicate`."""
    inner = lift(generator)
    return inner if inner is NOTHING else _UntilEvent(predicate, inner)


class _Lazily(Node, frozen=True):
    make: Callable[[], GeneratorLike]

    def op(self, ctx: Context) -> Step:
        return lift(self.make()).op(ctx)

    def update(self, ctx: Context, event: Op) -> Generator:  # noqa: ARG002  not made yet
        return self


def lazily(make: Callable[[], GeneratorLike]) -> Generator:
    """The generator that `make` returns, made when it is first asked. `make` must be pure."""
    return _Lazily(make)


class FutureLike(Protocol):
    """What `deferred` waits for; `asyncio.Future` is one."""

    def done(self) -> bool:
        """Whether there is a result."""
        ...

    def result(self) -> GeneratorLike:
        """The generator."""
        ...


class _Deferred(Node, frozen=True):
    future: FutureLike

    def op(self, ctx: Context) -> Step:
        if not self.future.done():
            return Pending(self)
        return lift(self.future.result()).op(ctx)

    def update(self, ctx: Context, event: Op) -> Generator:  # noqa: ARG002  not known yet
        return self


def deferred(future: FutureLike) -> Generator:
    """Pending until `future` has a result, then that generator."""
    return _Deferred(future)


def _check_count(n: int, what: str) -> None:
    if n < 0:
        raise UsageError(f"{what} got n = {n}; it must be 0 or more")
