"""Runs counted by what they have in common: the verdict matrix, equal failures.

A cell counts runs by outcome and links to them. A rate has Wilson's interval of 95 %, which also
holds for 0 of 20. Rates are invalid runs of all that finished: one that is unknown was not found
guilty, and those that are broken or unfinished say nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harness.ops import Verdict
from results.serve.query import LISTS, column_of
from results.serve.run_index import OUTCOMES
from results.serve.run_table import NONE, RunTable
from results.statistics.estimates import wilson

if TYPE_CHECKING:
    from results.facts.intervals import Ints

__all__ = [
    "DIMENSIONS",
    "FINISHED",
    "Cell",
    "FailureGroup",
    "Matrix",
    "Share",
    "failures_of",
    "matrix_of",
]

DIMENSIONS: Final = (
    *("nemesis", "nemeses", "workload", "bug", "bugs", "label", "environment", "target"),
    *("profile", "name", "day", "code", "checker", "signature"),
)
SIDE_MAX: Final = 60
FINISHED: Final = tuple(verdict.value for verdict in Verdict)


class Cell(msgspec.Struct, frozen=True):
    """Runs by outcome; `total` is all of them."""

    counts: dict[str, int]

    @property
    def total(self) -> int:
        """All runs of the cell."""
        return sum(self.counts.values())

    @property
    def finished(self) -> int:
        """Those with a verdict."""
        return sum(self.counts.get(name, 0) for name in FINISHED)

    @property
    def worst(self) -> str:
        """The worst outcome that there is."""
        return next((name for name in OUTCOMES if self.counts.get(name)), "")

    def of(self, outcome: str) -> int:
        """Runs with one outcome."""
        return self.counts.get(outcome, 0)

    @property
    def share(self) -> Share:
        """Invalid runs of those that finished."""
        invalid, finished = self.of(Verdict.INVALID.value), self.finished
        if not finished:
            return Share(invalid, finished, None, None, None)
        low, high = wilson(invalid, finished)
        return Share(invalid, finished, invalid / finished, low, high)


class Share(msgspec.Struct, frozen=True):
    """A rate of invalid runs with its interval; none of none finished."""

    invalid: int
    finished: int
    rate: float | None
    low: float | None
    high: float | None


class Matrix(msgspec.Struct, frozen=True):
    """Cells by row and column; a pair that never happened has no cell."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[str, dict[str, Cell]]
    row_totals: dict[str, Cell]
    column_totals: dict[str, Cell]
    total: Cell
    notes: tuple[str, ...]


class _Side(msgspec.Struct, frozen=True):
    """A dimension of a matrix: of each count, which of the runs it is of and which value."""

    names: list[str]
    at: Ints
    codes: Ints


def matrix_of(table: RunTable, rows: Ints, down: str, across: str) -> Matrix:
    """Count runs by two dimensions.

    By `nemesis` or `bug` a run counts once for each of its own, so that sums exceed the runs.
    """
    ups, sides = _side(table, rows, down), _side(table, rows, across)
    down_totals, across_totals = (_totals(table, rows, side) for side in (ups, sides))
    notes = [
        f"a run with several counts once for each {name}: sums can exceed the number of runs"
        for name in dict.fromkeys((down, across))
        if name in LISTS
    ]
    kept_down, kept_across = _largest(down_totals), _largest(across_totals)
    for name, kept, all_of in (
        (down, kept_down, down_totals),
        (across, kept_across, across_totals),
    ):
        if len(kept) < len(all_of):
            notes.append(f"only the {SIDE_MAX} most frequent of {len(all_of)} values of {name}")
    return Matrix(
        kept_down,
        kept_across,
        _cells(table, rows[ups.at], (ups, kept_down), across, kept_across),
        {up: down_totals[up] for up in kept_down},
        {side: across_totals[side] for side in kept_across},
        Cell(table.outcomes(rows)),
        tuple(notes),
    )


