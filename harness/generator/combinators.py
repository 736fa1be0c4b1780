"""Limits and repetitions of generators, after `jepsen.generator`.

Unlike there, a pending step never counts against `limit` or `repeat`.
"""

from __future__ import annotations

from harness.errors import UsageError
from harness.generator.core import Around, Context, Emit, Generator, GeneratorLike, Pending, Step
from harness.generator.plain import NOTHING, lift


class _Limit(Around, frozen=True):
    remaining: int

    def emitted(self, ctx: Context, step: Emit) -> Step:  # noqa: ARG002  the protocol's shape
        rest = NOTHING if self.remaining == 1 else _Limit(step.next, self.remaining - 1)
        return Emit(step.draft, rest)


def limit(n: int, generator: GeneratorLike) -> Generator:
    """At most `n` operations."""
    inner = lift(generator)
    _check_count(n, "limit")
    return NOTHING if inner is NOTHING or n == 0 else _Limit(inner, n)


class _Repeat(Around, frozen=True):
    remaining: int | None

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
        return Emit(step.draft, _Repeat(self.generator, self.remaining - 1))


def repeat(generator: GeneratorLike, n: int | None = None) -> Generator:
    """The first operation of the generator over and over, for ever or `n` times.

    The generator's state does not move on, so a random one emits different operations.
    """
    inner = lift(generator)
    if n is not None:
        _check_count(n, "repeat")
    return NOTHING if inner is NOTHING or n == 0 else _Repeat(inner, n)


def _check_count(n: int, what: str) -> None:
    if n < 0:
        raise UsageError(f"{what} got n = {n}; it must be 0 or more")
