"""Combinators that choose among several generators.

`any_of` asks all generators and takes the earliest operation. `mix` and `weighted` choose at random
which generator comes next, so that the timing of generators does not change the proportions of a
mixture. Unlike Jepsen's `mix`, ours passes updates on to its generators, and a pending generator
does not block the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from harness.errors import UsageError
from harness.generator.core import Context, Emit, Generator, GeneratorLike, Node, Pending, Step
from harness.generator.plain import NOTHING, lift, soonest
from harness.ops import Op


def _update_all(
    generators: tuple[Generator, ...], ctx: Context, event: Op
) -> tuple[Generator, ...]:
    """Update all generators with `event`; returns the same tuple if none of them changed."""
    updated = [generator.update(ctx, event) for generator in generators]
    for old, new in zip(generators, updated, strict=True):
        if old is not new:
            return tuple(updated)
    return generators


def _any(states: Sequence[Generator]) -> Generator:
    """Combine the generators that are not exhausted."""
    left = tuple(state for state in states if state is not NOTHING)
    if len(left) < 2:
        return left[0] if left else NOTHING
    return _Any(left)


class _Any(Node, frozen=True):
    generators: tuple[Generator, ...]

    def op(self, ctx: Context) -> Step:
        states = list(self.generators)
        best = soonest(states, ((n, ctx, 1) for n in range(len(states))), ctx.random)
        rest = _any(states)
        if best is not None:
            return Emit(best.draft, rest)
        return None if rest is NOTHING else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        updated = _update_all(self.generators, ctx, event)
        return self if updated is self.generators else _any(updated)


def any_of(*generators: GeneratorLike) -> Generator:
    """Emit the earliest operation of all generators until all have ended; ties are random."""
    return _any([lift(generator) for generator in generators])


class _Mix(Node, frozen=True):
    generators: tuple[Generator, ...]
    weights: tuple[float, ...]
    turn: int | None = None  # chosen at the previous emission, so that a retry takes the same turn

    def op(self, ctx: Context) -> Step:
        if not ctx.free_mask:
            return Pending(self)
        generators, weights = self.generators, self.weights
        turn = _draw(weights, ctx.random) if self.turn is None else self.turn
        while True:
            step = generators[turn].op(ctx)
            if isinstance(step, Emit):
                following = _draw(weights, ctx.random)
                return Emit(step.draft, _replaced(generators, weights, turn, step.next, following))
            if step is not None:
                return self._from_others(ctx, generators, weights, turn, step)
            generators = generators[:turn] + generators[turn + 1 :]
            weights = weights[:turn] + weights[turn + 1 :]
            if not generators:
                return None
            turn = _draw(weights, ctx.random)

    @staticmethod
    def _from_others(
        ctx: Context,
        generators: tuple[Generator, ...],
        weights: tuple[float, ...],
        turn: int,
        pending: Pending,
    ) -> Step:
        """Take an operation of another generator, since the generator at `turn` is pending."""
        for ahead in range(1, len(generators)):
            position = (turn + ahead) % len(generators)
            step = generators[position].op(ctx)
            if isinstance(step, Emit):
                # it is still the turn of the pending generator, which catches up as soon as it can
                return Emit(step.draft, _replaced(generators, weights, position, step.next, turn))
        return Pending(_replaced(generators, weights, turn, pending.next, turn))

    def update(self, ctx: Context, event: Op) -> Generator:
        updated = _update_all(self.generators, ctx, event)
        return self if updated is self.generators else _Mix(updated, self.weights, self.turn)


def _draw(weights: tuple[float, ...], rng: random.Random) -> int:
    if len(weights) == 1:
        return 0
    point = rng.random() * sum(weights)
    for position, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return position
    return len(weights) - 1  # only rounding errors lead here


def _replaced(
    generators: tuple[Generator, ...],
    weights: tuple[float, ...],
    position: int,
    state: Generator,
    turn: int,
) -> Generator:
    if state is generators[position]:
        return _Mix(generators, weights, turn)
    return _Mix((*generators[:position], state, *generators[position + 1 :]), weights, turn)


def weighted(choices: Iterable[tuple[float, GeneratorLike]]) -> Generator:
    """Mix generators at random in proportion to weights. Exhausted ones are left out.

    Raises `UsageError` for a weight that is negative or not finite.
    """
    pairs = [(weight, lift(generator)) for weight, generator in choices]
    for weight, _ in pairs:
        if not 0 <= weight < float("inf"):
            raise UsageError(f"a weight is {weight}; it must be a finite number of 0 or more")
    kept = [(float(weight), g) for weight, g in pairs if weight > 0 and g is not NOTHING]
    if not kept:
        return NOTHING
    return _Mix(tuple(g for _, g in kept), tuple(weight for weight, _ in kept))


def mix(*generators: GeneratorLike) -> Generator:
    """Mix generators at random with equal weights. Exhausted ones are left out.

    Raises `UsageError` for a single list, because a list is itself a generator: a sequence.
    """
    if len(generators) == 1 and isinstance(generators[0], (list, tuple)):
        raise UsageError(
            f"mix got one list of {len(generators[0])} generators; write mix(*generators)"
        )
    return weighted((1.0, generator) for generator in generators)