def _side(table: RunTable, rows: Ints, dimension: str) -> _Side:
    """Every run once, or once for each of its nemeses or bugs."""
    import numpy as np

    texts = table.texts[column_of(dimension)]
    assert texts.codes is not None
    codes = texts.codes[rows]
    if dimension not in LISTS:
        return _Side(texts.names, np.arange(len(rows), dtype=np.int64), codes)
    assert texts.lists is not None
    items = [tuple(dict.fromkeys(names)) or (NONE,) for names in texts.lists]
    known = {name: code for code, name in enumerate(dict.fromkeys(n for own in items for n in own))}
    flat = np.array([known[name] for own in items for name in own], np.int64)
    lengths = np.array([len(own) for own in items], np.int64)
    starts = np.cumsum(lengths) - lengths
    own_lengths = lengths[codes]
    at = np.repeat(np.arange(len(rows), dtype=np.int64), own_lengths)
    within = np.arange(len(at), dtype=np.int64) - np.repeat(
        np.cumsum(own_lengths) - own_lengths, own_lengths
    )
    return _Side(list(known), at, flat[np.repeat(starts[codes], own_lengths) + within])


def _counted(table: RunTable, rows: Ints, codes: Ints, size: int) -> list[Cell]:
    """Runs by outcome of each code; `codes` are those of `rows`, below `size`."""
    import numpy as np

    outcome = table.texts["outcome"]
    assert outcome.codes is not None
    kinds = len(outcome.names)
    counts = np.bincount(codes * kinds + outcome.codes[rows], minlength=size * kinds)
    return [
        Cell({name: n for name, n in zip(outcome.names, own, strict=True) if n})
        for own in counts.reshape(size, kinds).tolist()
    ]


def _totals(table: RunTable, rows: Ints, side: _Side) -> dict[str, Cell]:
    cells = _counted(table, rows[side.at], side.codes, len(side.names))
    return {name: cell for name, cell in zip(side.names, cells, strict=True) if cell.total}


def _cells(
    table: RunTable,
    rows: Ints,
    ups: tuple[_Side, tuple[str, ...]],
    across: str,
    kept_across: tuple[str, ...],
) -> dict[str, dict[str, Cell]]:
    """The cells of the values that are kept; `rows` are the runs of the first side's counts."""
    import numpy as np

    side = _side(table, rows, across)
    up_of, side_of = (
        np.array([place.get(name, -1) for name in names], np.int64)
        for names, place in (
            (ups[0].names, {name: at for at, name in enumerate(ups[1])}),
            (side.names, {name: at for at, name in enumerate(kept_across)}),
        )
    )
    up, place = up_of[ups[0].codes[side.at]], side_of[side.codes]
    shown = (up >= 0) & (place >= 0)
    width = len(kept_across)
    size = len(ups[1]) * width
    cells = _counted(table, rows[side.at[shown]], up[shown] * width + place[shown], size)
    return {
        name: {
            other: cell
            for other, cell in zip(kept_across, cells[at * width :], strict=False)
            if cell.total
        }
        for at, name in enumerate(ups[1])
    }


def _largest(totals: dict[str, Cell]) -> tuple[str, ...]:
    """The most frequent values within the bound, then by name."""
    ordered = sorted(totals, key=lambda name: (-totals[name].total, name))
    return tuple(sorted(ordered[:SIDE_MAX]))


class FailureGroup(msgspec.Struct, frozen=True):
    """Runs that failed alike: of one target, with the same bugs switched on."""

    outcome: str
    signature: str
    target: str
    bugs: tuple[str, ...]
    runs: int
    first: str  # the key of the oldest
    first_started: str
    last_started: str
    value: str = ""  # of the dimension asked for, in which the oldest is


def failures_of(table: RunTable, rows: Ints, dimension: str | None = None) -> list[FailureGroup]:
    """Groups of runs with a signature: invalid ones first, without bugs first, then the largest."""
    signed = rows[table.texts["signature"].that(bool)[rows]]
    texts = table.texts
    groups = []
    for own in table.groups(signed, ("outcome", "signature", "target", "bugs")):
        newest, oldest = int(own[0]), int(own[-1])
        groups.append(
            FailureGroup(
                texts["outcome"].at(oldest),
                texts["signature"].at(oldest),
                texts["target"].at(oldest),
                texts["bugs"].items_at(oldest),
                len(own),
                table.key(oldest),
                texts["started"].at(oldest),
                texts["started"].at(newest),
                "" if dimension is None else texts[dimension].shown(oldest),
            )
        )
    rank = {outcome: place for place, outcome in enumerate(OUTCOMES)}
    return sorted(
        groups, key=lambda group: (rank[group.outcome], bool(group.bugs), -group.runs, group.first)
    )
