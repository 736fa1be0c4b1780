"""Combinators over threads: who may run what, and waiting for one another.

Restricting a generator to threads restricts its context, and it learns only of what happens on
them. `reserve` takes its ranges from the threads of the context it stands in, in order, so that
it nests inside `on_threads` (in Jepsen it counts from thread 0 wherever it stands).

A generator for threads that the run does not have, or a `reserve` of more than there are, would
wait for ever; that is a `UsageError` when it is first asked.

`each_thread`, `each_process` and `concurrent_keys` hold many generators. They ask them in
rotation and take the first whose operation is due now, and only if none is due compare them all:
asking everybody every time costs a multiple of the concurrency per operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.errors import UsageError
from harness.generator.choice import any_of
from harness.generator.core import (
    Context,
    Emit,
    Generator,
    GeneratorLike,
    Node,
    Pending,
    Roster,
    Step,
    Thread,
    due_ns,
    indices,
    sooner,
)
from harness.generator.plain import NOTHING, concat, lift
from harness.ops import NEMESIS, Op, Process

__all__ = [
    "clients",
    "concurrency_limit",
    "each_process",
    "each_thread",
    "nemesis",
    "on_role",
    "on_threads",
    "phases",
    "process_limit",
    "reserve",
    "split",
    "synchronize",
    "then",
]


class _OnThreads(Node, frozen=True):
    predicate: Callable[[Thread], bool]
    generator: Generator
    what: str
    roster: Roster | None = None  # whose mask it is
    mask: int = 0

    def _mask(self, ctx: Context) -> int:
        return self.mask if self.roster is ctx.roster else ctx.mask_where(self.predicate)

    def _with(self, ctx: Context, mask: int, generator: Generator) -> Generator:
        if generator is NOTHING:
            return NOTHING
        return _OnThreads(self.predicate, generator, self.what, ctx.roster, mask)

    def op(self, ctx: Context) -> Step:
        mask = self._mask(ctx)
        inner = ctx.restrict(mask)
        if not mask:
            raise UsageError(
                f"{self.what} has no thread to run on: the run has {ctx.roster.names[:10]}; "
                "raise the concurrency, or leave this generator out"
            )
        if not inner.all_mask:  # the copy of `each_thread` for a thread that is not wanted
            return None
        step = self.generator.op(inner)
        if step is None:
            return None
        rest = self._with(ctx, mask, step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        mask = self._mask(ctx)
        if not mask & ctx.roster.bits[ctx.index_of(event.process)]:
            return self
        inner = self.generator.update(ctx.restrict(mask), event)
        return self if inner is self.generator else self._with(ctx, mask, inner)


def on_threads(
    predicate: Callable[[Thread], bool], generator: GeneratorLike, *, what: str = "on_threads"
) -> Generator:
    """Only threads that `predicate` accepts run the generator, and it sees no others.

    `what` names it in the error for a run without such a thread.
    """
    inner = lift(generator)
    return inner if inner is NOTHING else _OnThreads(predicate, inner, what)


def on_role(
    role: str, threads_by_role: Mapping[str, Sequence[Thread]], generator: GeneratorLike
) -> Generator:
    """Only the threads of one role. Raises `UsageError` for a role that is not in the mapping."""
    if role not in threads_by_role:
        known = ", ".join(sorted(threads_by_role)) or "none"
        raise UsageError(f"no threads have the role {role!r}; known roles: {known}")
    wanted = frozenset(threads_by_role[role])  # for membership only
    return on_threads(wanted.__contains__, generator, what=f"on_role({role!r})")


def _is_client(thread: Thread) -> bool:
    return isinstance(thread, int)


def _is_nemesis(thread: Thread) -> bool:
    return thread == NEMESIS


def clients(generator: GeneratorLike) -> Generator:
    """Only client threads."""
    return on_threads(_is_client, generator, what="clients")


def nemesis(generator: GeneratorLike) -> Generator:
    """Only the nemesis."""
    return on_threads(_is_nemesis, generator, what="nemesis")


def split(clients_generator: GeneratorLike, nemesis_generator: GeneratorLike) -> Generator:
    """One generator for the clients and one for the nemesis, side by side."""
    return any_of(clients(clients_generator), nemesis(nemesis_generator))


class _Reserve(Node, frozen=True):
    counts: tuple[int, ...]
    generators: tuple[Generator, ...]  # one for each count, and the default
    all_mask: int = 0  # of the context that the masks were made for
    masks: tuple[int, ...] = ()

    def _masks(self, ctx: Context) -> tuple[int, ...]:
        if self.masks and ctx.all_mask == self.all_mask:
            return self.masks
        left = indices(ctx.all_mask)
        bits, masks = ctx.roster.bits, []
        for count in self.counts:
            if count > len(left):
                raise UsageError(
                    f"reserve wants {sum(self.counts)} threads and has {ctx.thread_count}; "
                    "raise the concurrency or reserve fewer"
                )
            masks.append(sum(bits[i] for i in left[:count]))
            left = left[count:]
        masks.append(sum(bits[i] for i in left))
        if not left and self.generators[-1] is not NOTHING:
            raise UsageError(
                f"reserve takes all {ctx.thread_count} threads and leaves none for its default "
                "generator; raise the concurrency, reserve fewer, or make the default None"
            )
        return tuple(masks)

    def op(self, ctx: Context) -> Step:
        masks = self._masks(ctx)
        if not ctx.free_mask:
            return Pending(_Reserve(self.counts, self.generators, ctx.all_mask, masks))
        best: tuple[Emit, int, int] | None = None
        states = list(self.generators)
        pending = False
        for position, (mask, generator) in enumerate(zip(masks, self.generators, strict=True)):
            if generator is NOTHING:
                continue
            if not mask & ctx.free_mask:
                pending = True
                continue
            step = generator.op(ctx.restrict(mask))
            if isinstance(step, Emit):
                offer = (step, mask.bit_count(), position)
                best = offer if best is None else sooner(best, offer, ctx.random)
            elif step is None:
                states[position] = NOTHING
            else:
                states[position], pending = step.next, True
        if best is not None:
            step, _, position = best
            states[position] = step.next
            rest = _Reserve(self.counts, tuple(states), ctx.all_mask, masks)
            return Emit(step.draft, rest)
        if not pending:
            return None
        return Pending(_Reserve(self.counts, tuple(states), ctx.all_mask, masks))

    def update(self, ctx: Context, event: Op) -> Generator:
        bit = ctx.roster.bits[ctx.index_of(event.process)]
        masks = self._masks(ctx)
        for position, mask in enumerate(masks):
            if mask & bit:
                old = self.generators[position]
                new = old.update(ctx.restrict(mask), event)
                if new is old:
                    return self
                states = (*self.generators[:position], new, *self.generators[position + 1 :])
                return _Reserve(self.counts, states, ctx.all_mask, masks)
        return self  # another part of the run


def reserve(*counts_and_generators: int | GeneratorLike) -> Generator:
    """Groups of threads: `reserve(5, writes, 10, cas, reads)` has 5 write, 10 cas, the rest read.

    Ties between the groups are drawn in proportion to their sizes. The default may be `None`.
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


