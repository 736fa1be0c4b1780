"""Makes generators from plain values (`lift`), and sequences, limits and repetitions of them.

Every function that takes a generator also takes plain values, and passes them through `lift`.
`lift` also adds the parts of the protocol that a generator from outside this package may omit: free
processes and times.

Unlike in `jepsen.generator`, a pending step never counts against `limit` or `repeat`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final, cast

from harness.errors import InternalError, UsageError
from harness.generator.core import (
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
    sooner,
)
from harness.ops import Op, Request

EMPTY_MAX: Final = 1000
"""How many empty generators a function may return in a row."""


class _Nothing(Node, frozen=True):
    def op(self, ctx: Context) -> Step:  # noqa: ARG002  the protocol's shape
        return None


NOTHING: Final[Generator] = _Nothing()


def soonest(
    states: list[Generator], asked: Iterable[tuple[int, Context, int]], rng: random.Random
) -> Emit | None:
    """Take the earliest offer of the asked generators, or `None`; updates `states` in place.

    `asked` has, for each generator, its position in `states`, its context, and its weight in ties.
    """
    best: tuple[Emit, int, int] | None = None
    for position, ctx, weight in asked:
        step = states[position].op(ctx)
        if isinstance(step, Emit):
            offer = (step, weight, position)
            best = offer if best is None else sooner(best, offer, rng)
        else:
            states[position] = NOTHING if step is None else step.next
    if best is None:
        return None
    emission, _, position = best
    states[position] = emission.next
    return emission


class _Once(Node, frozen=True):
    """A generator of one draft."""

    draft: Draft

    def op(self, ctx: Context) -> Step:
        draft = complete(self.draft, ctx)
        return Pending(self) if draft is None else Emit(draft, NOTHING)


class _Sequence(Node, frozen=True):
    """Several generators in order. `current` is the state of the generator at `position`."""

    generators: tuple[Generator, ...]
    position: int
    current: Generator

    def op(self, ctx: Context) -> Step:
        position, current, last = self.position, self.current, len(self.generators) - 1
        while True:
            step = current.op(ctx)
            if step is not None:
                break
            if position == last:
                return None
            position += 1
            current = self.generators[position]
        rest = self._at(position, step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def _at(self, position: int, current: Generator) -> Generator:
        if position == len(self.generators) - 1:
            return current
        if current is NOTHING:
            return self._at(position + 1, self.generators[position + 1])
        return _Sequence(self.generators, position, current)

    def update(self, ctx: Context, event: Op) -> Generator:
        current = self.current.update(ctx, event)
        if current is self.current:
            return self
        return _Sequence(self.generators, self.position, current)


class _Call(Node, frozen=True):
    """A function that returns the next generator each time it is called, and `None` at the end."""

    function: Callable[[Context], GeneratorLike]
    current: Generator | None = None

    def op(self, ctx: Context) -> Step:
        """Exhaust the generator that the function returned, then call the function again."""
        current = self.current
        if current is None and not ctx.free_mask:
            return Pending(self)
        for _ in range(EMPTY_MAX):
            if current is None:
                made = self.function(ctx)
                if made is None:
                    return None
                current = lift(made)
            step = current.op(ctx)
            if step is None:
                current = None
                continue
            if isinstance(step, Pending):
                return Pending(_Call(self.function, step.next))
            rest = None if step.next is NOTHING else step.next
            return Emit(step.draft, self if rest is self.current else _Call(self.function, rest))
        raise UsageError(
            f"the function {self.function!r} returned {EMPTY_MAX} empty generators in a row; "
            "return None to end it"
        )

    def update(self, ctx: Context, event: Op) -> Generator:
        if self.current is None:
            return self
        current = self.current.update(ctx, event)
        return self if current is self.current else _Call(self.function, current)


class _Outside(Around, frozen=True):
    """A generator of another package, whose drafts may omit process and time."""

    def op(self, ctx: Context) -> Step:
        """Return the generator's step with a complete draft; `Pending` while no process is free."""
        if not ctx.free_mask:
            return Pending(self)
        step = self.generator.op(ctx)
        if step is None:
            return None
        if isinstance(step, Pending):
            return Pending(self.around(step.next))
        if not isinstance(cast("object", step), Emit):
            raise InternalError(
                f"the generator {self.generator!r} answered {step!r}; "
                "it must be None, a Pending or an Emit"[:2000]
            )
        draft = complete(step.draft, ctx)
        return Pending(self) if draft is None else Emit(draft, self.around(step.next))

    def around(self, generator: Generator) -> Generator:
        """Wrap the generator to continue with, unless this package defines it."""
        return generator if isinstance(generator, Node) else _Outside(generator)


def lift(value: GeneratorLike) -> Generator:
    """Convert a generator or plain value to a generator; raises `UsageError` for other values.

    `None` has no operations. A `Draft` or request is emitted once. Generators in a list or tuple
    run one after the other. A function of the context is called again and again, and each result
    runs to its end, until the function returns `None`.
    """
    if value is None:
        return NOTHING
    if isinstance(value, Draft):
        return _Once(value)
    if isinstance(cast("object", value), Node):
        return cast("Generator", value)
    if callable(getattr(value, "op", None)) and callable(getattr(value, "update", None)):
        return _Outside(cast("Generator", value))
    if isinstance(value, (list, tuple)):
        return concat(*value)
    if isinstance(getattr(value, "f", None), str) and hasattr(value, "value"):
        request = cast("Request", value)
        return _Once(Draft(request.f, request.value))
    if callable(value):
        return _Call(value)
    raise UsageError(
        f"{value!r} is not a generator; give a Draft, a Request, a list of them, a function of "
        "the context, or a generator made by the functions of harness.generator"
    )


def concat(*generators: GeneratorLike) -> Generator:
    """Run generators one after the other, without waiting for open operations in between."""
    flat: list[Generator] = []
    for item in generators:
        lifted = lift(item)
        if isinstance(lifted, _Sequence):  # flattened, so that long chains do not nest
            flat += (lifted.current, *lifted.generators[lifted.position + 1 :])
        elif lifted is not NOTHING:
            flat.append(lifted)
    if len(flat) < 2:
        return flat[0] if flat else NOTHING
    return _Sequence(tuple(flat), 0, flat[0])


class _Limit(Around, frozen=True):
    remaining: int

    def emitted(self, ctx: Context, step: Emit) -> Step:  # noqa: ARG002  the protocol's shape
        rest = NOTHING if self.remaining == 1 else _Limit(step.next, self.remaining - 1)
        return Emit(step.draft, rest)


def limit(n: int, generator: GeneratorLike) -> Generator:
    """Emit at most `n` operations of the generator."""
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
    """Ask the generator for its first operation again and again, forever or `n` times.

    The generator's state does not change, but a random generator may emit different operations.
    """
    inner = lift(generator)
    if n is not None:
        _check_count(n, "repeat")
    return NOTHING if inner is NOTHING or n == 0 else _Repeat(inner, n)


def _check_count(n: int, what: str) -> None:
    if n < 0:
        raise UsageError(f"{what} got n = {n}; it must be 0 or more")
