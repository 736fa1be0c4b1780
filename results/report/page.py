"""The page of a store: one HTML file without scripts, network or other files.

The content security policy allows only the page's own style. So even a text that the templates
failed to escape (`results.report.templates`) could run no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from results.report.number_words import count, duration
from results.report.section import Section
from results.report.summary import Summary, repeats_in_words
from results.report.templates import templates

PROBLEMS_MAX: Final = 50
PROBLEM_CHARS_MAX: Final = 400
_COUNTED: Final = ("ok", "fail", "refused", "info", "faults")


def render(summary: Summary, sections: Sequence[Section], queries: Sequence[str]) -> str:
    """The HTML text of the page; equal arguments give equal pages."""
    values: dict[str, Any] = {
        "summary": summary,
        "repeats_in_words": repeats_in_words,
        "sections": sections,
        "queries": queries,
        "tiles": _tiles(summary),
        "problems": summary.problems[:PROBLEMS_MAX],
        "problems_not_shown": summary.problems_total - len(summary.problems[:PROBLEMS_MAX]),
        "problem_chars_max": PROBLEM_CHARS_MAX,
    }
    return templates(("results.report", "")).get_template("store.html").render(values)


def _tiles(summary: Summary) -> list[tuple[str, str]]:
    """The numbers at the top of the page, with their names."""
    return [
        *((name, count(n)) for name, n in summary.verdicts.items()),
        *([("not judged", count(summary.not_judged))] if summary.not_judged else []),
        *([("crashed", count(summary.crashed))] if summary.crashed else []),
        ("time in runs", duration(summary.length_ns)),
        ("operations", count(summary.ops)),
        *((name, count(getattr(summary, name))) for name in _COUNTED),
        ("changes of leader", count(summary.elections)),
    ]