def ask_in_rotation(
    ctx: Context, mask: int, ask: Callable[[int], Step], units: Sequence[int] | None = None
) -> tuple[Emit | None, int, list[tuple[int, Step]]]:
    """The first due, or else the soonest, among what `ask(position)` offers; then the rest.

    Positions are the bits of `mask`, or what `units` maps them to, asked in rotation. Returns the
    emission, its position, and the answers that were no emission.
    """
    best: Emit | None = None
    best_position = -1
    others: list[tuple[int, Step]] = []
    asked = 0
    rotation = ctx.rotation
    for half, offset in ((mask >> rotation, rotation), (mask & ((1 << rotation) - 1), 0)):
        part = half
        while part:
            low = part & -part
            part ^= low
            position = offset + low.bit_length() - 1
            if units is not None:
                position = units[position]
                if asked >> position & 1:
                    continue
                asked |= 1 << position
            step = ask(position)
            if not isinstance(step, Emit):
                others.append((position, step))
                continue
            if due_ns(step.draft) <= ctx.time_ns:
                return step, position, others
            if best is None or due_ns(step.draft) < due_ns(best.draft):
                best, best_position = step, position
    return best, best_position, others


class _Each(Node, frozen=True):
    fresh: Generator
    by_process: bool
    states: tuple[Generator | None, ...] = ()  # by thread; None has not begun
    owners: tuple[Process | None, ...] = ()  # by thread: the process whose state it is
    ended: int = 0  # mask of threads whose generator is exhausted

    def _generator(self, ctx: Context, index: int) -> Generator:
        if index >= len(self.states):
            return self.fresh
        if self.by_process and self.owners[index] != ctx.processes[index]:
            return self.fresh
        state = self.states[index]
        return self.fresh if state is None else state

    def moved(self, ctx: Context, index: int, state: Generator, ended: int) -> _Each:
        states = self.states or (None,) * len(ctx.processes)
        states = (*states[:index], state, *states[index + 1 :])
        owners = self.owners
        if self.by_process:
            owners = owners or (None,) * len(ctx.processes)
            if owners[index] != ctx.processes[index]:
                owners = (*owners[:index], ctx.processes[index], *owners[index + 1 :])
        return _Each(self.fresh, self.by_process, states, owners, ended)

    def _ended(self, ctx: Context) -> int:
        """The mask of exhausted threads, without those that have a new process since."""
        ended = self.ended
        if self.by_process and ended:
            for index in indices(ended & ctx.free_mask):
                if self.owners[index] != ctx.processes[index]:
                    ended &= ~ctx.roster.bits[index]
        return ended

    def op(self, ctx: Context) -> Step:
        bits, ended = ctx.roster.bits, self._ended(ctx)

        def ask(index: int) -> Step:
            return self._generator(ctx, index).op(ctx.restrict(bits[index]))

        step, index, others = ask_in_rotation(ctx, ctx.free_mask & ~ended, ask)
        exhausted = [other for other, answer in others if answer is None]
        pending = len(exhausted) < len(others)
        after = self
        for other in exhausted:
            ended |= bits[other]
            after = after.moved(ctx, other, NOTHING, ended)
        if step is not None:
            if step.next is NOTHING:
                ended |= bits[index]
            return Emit(step.draft, after.moved(ctx, index, step.next, ended))
        # A busy thread may get a new process by crashing, and then it begins again.
        busy = ctx.all_mask & ~ctx.free_mask
        if pending or busy & (~0 if self.by_process else ~ended):
            return Pending(after)
        return None

    def update(self, ctx: Context, event: Op) -> Generator:
        index = ctx.index_of(event.process)
        bit = ctx.roster.bits[index]
        if not ctx.all_mask & bit or (self.ended & bit and not self.by_process):
            return self
        old = self._generator(ctx, index)
        new = old.update(ctx.restrict(bit), event)
        if new is old:
            return self
        return self.moved(ctx, index, new, self.ended | bit if new is NOTHING else self.ended)


