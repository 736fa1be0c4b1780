"""How often a generator emits, after `jepsen.generator`.

Other than there, a pending step never counts against `limit` or `repeat`.
"""

from __future__ import annotations

from harness.errors import UsageError
from harness.generator.core import Context, Emit, Generator, GeneratorLike, Node, Pending, Step
from harness.generator.plain import NOTHING, lift
from harness.ops import Op

__all__ = ["limit", "repeat"]


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


def _check_count(n: int, what: str) -> None:
    if n < 0:
        raise UsageError(f"{what} got n = {n}; it must be 0 or more")
