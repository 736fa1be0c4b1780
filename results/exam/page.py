"""Renders the scoreboard as one self-contained HTML file without scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from results.exam.baseline import Comparison
from results.exam.rows import CLEAN, DEFECT, SWITCH
from results.exam.scores import KINDS, NEAR, Score, Scoreboard
from results.exam.text import headline, rate_text, why_open
from results.exam.trend import Exam
from results.report.templates import templates
from results.statistics.estimates import zero_bound

SHOWN_MAX: Final = 60
"""The maximum number of exams in the drawn trend; only the latest are drawn."""
WIDTH: Final = 640
HEIGHT: Final = 130
SPARK_WIDTH: Final = 72
SPARK_HEIGHT: Final = 16


class Tile(msgspec.Struct, frozen=True):
    """A number at the top of the page: its name, its text, and an explanation."""

    name: str
    text: str
    words: str
    style: str = ""


class Curve(msgspec.Struct, frozen=True):
    """One line in the chart of the trend: a share per exam, as points in pixels, with titles."""

    name: str
    style: str
    line: str
    points: tuple[tuple[float, float, str], ...]


def render(board: Scoreboard, comparison: Comparison | None, exams: Sequence[Exam]) -> str:
    """Render the page as HTML.

    `exams` are all exams of the trend, oldest first; the last is this exam. Raises `UsageError` if
    Jinja2 is missing.
    """
    latest = exams[-SHOWN_MAX:]
    values: dict[str, Any] = {
        "board": board,
        "verdict": _verdict(board, comparison),
        "tiles": _tiles(board),
        "tables": [(kind, headline(board, kind), board.of(kind)) for kind in (SWITCH, DEFECT)],
        "clean": board.of(CLEAN),
        "clean_headline": headline(board, CLEAN),
        "missed": board.missed,
        "comparison": comparison,
        "curves": _curves(latest),
        "exams": latest,
        "spark": lambda score: _spark(score, latest),
        "rate_text": rate_text,
        "why_open": why_open,
        "width": WIDTH,
        "height": HEIGHT,
        "spark_width": SPARK_WIDTH,
        "spark_height": SPARK_HEIGHT,
    }
    places = (("results.exam", ""), ("results.report", ""))
    return templates(*places).get_template("exam.html").render(values)


def _verdict(board: Scoreboard, comparison: Comparison | None) -> tuple[str, str]:
    if board.blamed:
        return "invalid", "a clean profile is blamed"
    if comparison is not None and comparison.changes:
        return "invalid", "rates differ from the baseline"
    if board.crashes:
        return "unknown", "the harness crashed at a clean profile"
    if board.cut:
        return "unknown", "incomplete"
    return "valid", "passed"


def _tiles(board: Scoreboard) -> list[Tile]:
    tiles = []
    for kind in (SWITCH, DEFECT):
        tally = board.tally(kind)
        if tally.rows:
            words = f"{tally.near} within {NEAR} seeds"
            tiles.append(Tile(f"{KINDS[kind]} found", f"{tally.detected} of {tally.rows}", words))
    costs = sorted(
        score.cpu_s_to_first
        for kind in (SWITCH, DEFECT)
        for score in board.of(kind)
        if score.cpu_s_to_first is not None
    )
    if costs:
        words = f"median; the most expensive took {costs[-1]:.0f} s"
        tiles.append(Tile("CPU to the first detection", f"{costs[len(costs) // 2]:.1f} s", words))
    clean = board.tally(CLEAN)
    if clean.rows:
        words = f"in {clean.seeds} seeds of {clean.rows} clean profiles"
        if not clean.hits:
            words += f": the rate is below {zero_bound(clean.decided):.2%} (95 %)"
        tiles.append(Tile("false alarms", str(clean.hits), words, "invalid" if clean.hits else ""))
    tiles.append(Tile("cost", f"{board.cpu_s / 60:.0f} CPU min", f"{board.runs} runs"))
    return tiles


def _curves(exams: Sequence[Exam]) -> list[Curve]:
    shares: list[tuple[str, str, Callable[[Exam], tuple[int, int]]]] = [
        ("switches found", "q0", lambda exam: (exam.switches.detected, exam.switches.rows)),
        (
            f"switches found within {NEAR} seeds",
            "q1",
            lambda exam: (exam.switches.near, exam.switches.rows),
        ),
        ("planted defects found", "q2", lambda exam: (exam.defects.detected, exam.defects.rows)),
    ]
    curves = []
    for name, style, share_of in shares:
        points = []
        for place, exam in enumerate(exams):
            part, whole = share_of(exam)
            if whole:
                x = WIDTH * (place + 0.5) / len(exams)
                y = HEIGHT * (1 - part / whole)
                points.append((x, y, f"{exam.commit}, {exam.made}: {part} of {whole} {name}"))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
        if points:
            curves.append(Curve(name, style, line, tuple(points)))
    return curves


def _spark(score: Score, exams: Sequence[Exam]) -> str:
    rates = [
        (place, hits / seeds)
        for place, exam in enumerate(exams)
        for hits, seeds in [exam.rates.get(score.key, (0, 0))]
        if seeds
    ]
    if len(rates) < 2:
        return ""
    step = SPARK_WIDTH / (len(exams) - 1)
    return " ".join(
        f"{place * step:.1f},{(SPARK_HEIGHT - 2) * (1 - rate) + 1:.1f}" for place, rate in rates
    )
