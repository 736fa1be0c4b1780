"""Finds the operations that a search can no longer place, because their table has changed since.

An operation that shows version 4 of a table cannot follow the change that made version 5. An
operation that shows a table cannot follow the table's deletion. A search that notices such an
operation at once need not try all orders of the remaining operations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from operator import or_
from typing import NamedTuple

from checkers.catalog.models.catalog import Catalog, State
from checkers.catalog.models.types import CatalogOperation, shown_by
from checkers.catalog.passes.narrowing import rank_of


class _Sights(NamedTuple):
    """Bit masks of the operations that show one table.

    `ranks` are the sorted ranks of the operations (see `rank_of`). `masks[n]` has the operations of
    the first `n` ranks. `all` also has the operations without a rank.
    """

    ranks: Sequence[int]
    masks: Sequence[int]
    all: int


class DeadEnds:
    """Tells a search which operations have become impossible after a step."""

    def __init__(self, model: Catalog, operations: Sequence[CatalogOperation]) -> None:
        self._model = model
        by_table: dict[str, list[tuple[int | None, int]]] = {}
        for position, operation in enumerate(operations):
            for table in shown_by(operation):
                by_table.setdefault(table, []).append((rank_of(table, operation), position))
        self._sights = {table: _sights(ranked) for table, ranked in by_table.items()}

    def after_step(self, before: State, after: State) -> int:
        left, reached = self._model.versions(before, after), self._model.versions(after, before)
        mask = 0
        for table in left:
            sights = self._sights.get(table)
            if sights is None:
                continue
            version = reached.get(table)
            if version is None:
                mask |= sights.all
            else:
                mask |= sights.masks[bisect_left(sights.ranks, 2 * version)]
        return mask


def _sights(ranked: Sequence[tuple[int | None, int]]) -> _Sights:
    by_rank = sorted((rank, position) for rank, position in ranked if rank is not None)
    masks = accumulate((1 << position for _, position in by_rank), or_, initial=0)
    everything = 0
    for _, position in ranked:
        everything |= 1 << position
    return _Sights([rank for rank, _ in by_rank], [*masks], everything)
