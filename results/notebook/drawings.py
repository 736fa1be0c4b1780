"""Draws latency, availability and the timeline of a run for notebooks, as in a report.

Jupyter and marimo show a `Drawing` as the result of a cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from results.facts.run_numbers import numbers_of_history
from results.report.plots import Plot, latencies, shares
from results.report.templates import templates
from results.report.time_plots import completions

if TYPE_CHECKING:
    import pandas as pd

    from harness.ops import History

_REPORT: Final = ("results.report", "store.css")
_SERVER: Final = ("results.serve", "static/serve.css")
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_OF_PAGE: Final = re.compile(r":root\b|^body\b", re.MULTILINE)
"""Selectors of the whole page. In a drawing's style, `&` (the drawing itself) replaces them."""


@dataclass(frozen=True, repr=False)
class Drawing:
    """A drawing as HTML with its own style."""

    title: str
    html: str

    def __repr__(self) -> str:
        return f"<Drawing: {self.title}>"

    def _repr_html_(self) -> str:
        return self.html


def latency(sql: Callable[[str], pd.DataFrame], by: Sequence[str], where: str) -> Drawing:
    """Draw latency quantiles of operations, one row per group of the columns `by`."""
    rows = sql(f"""
        SELECT {_label(by)} AS label, quantile_disc(latency_ns, {[*_QUANTILES.values()]}) AS ns
        FROM (SELECT *, if(len(active) = 0, 'no fault', 'fault') AS during FROM operations)
        WHERE latency_ns IS NOT NULL AND ({where}) GROUP BY ALL ORDER BY ALL
    """)  # noqa: S608 - the caller's own query
    values = list(zip(rows["label"], rows["ns"], strict=True))
    return _of_plot(latencies(f"Latency of operations by {', '.join(by)}", values, [*_QUANTILES]))


def availability(sql: Callable[[str], pd.DataFrame], by: Sequence[str], where: str) -> Drawing:
    """Draw the shares of answered reads and mutations, one row per group of the columns `by`."""
    share = "avg(answered::INT) FILTER"
    rows = sql(f"""
        SELECT {_label(by)} AS label, {share} (is_read) AS reads, {share} (NOT is_read) AS mutations
        FROM (SELECT *, unnest(if(len(active) = 0, ['no fault'], active)) AS nemesis
              FROM operations)
        WHERE {where} GROUP BY ALL ORDER BY ALL
    """)  # noqa: S608 - the caller's own query
    values = [
        (label, [None if part != part else part for part in parts])  # noqa: PLR0124 - NaN
        for label, *parts in rows.astype({"reads": float, "mutations": float}).to_numpy()
    ]
    legend = [("with", "reads"), ("without", "mutations")]
    return _of_plot(shares(f"Answered operations by {', '.join(by)}", values, legend))


def timeline(history: History, title: str) -> Drawing:
    """Draw the completed operations of a run over time, with its faults and its chaos phase."""
    numbers = numbers_of_history(history)
    plot = completions(numbers, end_s=len(numbers.seconds))
    return _drawing(title, _SERVER, "completions", plot, title)


def _label(by: Sequence[str]) -> str:
    return f"concat_ws(' · ', {', '.join(by)})"


def _of_plot(plot: Plot) -> Drawing:
    return _drawing(plot.title, _REPORT, "draw", plot)


def _drawing(title: str, style: tuple[str, str], macro: str, *values: Any) -> Drawing:
    """Make a drawing with a macro of the pages' template, and nest the page's style in it."""
    css = resources.files(style[0]).joinpath(style[1])
    macros = templates(("results.report", "")).get_template("plots.html").module
    name = f"harness-{macro}"
    text = _OF_PAGE.sub("&", css.read_text("utf-8"))
    figure = getattr(macros, macro)(*values)
    return Drawing(title, f'<div class="{name}"><style>.{name} {{ {text} }}</style>{figure}</div>')
