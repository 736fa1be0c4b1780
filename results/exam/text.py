"""Formats the scoreboard as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from harness.cli.styles import styled, table
from harness.errors import counted
from results.exam.baseline import Comparison
from results.exam.rows import CLEAN, DEFECT, SWITCH
from results.exam.scores import KINDS, NEAR, Score, Scoreboard
from results.statistics.estimates import zero_bound

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

HEAD: Final = ("", "hits", "rate (95 %)", "first at", "CPU s", "found by", "fault", "shrunk to")
CLEAN_HEAD: Final = ("", "seeds", "invalid", "other verdicts", "CPU s")


def text_of(board: Scoreboard, comparison: Comparison | None) -> Iterator[RenderableType]:
    """Yield the scoreboard in parts: a table per kind, unfound defects, changes, and totals."""
    for kind in (SWITCH, DEFECT):
        if scores := board.of(kind):
            yield f"\n{headline(board, kind)}"
            yield table([_cells(score) for score in scores], head=HEAD, indent=2)
    if scores := board.of(CLEAN):
        yield f"\n{headline(board, CLEAN)}"
        yield table([_clean_cells(score) for score in scores], head=CLEAN_HEAD, indent=2)
    yield from _open(board)
    if comparison is not None:
        yield from _changes(comparison)
    yield f"\n{counted(board.runs, 'run')}, {board.cpu_s:.0f} CPU s, commit {board.commit}"
    if board.crashes:
        yield f"the harness crashed at {counted(board.crashes, 'clean seed')}"
    if board.cut:
        yield board.cut


def headline(board: Scoreboard, kind: str) -> str:
    """Summarize all rows of a kind in one sentence."""
    tally = board.tally(kind)
    if kind == CLEAN:
        bound = f", so the rate is below {zero_bound(tally.decided):.2%} (95 %)" * (not tally.hits)
        return (
            f"{KINDS[kind]}: {tally.hits} invalid of {counted(tally.seeds, 'seed')}"
            f" in {counted(tally.rows, 'row')}{bound}"
        )
    return (
        f"{KINDS[kind]}: {tally.detected} of {tally.rows} found, {tally.near} of them within "
        f"{NEAR} seeds"
    )


def rate_text(score: Score) -> str:
    """Format the confidence interval of a score's detection rate, in percent."""
    return f"{score.low:.0%} to {score.high:.0%}"


def why_open(score: Score) -> str:
    """Explain why a defect was not found."""
    tried = f"not in {counted(score.seeds, 'seed')}" if score.seeds else "not tried"
    return f"{tried}: {score.reason or 'no reason is recorded'}"


def _cells(score: Score) -> list[str | Text]:
    first = "" if score.first_seed is None else f"seed {score.first_seed}"
    cpu_s = score.cpu_s if score.cpu_s_to_first is None else score.cpu_s_to_first
    by = f"{score.checker} {score.rule}".strip()
    shrunk = score.shrunk
    size = (
        ""
        if shrunk is None
        else f"{counted(shrunk.faults, 'fault')}, {counted(shrunk.operations, 'op')}"
    )
    return [
        styled(score.name, "" if score.found else "bold"),
        f"{score.hits} of {score.seeds}",
        rate_text(score),
        first or "missed",
        f"{cpu_s:.1f}",
        by,
        score.fault,
        size,
    ]


def _clean_cells(score: Score) -> list[str | Text]:
    others = ", ".join(
        f"{count} {verdict}" for verdict, count in score.verdicts.items() if verdict != "invalid"
    )
    return [
        f"{score.target} {score.name}",
        str(score.seeds),
        styled(str(score.hits), "bold" if score.hits else ""),
        others,
        f"{score.cpu_s:.0f}",
    ]


def _open(board: Scoreboard) -> Iterator[RenderableType]:
    if board.missed:
        yield f"\nnot found: {len(board.missed)}"
        yield table([[score.name, why_open(score)] for score in board.missed], indent=2)
    if board.outdated:
        names = ", ".join(score.name for score in board.outdated)
        yield f"\nfound, although the ledger says why soaks cannot find them: {names}"


def _changes(comparison: Comparison) -> Iterator[RenderableType]:
    changed = len(comparison.changes)
    yield (
        f"\nbaseline: {changed} of {counted(comparison.compared, 'rate')} changed "
        "(at most 5 % of exams without any change raise an alarm)"
    )
    if changed:
        yield table(
            [
                [
                    change.after.name,
                    f"{change.before.hits} of {change.before.seeds}",
                    f"{change.after.hits} of {change.after.seeds}",
                    "worse" if change.is_worse else "better: update the baseline",
                    f"p = {change.p:.2g}",
                ]
                for change in comparison.changes
            ],
            head=("", "baseline", "now", "", ""),
            indent=2,
        )
    for words, keys in (("no longer tried", comparison.gone), ("new", comparison.new)):
        if keys:
            yield f"  {words}: {', '.join(keys)}"
