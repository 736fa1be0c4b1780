"""Combinators that assign generators to threads, or wait for threads.

A generator that is restricted to some threads has a restricted context and learns only of the
events of these threads. `reserve` takes its ranges from the threads of its own context, in order,
so that it can be nested (in Jepsen it always counts from thread 0). A `reserve` of too many threads
would wait forever, so it raises `UsageError` when it is first asked.

`each_thread` has one generator per thread. It asks the generators in rotation and takes the first
operation that is due now. It asks all generators only if no operation is due: always asking all
would multiply the cost per operation by the concurrency.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.errors import UsageError
from harness.generator.core import (
    Around,
    Context,
    Emit,
    Generator,
    GeneratorLike,
    Node,
    Pending,
    Step,
    due_ns,
    indices,
)
from harness.generator.plain import NOTHING, concat, lift, soonest
from harness.ops import Op


class _Reserve(Node, frozen=True):
    counts: tuple[int, ...]
    generators: tuple[Generator, ...]  # one generator per count, and the default generator
    all_mask: int = 0  # the context's `all_mask` for which `masks` were made
    masks: tuple[int, ...] = ()

    def _masks(self, ctx: Context) -> tuple[int, ...]:
        if self.masks and ctx.all_mask == self.all_mask:
            return self.masks
        left = indices(ctx.all_mask)
        masks = []
        for count in self.counts:
            if count > len(left):
                raise UsageError(
                    f"reserve wants {sum(self.counts)} threads and has {len(ctx.threads)}; "
                    "raise the concurrency or reserve fewer"
                )
            masks.append(sum(1 << i for i in left[:count]))
            left = left[count:]
        masks.append(sum(1 << i for i in left))
        if not left and self.generators[-1] is not NOTHING:
            raise UsageError(
                f"reserve takes all {len(ctx.threads)} threads and leaves none for its default "
                "generator; raise the concurrency, reserve fewer, or make the default None"
            )
        return tuple(masks)

    def op(self, ctx: Context) -> Step:
        masks = self._masks(ctx)
        if not ctx.free_mask:
            return Pending(_Reserve(self.counts, self.generators, ctx.all_mask, masks))
        states = list(self.generators)
        asked = (
            (position, ctx.restrict(mask), mask.bit_count())
            for position, mask in enumerate(masks)
            if mask & ctx.free_mask and states[position] is not NOTHING
        )
        best = soonest(states, asked, ctx.random)
        rest = _Reserve(self.counts, tuple(states), ctx.all_mask, masks)
        if best is not None:
            return Emit(best.draft, rest)
        return None if all(state is NOTHING for state in states) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        bit = 1 << ctx.index_of(event.process)
        masks = self._masks(ctx)
        for position, mask in enumerate(masks):
            if mask & bit:
                old = self.generators[position]
                new = old.update(ctx.restrict(mask), event)
                if new is old:
                    return self
                states = (*self.generators[:position], new, *self.generators[position + 1 :])
                return _Reserve(self.counts, states, ctx.all_mask, masks)
        return self  # the event belongs to a thread that this generator does not use


def reserve(*counts_and_generators: int | GeneratorLike) -> Generator:
    """Divide threads: in `reserve(5, writes, 10, cas, reads)`, `reads` gets the remaining threads.

    Ties between groups are decided at random, in proportion to the numbers of threads. The last
    argument, for the remaining threads, may be `None`.
    """
    *pairs, default = counts_and_generators or (None,)
    counts, generators = pairs[0::2], pairs[1::2]
    checked: list[int] = []
    for count in counts:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise UsageError(f"reserve got {count!r} for a number of threads; it must be 1 or more")
        checked.append(count)
    if len(counts) != len(generators):
        raise UsageError(
            "reserve takes pairs of a number and a generator, and then a default generator"
        )
    lifted = tuple(_lift_argument(generator) for generator in (*generators, default))
    if not checked or all(generator is NOTHING for generator in lifted):
        return lifted[-1]
    return _Reserve(tuple(checked), lifted)


def _lift_argument(value: int | GeneratorLike) -> Generator:
    if isinstance(value, int):
        raise UsageError(f"reserve got the number {value} in place of a generator")
    return lift(value)


def _in_rotation(ctx: Context, mask: int) -> Iterator[int]:
    """Yield the threads in `mask`, starting at the thread whose turn it is (`ctx.rotation`)."""
    late = mask >> ctx.rotation << ctx.rotation
    for part in (late, mask ^ late):
        left = part
        while left:
            low = left & -left
            left ^= low
            yield low.bit_length() - 1


class _Each(Node, frozen=True):
    fresh: Generator
    states: tuple[Generator, ...] = ()  # the generator of each thread
    ended: int = 0  # the threads whose generators are exhausted, as a mask

    def moved(self, ctx: Context, index: int, state: Generator, ended: int) -> _Each:
        states = self.states or (self.fresh,) * len(ctx.processes)
        return _Each(self.fresh, (*states[:index], state, *states[index + 1 :]), ended)

    def _generator(self, index: int) -> Generator:
        return self.states[index] if self.states else self.fresh

    def op(self, ctx: Context) -> Step:
        best: Emit | None = None
        best_index, ended = -1, self.ended
        after, pending = self, False
        for index in _in_rotation(ctx, ctx.free_mask & ~ended):
            step = self._generator(index).op(ctx.restrict(1 << index))
            if step is None:
                ended |= 1 << index
                after = after.moved(ctx, index, NOTHING, ended)
            elif isinstance(step, Pending):
                pending = True
            elif best is None or due_ns(step.draft) < due_ns(best.draft):
                best, best_index = step, index
                if due_ns(step.draft) <= ctx.time_ns:
                    break
        if best is not None:
            if best.next is NOTHING:
                ended |= 1 << best_index
            return Emit(best.draft, after.moved(ctx, best_index, best.next, ended))
        busy = ctx.all_mask & ~ctx.free_mask
        return Pending(after) if pending or busy & ~ended else None

    def update(self, ctx: Context, event: Op) -> Generator:
        index = ctx.index_of(event.process)
        bit = 1 << index
        if not ctx.all_mask & bit:
            return self
        old = self._generator(index)
        new = old.update(ctx.restrict(bit), event)
        if new is old:
            return self
        return self.moved(ctx, index, new, self.ended | bit if new is NOTHING else self.ended)


def each_thread(generator: GeneratorLike) -> Generator:
    """Run a copy of a generator on every thread; ends when all copies have ended."""
    inner = lift(generator)
    return inner if inner is NOTHING else _Each(inner)


class _Synchronize(Around, frozen=True):
    def op(self, ctx: Context) -> Step:
        if ctx.free_mask != ctx.all_mask:
            return Pending(self)
        return self.generator.op(ctx)


def synchronize(generator: GeneratorLike) -> Generator:
    """Wait until every thread of the context is free, then continue."""
    inner = lift(generator)
    return inner if inner is NOTHING else _Synchronize(inner)


def phases(*generators: GeneratorLike) -> Generator:
    """Run generators in sequence. A generator begins when all earlier operations have ended."""
    return concat(*(synchronize(generator) for generator in generators))
