"""The protocol of generators, their context, and shared helpers.

A generator is an immutable value with two functions (`jepsen.generator`, README of
https://github.com/jepsen-io/generator):

* `op(ctx)` returns the next step. It is `None` if the generator is exhausted, `Pending` if it has
  no operation before the next event, or `Emit` with a draft and the generator to continue with. An
  emission is only an *offer*: the caller may drop both the draft and the new generator, and ask the
  old generator again later. The interpreter does this with every draft that starts in the future.
* `update(ctx, event)` informs the generator of an invocation or a completion, and returns the
  generator that replaces it.

All state is in the returned value, except for `ctx.random`: the random numbers of a dropped offer
are not taken back. So combinators keep random values for a *later* operation in their state. This
also avoids the bias of drawing them again.

`Context` is immutable, too, and cheap. Threads are the bits of two integers (all threads, and free
threads), so that taking, freeing and restricting threads is fast at any concurrency. Processes are
numbered as in Jepsen: after a crash, a thread continues as process `old + concurrency`, so `process
% concurrency` is the thread of a process. Nemeses have no thread here, because `harness.faults`
plans and injects faults.

A generator outside this package may omit `process` and `time_ns` in its drafts, and need not check
which processes are free: every generator passes through `harness.generator.lift`, which fills them
in.

No code in this package iterates over a set, reads a clock or uses the module `random`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from harness.errors import UsageError
from harness.ops import NS_PER_S, Op, OpType, Process, Request

SLEEP: Final = "sleep"
"""The `f` of a draft of type `info`, which keeps its thread idle for `value` seconds."""


class Draft(msgspec.Struct, frozen=True):
    """A future operation. Generators emit it with `process` and `time_ns` filled in.

    `time_ns` is the earliest start, in ns since the start of the run; `None` means now. A `process`
    of `None` means any free process. `type` is `invoke`, or `info` for a `SLEEP`. A draft that goes
    `together` with the previous one is not delayed by `stagger`, which waits longer afterwards.
    """

    f: str
    value: Any = None
    process: int | None = None
    time_ns: int | None = None
    type: OpType = OpType.INVOKE
    together: bool = False

    def replace(self, **changes: Any) -> Draft:
        return replace(self, **changes)


class Context(msgspec.Struct, frozen=True, eq=False):
    """The run as a generator sees it: the time, and the free threads among its own threads.

    `free_process` takes free threads in rotation: each invocation of the run starts the search one
    thread further. So no thread is favoured, and no random number is needed.
    """

    time_ns: int
    random: random.Random
    processes: tuple[int, ...]  # the current process of each thread of the run
    all_mask: int
    free_mask: int
    rotation: int = 0

    @property
    def threads(self) -> tuple[int, ...]:
        return tuple(indices(self.all_mask))

    def index_of(self, process: Process) -> int:
        """Return the thread that runs, or once ran, `process`. Raises `UsageError` for a name."""
        if isinstance(process, int):
            return process % len(self.processes)
        raise UsageError(
            f"there is no thread for process {process!r}: processes are numbers; leave the draft's "
            "process out to take any free one"
        )

    def is_free(self, process: Process) -> bool:
        """Whether `process` is current, belongs to this context, and is idle."""
        index = self.index_of(process)
        return bool(self.free_mask >> index & 1) and self.processes[index] == process

    def free_process(self) -> int | None:
        """Return the next free process in rotation, or `None` if all are busy."""
        free = self.free_mask
        if not free:
            return None
        ahead = free >> self.rotation
        if ahead:
            return self.processes[self.rotation + (ahead & -ahead).bit_length() - 1]
        return self.processes[(free & -free).bit_length() - 1]

    def restrict(self, mask: int) -> Context:
        return replace(self, all_mask=self.all_mask & mask, free_mask=self.free_mask & mask)

    def at(self, time_ns: int) -> Context:
        return replace(self, time_ns=time_ns)

    def busy(self, index: int, time_ns: int) -> Context:
        """Return the context after thread `index` became busy at `time_ns`."""
        rotation = self.rotation + 1
        return replace(
            self,
            time_ns=max(self.time_ns, time_ns),
            free_mask=self.free_mask & ~(1 << index),
            rotation=rotation if rotation < len(self.processes) else 0,
        )

    def freed(self, index: int, time_ns: int) -> Context:
        """Return the context after thread `index` became free at `time_ns`."""
        time_ns = max(self.time_ns, time_ns)
        return replace(self, time_ns=time_ns, free_mask=self.free_mask | 1 << index)

    def retired(self, index: int) -> Context:
        """Return the context after thread `index` got a new process number."""
        new = (self.processes[index] + len(self.processes),)
        return replace(self, processes=self.processes[:index] + new + self.processes[index + 1 :])


class Generator(Protocol):
    """A pure description of operations (see the module's docstring)."""

    def op(self, ctx: Context) -> Step:
        """Return the next step.

        In an `Emit`, a draft without a process means any free process, and a draft without a time
        means the context's time.
        """
        ...

    def update(self, ctx: Context, event: Op) -> Generator:
        """Return the generator that replaces this one after `event`.

        `ctx` is the context just after `event`.
        """
        ...


class Emit(msgspec.Struct, frozen=True, eq=False):
    """A step with an operation: run `draft`, and ask `next` for the next step."""

    draft: Draft
    next: Generator


class Pending(msgspec.Struct, frozen=True, eq=False):
    """A step without an operation: ask `next` after the next event."""

    next: Generator


Step: TypeAlias = Emit | Pending | None


class Node(msgspec.Struct, frozen=True, eq=False):
    """The base of this package's generators, which emit drafts with process and time."""

    def update(self, ctx: Context, event: Op) -> Generator:  # noqa: ARG002  the protocol's shape
        """Ignore the event. Generators that react to events override this method."""
        return cast("Generator", self)


class Around(Node, frozen=True):
    """The base of generators that wrap another generator and pass all events on to it."""

    generator: Generator

    def op(self, ctx: Context) -> Step:
        """Return the wrapped generator's step. An emission first passes through `emitted`."""
        step = self.generator.op(ctx)
        if isinstance(step, Pending):
            return Pending(self if step.next is self.generator else self.around(step.next))
        return None if step is None else self.emitted(ctx, step)

    def emitted(self, ctx: Context, step: Emit) -> Step:  # noqa: ARG002
        """Change an emission. By default, only wrap the generator to continue with."""
        return Emit(step.draft, self.around(step.next))

    def update(self, ctx: Context, event: Op) -> Generator:
        """Update the wrapped generator; returns the wrapper around it."""
        inner = self.generator.update(ctx, event)
        return self if inner is self.generator else self.around(inner)

    def around(self, generator: Generator) -> Generator:
        return replace(self, generator=generator)


GeneratorLike: TypeAlias = (
    "Generator | Draft | Request | Sequence[GeneratorLike]"
    " | Callable[[Context], GeneratorLike] | None"
)
"""The types that `lift` and every combinator accept."""


def indices(mask: int) -> list[int]:
    """Return the positions of the bits in `mask`, ascending."""
    free = []
    while mask:
        low = mask & -mask
        free.append(low.bit_length() - 1)
        mask ^= low
    return free


def new_context(
    concurrency: int,
    rng: random.Random,
    *,
    time_ns: int = 0,
    processes: Sequence[int] | None = None,
) -> Context:
    """Make a context in which all threads are free. Raises `UsageError`.

    `processes` has one process per thread; by default thread n runs process n.
    """
    if concurrency < 1:
        raise UsageError(f"the concurrency is {concurrency}; a run needs at least one thread")
    ids = tuple(range(concurrency)) if processes is None else tuple(processes)
    for thread in range(concurrency):
        if len(ids) != concurrency or ids[thread] < 0 or ids[thread] % concurrency != thread:
            raise UsageError(
                f"the processes {[*ids]} do not fit {concurrency} threads: process i of the list "
                f"must be i plus a multiple of {concurrency}"
            )
    everything = (1 << concurrency) - 1
    return Context(time_ns, rng, ids, everything, everything)


def nanoseconds(seconds: float, what: str) -> int:
    """Convert seconds to ns. For an invalid time span, raises a `UsageError` about `what`."""
    if not 0 <= seconds < 1e9:
        raise UsageError(f"{what} is {seconds} s; it must be in 0 .. 1e9")
    return round(seconds * NS_PER_S)


def due_ns(draft: Draft) -> int:
    """Return the earliest start of an emitted draft, in ns since the start of the run."""
    time_ns = draft.time_ns
    assert time_ns is not None, "an emitted draft has a time"
    return time_ns


def complete(draft: Draft, ctx: Context) -> Draft | None:
    """Fill in a draft's process and time; `None` if no process that fits is free.

    Raises `UsageError` if the draft's process is not in this context, because the draft would wait
    forever.
    """
    process = draft.process
    if process is None:
        process = ctx.free_process()
        if process is None:
            return None
    elif not ctx.is_free(process):
        index = ctx.index_of(process)
        if ctx.processes[index] == process and ctx.all_mask >> index & 1:
            return None
        raise UsageError(
            f"the draft {draft.f!r} wants process {process!r}, which is retired or not among the "
            f"threads {ctx.threads[:10]} of its generator; leave the process out"
        )
    wanted_ns = draft.time_ns
    time_ns = ctx.time_ns if wanted_ns is None or wanted_ns < ctx.time_ns else wanted_ns
    return Draft(draft.f, draft.value, process, time_ns, draft.type, draft.together)


def sooner(
    first: tuple[Emit, int, int], second: tuple[Emit, int, int], rng: random.Random
) -> tuple[Emit, int, int]:
    """Return the earlier of two offers `(emission, weight, position)`.

    A tie is decided at random by weight, and the winner gets the sum of both weights, so that
    folding over many offers is fair. If one offer always won, the other would starve.
    """
    first_ns, second_ns = due_ns(first[0].draft), due_ns(second[0].draft)
    if first_ns != second_ns:
        return first if first_ns < second_ns else second
    weight = first[1] + second[1]
    chosen = first if rng.random() * weight < first[1] else second
    return (chosen[0], weight, chosen[2])
