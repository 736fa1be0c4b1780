"""The page of a store: one HTML file without scripts, network or anything beside it.

Jinja2 with autoescape on and undefined names as errors. The content security policy allows nothing
but the page's own style, so even text that slipped through escaping could do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import Any, Final

from harness.errors import UsageError
from results.report.content import Section
from results.report.format import count, duration
from results.report.summary import Summary, repeats_in_words

__all__ = ["render"]

PROBLEMS_MAX: Final = 50
PROBLEM_CHARS_MAX: Final = 400


def render(summary: Summary, sections: Sequence[Section], queries: Sequence[str]) -> str:
    """The page's text; equal arguments give equal pages."""
    try:
        import jinja2
    except ImportError as error:
        raise UsageError(
            "pages need Jinja2, which is not installed: pip install 'catalog-harness[report]'"
        ) from error

    def load(name: str) -> str | None:
        file = resources.files("results.report") / name
        return file.read_text(encoding="utf-8") if file.is_file() else None

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(load),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
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
    return environment.get_template("store.html").render(values)


def _tiles(summary: Summary) -> list[tuple[str, str]]:
    """The numbers at the top."""
    return [
        *((name, count(n)) for name, n in summary.verdicts.items()),
        *([("crashed", count(summary.crashed))] if summary.crashed else []),
        ("time in runs", duration(summary.length_ns)),
        ("operations", count(summary.ops)),
        ("ok", count(summary.ok)),
        ("fail", count(summary.fail)),
        ("refused", count(summary.refused)),
        ("info", count(summary.info)),
        ("faults", count(summary.faults)),
        ("changes of leader", count(summary.elections)),
    ]
