"""Renders the comparison as one self-contained HTML file without scripts."""

from __future__ import annotations

import math
from typing import Any, Final

from harness.errors import counted
from results.report.number_words import interval, p_value
from results.report.templates import templates
from results.twin.answer import SECTIONS, CaseTwin, Twin
from results.twin.rows import Mark, Row, Shown
from results.twin.text import headline, in_words

ROWS_MAX: Final = 400
"""The maximum number of rows of one section on the page. The JSON has all rows."""


def render(twin: Twin) -> str:
    """Render the page as HTML; raise `UsageError` if Jinja2 is missing."""
    style = "valid" if not twin.unexplained else "invalid"
    values: dict[str, Any] = {
        "twin": twin,
        "headline": headline(twin),
        "style": style if twin.compared else "unknown",
        "tiles": _tiles(twin),
        "differences": twin.rows(Mark.DIFFERS),
        "one_sided": twin.rows(Mark.ONE_SIDED),
        "rare": sorted(twin.rows(Mark.RARE), key=lambda each: each[1].p_adjusted or 0),
        "sections": SECTIONS,
        "rows_max": ROWS_MAX,
        "in_words": in_words,
        "interval": _interval,
        "line": _line,
        "scale": _scale,
        "p_value": p_value,
        "counted": counted,
        "mark_style": _mark_style,
        "counts": _counts,
    }
    places = (("results.twin", ""), ("results.report", ""))
    return templates(*places).get_template("twin.html").render(values)


def _tiles(twin: Twin) -> list[tuple[str, str, str, str]]:
    differs, open_ = twin.rows(Mark.DIFFERS), twin.unexplained
    sided, rare = twin.rows(Mark.ONE_SIDED), twin.rows(Mark.RARE)
    runs = [sum(len(case.runs[side]) for case in twin.cases) for side in (0, 1)]
    return [
        ("rows that differ", str(len(differs)), f"{twin.compared} rows compared", ""),
        (
            "not explained",
            str(len(open_)),
            "no known difference covers them",
            "invalid" if open_ else "",
        ),
        ("one-sided", str(len(sided)), f"only one side; chance explains {len(rare)} more", ""),
        (
            "cases",
            str(len(twin.cases)),
            f"{runs[0]} runs of {twin.names[0]}, {runs[1]} of {twin.names[1]}",
            "",
        ),
    ]


def _counts(case: CaseTwin) -> list[str]:
    verdicts = []
    for side in case.runs:
        names = [run.verdict for run in side]
        verdicts.append(", ".join(f"{names.count(each)} {each}" for each in dict.fromkeys(names)))
    differs, sided = case.marked(Mark.DIFFERS), case.marked(Mark.ONE_SIDED)
    open_ = [row for row in (*differs, *sided) if not row.explained_by]
    rare = case.marked(Mark.RARE)
    return [*verdicts, *(str(len(rows)) for rows in (differs, sided, open_, rare))]


def _mark_style(row: Row) -> str:
    if row.mark in {Mark.DIFFERS, Mark.ONE_SIDED}:
        return "expected" if row.explained_by else "worse"
    return "known"


def _interval(side: Shown) -> str:
    if side.quantiles:
        return interval(side.quantiles[0], side.quantiles[-1], "ns")
    if side.low is None or side.high is None or not side.of:
        return ""
    return interval(side.low, side.high, "share")


def _scale(row: Row) -> float:
    """Return the value at the right end of a row's drawing. Both sides share this scale."""
    ends = [side.quantiles[-1] for side in (row.left, row.right) if side.quantiles]
    return float(max(ends, default=1) or 1)


def _line(side: Shown, scale: float) -> tuple[float, float, float] | None:
    if side.quantiles:
        begin, middle, end = (_log(side.quantiles[at], scale) for at in (0, 1, 3))
        return begin, middle, end
    if side.share is None or side.low is None or side.high is None:
        return None
    return 100 * side.low, 100 * side.share, 100 * side.high


def _log(value: float, scale: float) -> float:
    """Return the place of a duration on a logarithmic axis from `scale`/10000 to `scale`."""
    if value <= 0:
        return 0.0
    return max(0.0, 100 * (1 + math.log10(value / scale) / 4))
