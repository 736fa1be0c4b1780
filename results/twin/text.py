"""Formats the comparison as text: rows that differ or, on request, every row of every case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from harness.cli.styles import table
from harness.errors import clipped, counted
from results.report.number_words import NOTHING, duration, p_value, share
from results.twin.answer import SECTIONS, CaseTwin, Twin
from results.twin.rows import Mark, Row, Shown

if TYPE_CHECKING:
    from rich.console import RenderableType

DIFFERENCES_MAX: Final = 60
LABEL_MAX: Final = 60


def headline(twin: Twin) -> str:
    """Return one line: how many rows differ, and how many of these have no explanation."""
    differs = len(twin.rows(Mark.DIFFERS)) + len(twin.rows(Mark.ONE_SIDED))
    if not twin.compared:
        return "nothing was compared: no run showed an operation"
    if not differs:
        return f"no difference shown in {counted(twin.compared, 'row')}"
    left = len(twin.unexplained)
    words = "all explained" if not left else f"{left} not explained"
    return f"{counted(differs, 'difference')} in {counted(twin.compared, 'row')}: {words}"


def text_of(twin: Twin, *, every: bool = False) -> Iterator[RenderableType]:
    """Yield the rows that differ or are one-sided; with `every`, all rows of all cases."""
    head = ("", *twin.names, "p", "")
    for case in twin.cases:
        yield f"\n{case.case}: {case.about}"
        runs = " and ".join(
            f"{name} {counted(len(side), 'run')}"
            for name, side in zip(twin.names, case.runs, strict=True)
        )
        yield f"  {runs}; {_marks(case)}"
        yield from (f"  note: {note}" for note in case.notes)
        if every:
            rows = printed = [row for section in SECTIONS for row in case.of(section)]
        else:
            rows = [row for row in case.rows if row.mark in {Mark.DIFFERS, Mark.ONE_SIDED}]
            printed = rows[:DIFFERENCES_MAX]
        if printed:
            yield table([_cells(row) for row in printed], head=head, indent=2)
        if len(rows) > len(printed):
            yield f"  ... and {len(rows) - len(printed)} more, on the page"
    yield f"\n{headline(twin)}"


def _marks(case: CaseTwin) -> str:
    rows = [row for row in case.rows if row.mark is not Mark.NOT_TESTED]
    return (
        f"{len(case.marked(Mark.DIFFERS))} of {counted(len(rows), 'row')} differ, "
        f"{len(case.marked(Mark.ONE_SIDED))} one-sided, {len(case.marked(Mark.RARE))} too rare"
    )


def _cells(row: Row) -> tuple[str, ...]:
    words = row.mark.value + (f", known: {row.explained_by}" if row.explained_by else "")
    p = "" if row.p_adjusted is None else p_value(row.p_adjusted)
    return (clipped(row.name, LABEL_MAX), in_words(row.left), in_words(row.right), p, words)


def in_words(side: Shown) -> str:
    """Describe one side of a row in a few words."""
    if side.words:
        return "; ".join(side.words)
    if side.quantiles:
        _, median, _, most = side.quantiles
        return f"{duration(median)} (n {side.of}, most {duration(most)})"
    if side.hits is None or not side.of:
        return NOTHING
    return f"{side.hits} of {side.of}, {share(side.share)}"
