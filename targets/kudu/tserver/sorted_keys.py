"""A sorted set of keys in blocks: adding one moves a block's worth of pointers, not all of them."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import Final

_BLOCK_MAX: Final = 1024


class SortedKeys:
    """Keys in order. Every block has at least one key, and `_firsts` its first."""

    __slots__ = ("_blocks", "_firsts")

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        """All of `keys`, which need not be sorted but must differ."""
        ordered = sorted(keys)
        half = _BLOCK_MAX // 2
        self._blocks = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._firsts = [block[0] for block in self._blocks]

    def add(self, key: bytes) -> None:
        """Add a key that is not there."""
        if not self._blocks:
            self._blocks, self._firsts = [[key]], [key]
            return
        at = max(0, bisect.bisect_right(self._firsts, key) - 1)
        block = self._blocks[at]
        bisect.insort(block, key)
        if len(block) > _BLOCK_MAX:
            self._blocks[at : at + 1] = [block[: _BLOCK_MAX // 2], block[_BLOCK_MAX // 2 :]]
            self._firsts[at : at + 1] = [self._blocks[at][0], self._blocks[at + 1][0]]
        else:
            self._firsts[at] = block[0]

    def remove(self, key: bytes) -> None:
        """Remove a key that is there."""
        at = bisect.bisect_right(self._firsts, key) - 1
        block = self._blocks[at]
        del block[bisect.bisect_left(block, key)]
        if block:
            self._firsts[at] = block[0]
        else:
            del self._blocks[at], self._firsts[at]

    def since(self, start: bytes) -> Iterator[bytes]:
        """The keys from `start` on. Nothing may be added or removed meanwhile."""
        at = max(0, bisect.bisect_right(self._firsts, start) - 1)
        if at < len(self._blocks):
            block = self._blocks[at]
            yield from block[bisect.bisect_left(block, start) :]
        for block in self._blocks[at + 1 :]:
            yield from block
