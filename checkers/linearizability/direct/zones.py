"""Decides histories of registers whose values are unique, by zones (Gibbons and Korach 1997).

If only one operation can have written a value, the register held the value for a single interval,
from this operation to the last operation that observed the value. A compare-and-set ends the
interval of one value and begins the interval of the next value. So values that compare-and-sets
connect form a *block*, which also occupies a single interval. The operations of a block are ranked
(write, reads, compare-and-set, reads, ...). Block A must come before block B if an operation of A
returned before an operation of B was called. A legal order exists if and only if

* within a block, no operation was called after an operation of a higher rank returned;
* there are no two blocks of which each must come before the other.

An operation of unknown outcome took effect if its value was observed. Otherwise it is left out.
Failed compare-and-sets are inserted last. If they do not fit, the search decides. If an observed
value may have been written twice, the method can find contradictions, but cannot prove the history
valid.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from checkers.linearizability.direct.decision import Decision, Insertion

METHOD: Final = "the zones of unique values"
LINKS_MAX: Final = 16
"""How many compare-and-sets a core may leave out between two of its operations.

The verifier can find these among the optional operations.
"""


class _Nothing:
    """The type of `NOTHING`, which means "no value", since a register may hold `None`."""


NOTHING: Final = _Nothing()


class Access(NamedTuple):
    """One operation on a register.

    The operation observed the value `needs`, wrote the value `makes`, and found that the register
    did not hold the value `excludes`. `end` is infinite if the operation never returned.
    """

    id: int
    call: float
    end: float
    needs: Hashable = NOTHING
    makes: Hashable = NOTHING
    excludes: Hashable = NOTHING


@dataclass(slots=True)
class _Block:
    """The operations on values that compare-and-sets connect, each with its rank.

    `first_end` is minus infinity if the block contains the initial value, which the register held
    before any call.
    """

    entries: list[tuple[int, Access]] = field(default_factory=list)
    initial: bool = False
    first_end: float = math.inf
    last_call: float = -math.inf
    first: Access | None = None
    last: Access | None = None

    def add(self, rank: int, access: Access) -> None:
        self.entries.append((rank, access))
        if access.end < self.first_end:
            self.first_end, self.first = access.end, access
        if access.call > self.last_call:
            self.last_call, self.last = access.call, access

    @property
    def is_forward(self) -> bool:
        """Whether the register surely held values of the block from `first_end` to `last_call`.

        Gibbons and Korach call this interval a forward zone.
        """
        return self.first_end < self.last_call


class _ContradictionError(Exception):
    """Some operations contradict each other; `core` has their ids."""

    def __init__(self, accesses: Iterable[Access]) -> None:
        super().__init__("no legal order")
        self.core = tuple(sorted({access.id for access in accesses}))


def decide_register(initial: Hashable, accesses: Sequence[Access]) -> Decision | None:
    """Return the verdict on a register that holds `initial` at first.

    Returns `None` if only a search can decide.
    """
    try:
        history = _History(initial, accesses)
        blocks = history.blocks()
        for block in blocks:
            history.check_ranks(block)
        history.check_pairs(blocks)
    except _ContradictionError as error:
        return Decision(method=METHOD, core=error.core)
    if not history.is_exact:
        return None
    blocks.sort(key=lambda block: (min(block.first_end, block.last_call), block.is_forward))
    order = [
        access
        for block in blocks
        for _, access in sorted(block.entries, key=lambda entry: (entry[0], entry[1].call))
    ]
    placed = _place(initial, order, [a for a in accesses if a.excludes is not NOTHING])
    return None if placed is None else Decision(method=METHOD, order=placed)


class _History:
    """The operations on a register, indexed by the values that they write and observe."""

    def __init__(self, initial: Hashable, accesses: Sequence[Access]) -> None:
        self._initial = initial
        self._makers: dict[Hashable, list[Access]] = {}
        for access in accesses:
            if access.makes is not NOTHING:
                self._makers.setdefault(access.makes, []).append(access)
        self._known = [a for a in accesses if a.end < math.inf and a.excludes is NOTHING]
        self._witness: dict[Hashable, Access] = {}
        """Maps each value to the operation whose return first proved that the register held the
        value.
        """
        self._kept = [*self._known, *self._observe()]
        self.is_exact = all(map(self._is_unique, self._witness))

    def _is_unique(self, value: Hashable) -> bool:
        return len(self._makers.get(value, ())) + (value == self._initial) == 1

    def _observe(self) -> list[Access]:
        """Store in `_witness`, for each value, the first operation to show that the register held
        it.

        Returns the operations of unknown outcome that must have taken effect.
        """
        forced: list[Access] = []
        for access in sorted(self._known, key=lambda access: access.end):
            value = access.needs
            while value is not NOTHING and value not in self._witness:
                makers = self._makers.get(value, ())
                is_late = all(maker.call > access.end for maker in makers)
                if value != self._initial and is_late:
                    # when `access` returned, no operation can have written the value
                    raise _ContradictionError([access])
                self._witness[value] = access
                if not self._is_unique(value) or not makers or makers[0].end < math.inf:
                    break
                forced.append(makers[0])
                value = makers[0].needs
        return forced

    def _shown(self, access: Access) -> Access:
        """Return `access` or, if its answer was lost, an operation that observed its effect."""
        return access if access.end < math.inf else self._witness[access.makes]

    def blocks(self) -> list[_Block]:
        """Group the operations on unique values into blocks. Every other write is its own block."""
        readers: dict[Hashable, list[Access]] = {}
        following: dict[Hashable, Access] = {}
        loose: list[Access] = []
        for access in self._kept:
            needs_unique = access.needs is not NOTHING and self._is_unique(access.needs)
            if access.makes is NOTHING:
                if needs_unique:
                    readers.setdefault(access.needs, []).append(access)
                continue
            if needs_unique:
                other = following.setdefault(access.needs, access)
                if other is not access:
                    raise _ContradictionError([self._shown(other), self._shown(access)])
            elif not self._is_unique(access.makes):
                loose.append(access)
        starts = [a for a in self._kept if self._is_start(a)]
        blocks = [self._chain(start.makes, start, readers, following) for start in starts]
        if self._is_unique(self._initial):
            blocks.append(self._chain(self._initial, None, readers, following))
        for access in loose:
            blocks.append(_Block())
            blocks[-1].add(0, access)
        if following:
            observers = [self._shown(access) for access in following.values()]
            raise _ContradictionError([min(observers, key=lambda access: access.end)])
        return [block for block in blocks if block.entries]

    def _is_start(self, access: Access) -> bool:
        """Whether `access` begins a block: it makes a unique value, and needs no unique value."""
        if access.makes is NOTHING or not self._is_unique(access.makes):
            return False
        return access.needs is NOTHING or not self._is_unique(access.needs)

    def _chain(
        self,
        value: Hashable,
        maker: Access | None,
        readers: dict[Hashable, list[Access]],
        following: dict[Hashable, Access],
    ) -> _Block:
        """Build the block that begins with `value`.

        Removes the compare-and-sets of the block from `following`.
        """
        block = _Block(initial=maker is None)
        rank = 0
        while True:
            if maker is not None:
                block.add(rank, maker)
            if not self._is_unique(value):
                break
            for reader in readers.get(value, ()):
                block.add(rank + 1, reader)
            maker = following.pop(value, None)
            if maker is None:
                break
            value, rank = maker.makes, rank + 2
        if block.initial and block.entries:
            block.first_end, block.first = -math.inf, None
        return block

    def check_ranks(self, block: _Block) -> None:
        """Raise `_ContradictionError` if two operations of the block contradict their ranks.

        No operation may be called after an operation of a higher rank returned.
        """
        entries = sorted(block.entries, key=lambda entry: -entry[0])
        first_end, first = math.inf, None
        pending: list[Access] = []
        rank_before = -1
        for rank, access in entries:
            if rank != rank_before:
                for later in pending:
                    if later.end < first_end:
                        first_end, first = later.end, later
                pending, rank_before = [], rank
            if access.call > first_end:
                assert first is not None, "a finite `first_end` is the end of `first`"
                links = self._links(block, [first, access])
                # If `access` is the write on which the value that `first` observed depends, `first`
                # alone is a contradiction, since it returned before this write was called.
                is_maker = access.makes is not NOTHING and not links
                core = [first] if is_maker else [first, self._shown(access)]
                raise _ContradictionError([*core, *links])
            pending.append(access)

    def check_pairs(self, blocks: Iterable[_Block]) -> None:
        """Raise `_ContradictionError` if each of two blocks must come before the other."""
        forward = sorted((b for b in blocks if b.is_forward), key=lambda block: block.first_end)
        for before, after in itertools.pairwise(forward):
            if after.first_end < before.last_call:
                raise self._clash(before, after)
        starts = [block.first_end for block in forward]
        for block in blocks:
            # Forward zones are disjoint here. Only the last zone that begins before the block's
            # last call can contain the block.
            at = bisect.bisect_left(starts, block.last_call) - 1
            if not block.is_forward and at >= 0 and block.first_end < forward[at].last_call:
                raise self._clash(forward[at], block)

    def _clash(self, one: _Block, other: _Block) -> _ContradictionError:
        core: list[Access] = []
        for block in (one, other):
            ends = [self._shown(a) for a in (block.first, block.last) if a is not None]
            core += [*ends, *self._links(block, ends)]
        return _ContradictionError(core)

    def _links(self, block: _Block, ends: Sequence[Access]) -> list[Access]:
        """Return the compare-and-sets that a core needs between two operations of a block.

        Returns an empty list if there are only a few, since the verifier finds these by itself.
        """
        ids = {access.id for access in ends}
        ranks = [rank for rank, access in block.entries if access.id in ids]
        if not ranks or max(ranks) - min(ranks) <= 2 * LINKS_MAX:
            return []
        return [
            access
            for rank, access in block.entries
            if access.makes is not NOTHING
            and min(ranks) < rank < max(ranks)
            and access.end < math.inf
        ]


def _place(
    initial: Hashable, order: Sequence[Access], failed: Sequence[Access]
) -> tuple[int, ...] | None:
    """Insert each failed compare-and-set into the first gap of `order` that allows it.

    Returns operation ids, or `None` if a failed compare-and-set fits nowhere.
    """
    if not failed:
        return tuple([access.id for access in order])
    held = [initial]  # the value of the register in each gap between operations
    for access in order:
        held.append(held[-1] if access.makes is NOTHING else access.makes)
    following = [len(held)] * len(
        held
    )  # for each gap, the next gap in which the register holds another value
    for at in range(len(held) - 2, -1, -1):
        following[at] = at + 1 if held[at] != held[at + 1] else following[at + 1]
    insertion = Insertion(
        [access.id for access in order],
        [access.call for access in order],
        [access.end for access in order],
    )
    for access in sorted(failed, key=lambda access: access.call):
        gap = insertion.low(access.call)
        if held[gap] == access.excludes:
            gap = following[gap]
        if not insertion.put(access.id, access.end, gap):
            return None
    return insertion.order()
