"""One generator for many keys (`jepsen.independent`): each key gets a small history of its own.

The value of every operation becomes the pair `[key, value]`, plain JSON, so that a checker can
split the history again. Inside, a generator sees values without their key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.generator.core import (
    Context,
    Emit,
    Generator,
    GeneratorLike,
    Node,
    Pending,
    Step,
    indices,
)
from harness.generator.plain import EMPTY_MAX, NOTHING, lift
from harness.generator.threads import ask_in_rotation, clients
from harness.ops import Op, OpType

__all__ = ["concurrent_keys", "sequential_keys"]


class _Keyed(Node, frozen=True):
    """A generator whose operations belong to `key`."""

    key: Any
    generator: Generator

    def op(self, ctx: Context) -> Step:
        step = self.generator.op(ctx)
        if step is None:
            return None
        rest = NOTHING if step.next is NOTHING else self._with(step.next)
        if isinstance(step, Pending):
            return Pending(rest)
        if step.draft.type is OpType.INFO:  # a sleep or a log is about no key
            return Emit(step.draft, rest)
        return Emit(step.draft.replace(value=[self.key, step.draft.value]), rest)

    def _with(self, generator: Generator) -> Generator:
        return self if generator is self.generator else _Keyed(self.key, generator)

    def update(self, ctx: Context, event: Op) -> Generator:
        pair = event.value
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or pair[0] != self.key:
            return self  # the end of an operation on another key
        plain = msgspec.structs.replace(event, value=pair[1])
        inner = self.generator.update(ctx, plain)
        return NOTHING if inner is NOTHING else self._with(inner)


class _SequentialKeys(Node, frozen=True):
    keys: Sequence[Any]
    make: Callable[[Any], GeneratorLike]
    position: int
    current: Generator

    def op(self, ctx: Context) -> Step:
        position, current = self.position, self.current
        for _ in range(EMPTY_MAX):
            step = current.op(ctx)
            if step is not None:
                rest = _SequentialKeys(self.keys, self.make, position, step.next)
                return Emit(step.draft, rest) if isinstance(step, Emit) else Pending(rest)
            position += 1
            if position >= len(self.keys):
                return None
            current = _Keyed(self.keys[position], lift(self.make(self.keys[position])))
        raise UsageError(f"the generators of {EMPTY_MAX} keys in a row are empty")

    def update(self, ctx: Context, event: Op) -> Generator:
        current = self.current.update(ctx, event)
        if current is self.current:
            return self
        return _SequentialKeys(self.keys, self.make, self.position, current)


def sequential_keys(keys: Sequence[Any], make: Callable[[Any], GeneratorLike]) -> Generator:
    """`make(key)` for one key after the other, on all threads. `range(10**9)` is endless enough."""
    return _SequentialKeys(keys, make, -1, NOTHING)


class _ConcurrentKeys(Node, frozen=True):
    group_size: int
    keys: Sequence[Any]
    make: Callable[[Any], GeneratorLike]
    masks: tuple[int, ...] = ()  # by group
    groups: tuple[int, ...] = ()  # by thread bit: its group
    states: tuple[Generator, ...] = ()  # by group
    used: int = 0  # keys handed out
    all_mask: int = 0

    def _begun(self, ctx: Context) -> _ConcurrentKeys:
        threads = indices(ctx.all_mask)
        size = self.group_size
        if len(threads) % size:
            raise UsageError(
                f"concurrent_keys wants groups of {size} threads, but there are {len(threads)}; "
                f"make the concurrency a multiple of {size}"
            )
        bits = ctx.roster.bits
        starts = range(0, len(threads), size)
        masks = tuple(sum(bits[i] for i in threads[s : s + size]) for s in starts)
        groups = [0] * len(bits)
        for order, index in enumerate(threads):
            groups[index] = order // size
        count = min(len(masks), len(self.keys))
        states = tuple(self._keyed(i) if i < count else NOTHING for i in range(len(masks)))
        return _ConcurrentKeys(
            size, self.keys, self.make, masks, tuple(groups), states, count, ctx.all_mask
        )

    def _keyed(self, position: int) -> Generator:
        key = self.keys[position]
        return _Keyed(key, lift(self.make(key)))

    def op(self, ctx: Context) -> Step:
        if ctx.all_mask != self.all_mask:
            return self._begun(ctx).op(ctx)
        states, used = list(self.states), self.used

        def ask(group: int) -> Step:
            nonlocal used
            inner = ctx.restrict(self.masks[group])
            for _ in range(EMPTY_MAX):
                step = states[group].op(inner)
                if step is not None or used >= len(self.keys):
                    if step is None:
                        states[group] = NOTHING
                    return step
                states[group] = self._keyed(used)
                used += 1
            raise UsageError(f"the generators of {EMPTY_MAX} keys in a row are empty")

        step, group, others = ask_in_rotation(ctx, ctx.free_mask, ask, self.groups)
        for other, answer in others:
            if isinstance(answer, Pending):
                states[other] = answer.next
        if step is not None:
            states[group] = step.next
            return Emit(step.draft, self._with(states, used))
        left = used < len(self.keys) or any(state is not NOTHING for state in states)
        return Pending(self._with(states, used)) if left else None

    def _with(self, states: Sequence[Generator], used: int) -> Generator:
        return _ConcurrentKeys(
            self.group_size,
            self.keys,
            self.make,
            self.masks,
            self.groups,
            tuple(states),
            used,
            self.all_mask,
        )

    def update(self, ctx: Context, event: Op) -> Generator:
        index = ctx.index_of(event.process)
        if ctx.all_mask != self.all_mask or not ctx.all_mask & ctx.roster.bits[index]:
            return self
        group = self.groups[index]
        old = self.states[group]
        new = old.update(ctx.restrict(self.masks[group]), event)
        if new is old:
            return self
        return self._with((*self.states[:group], new, *self.states[group + 1 :]), self.used)


def concurrent_keys(
    group_size: int, keys: Sequence[Any], make: Callable[[Any], GeneratorLike]
) -> Generator:
    """Groups of `group_size` client threads, each on a key of its own.

    A group whose key's generator is exhausted takes the next key. Raises `UsageError` when the
    client threads do not divide into groups.
    """
    if group_size < 1:
        raise UsageError(f"concurrent_keys got groups of {group_size}; it must be 1 or more")
    return clients(_ConcurrentKeys(group_size, keys, make)) if len(keys) else NOTHING