def each_thread(generator: GeneratorLike) -> Generator:
    """An independent copy for every thread; each sees only its own. Ends when all have."""
    inner = lift(generator)
    return inner if inner is NOTHING else _Each(inner, by_process=False)


def each_process(generator: GeneratorLike) -> Generator:
    """An independent copy for every process: a thread begins anew after a crash."""
    inner = lift(generator)
    return inner if inner is NOTHING else _Each(inner, by_process=True)


class _ProcessLimit(Node, frozen=True):
    n: int
    generator: Generator
    seen: frozenset[int] = frozenset()  # for its size and membership only
    seen_in: tuple[Process, ...] = ()  # the processes that were counted last
    seen_mask: int = 0

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        if isinstance(step, Pending):
            return Pending(self._with(step.next))
        if ctx.processes is self.seen_in and ctx.all_mask == self.seen_mask:
            return Emit(step.draft, self._with(step.next))
        here = (ctx.processes[i] for i in indices(ctx.all_mask))
        seen = self.seen.union(process for process in here if isinstance(process, int))
        if len(seen) > self.n:
            return None
        rest = _ProcessLimit(self.n, step.next, seen, ctx.processes, ctx.all_mask)
        return Emit(step.draft, rest)

    def _with(self, generator: Generator) -> Generator:
        if generator is self.generator:
            return self
        return _ProcessLimit(self.n, generator, self.seen, self.seen_in, self.seen_mask)

    def update(self, ctx: Context, event: Op) -> Generator:
        return self._with(self.generator.update(ctx, event))


def process_limit(n: int, generator: GeneratorLike) -> Generator:
    """Until more than `n` client processes could have taken part.

    All processes of the context count, at work or not: otherwise a run would trickle out on the
    one or two processes that are left.
    """
    inner = lift(generator)
    if n < 0:
        raise UsageError(f"process_limit got n = {n}; it must be 0 or more")
    return NOTHING if inner is NOTHING or n == 0 else _ProcessLimit(n, inner)


class _ConcurrencyLimit(Node, frozen=True):
    n: int
    generator: Generator

    def op(self, ctx: Context) -> Step:
        if ctx.busy_count >= self.n:
            return Pending(self)
        step = self.generator.op(ctx)
        if step is None:
            return None
        rest = self if step.next is self.generator else _ConcurrencyLimit(self.n, step.next)
        return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        return self if inner is self.generator else _ConcurrencyLimit(self.n, inner)


def concurrency_limit(n: int, generator: GeneratorLike) -> Generator:
    """At most `n` threads of its context at work at a time."""
    inner = lift(generator)
    if n < 1:
        raise UsageError(f"concurrency_limit got n = {n}; it must be 1 or more")
    return inner if inner is NOTHING else _ConcurrencyLimit(n, inner)


class _Synchronize(Node, frozen=True):
    generator: Generator

    def op(self, ctx: Context) -> Step:
        if ctx.free_mask != ctx.all_mask:
            return Pending(self)
        return self.generator.op(ctx)

    def update(self, ctx: Context, event: Op) -> Generator:
        inner = self.generator.update(ctx, event)
        return self if inner is self.generator else _Synchronize(inner)


def synchronize(generator: GeneratorLike) -> Generator:
    """Wait until every thread of the context is free, then go on."""
    inner = lift(generator)
    return inner if inner is NOTHING else _Synchronize(inner)


def phases(*generators: GeneratorLike) -> Generator:
    """One after the other, each beginning only when all operations before it have ended."""
    return concat(*(synchronize(generator) for generator in generators))


def then(a: GeneratorLike, b: GeneratorLike) -> Generator:
    """`a`, then wait for all threads, then `b`; Jepsen's takes its arguments backwards."""
    return concat(a, synchronize(b))
