"""Renders a report as one self-contained HTML file without scripts.

The content security policy allows only the page's own style. So no script could run even if a
template failed to escape a text.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from results.questions.aggregate import Answers
from results.report.number_words import duration
from results.report.populations import Populations
from results.report.section import Section
from results.report.summary import EXPECTED, Summary, repeats_in_words
from results.report.templates import templates

PROBLEMS_MAX: Final = 50
PROBLEM_CHARS_MAX: Final = 400
OPEN_ROWS_MAX: Final = 12
"""A section's first table is initially unfolded if it has at most this many rows."""


def render(
    summary: Summary, answers: Answers, sections: Sequence[Section], queries: Sequence[str]
) -> str:
    """Render the page as HTML. Equal arguments give equal pages."""
    values: dict[str, Any] = {
        "summary": summary,
        "repeats_in_words": repeats_in_words,
        "sections": sections,
        "queries": queries,
        "bar": _bar(summary),
        "tiles": _tiles(answers),
        "of": Populations(answers.rows("populations")),
        "problems": summary.problems[:PROBLEMS_MAX],
        "problems_not_shown": summary.problems_total - len(summary.problems[:PROBLEMS_MAX]),
        "problem_chars_max": PROBLEM_CHARS_MAX,
        "open_rows_max": OPEN_ROWS_MAX,
    }
    return templates(("results.report", "")).get_template("store.html").render(values)


class Tile(msgspec.Struct, frozen=True):
    """A number at the top of the page: its name, its text, and an explanation."""

    name: str
    text: str
    words: str


def _bar(summary: Summary) -> list[tuple[str, int, str, float, float]]:
    """Return the parts of the verdict bar, each as CSS class, runs, words, start % and width %."""
    verdicts = summary.verdicts
    parts = [(name, verdicts[name], name) for name in ("valid", "permitted", "unknown")]
    parts += [
        (EXPECTED, summary.expected, "invalid with a bug, as expected"),
        ("invalid", verdicts["invalid"] - summary.expected, "invalid"),
        ("unknown", summary.not_judged, "not judged"),
        ("crash", summary.crashed, "crashed"),
    ]
    scale = 100 / (sum(runs for _, runs, _ in parts) or 1)
    ends = itertools.accumulate(runs for _, runs, _ in parts)
    return [
        (kind, runs, words, (end - runs) * scale, runs * scale)
        for (kind, runs, words), end in zip(parts, ends, strict=True)
        if runs or kind in {"valid", "invalid"}
    ]


def _tiles(answers: Answers) -> list[Tile]:
    of = Populations(answers.rows("populations"))
    failures = [row for row in answers.rows("signatures") if row["verdict"] == "invalid"]
    real = [row for row in failures if not row["bugs"]]
    tracked = sum(row["known"] is not None for row in real)
    with_bug = len(failures) - len(real)
    more = f"signatures, and {with_bug} with a bug" if with_bug else "signatures without a bug"
    tiles = [Tile("failures", f"{len(real) - tracked} new, {tracked} known", more)]
    outages = answers.rows("outages")
    if outages:
        row = max(outages, key=lambda row: row["longest_ns"])
        under = row["active"] or "no fault"
        words = f"of {row['kind']}s under {under}: {of.words(row['population'])}"
        tiles.append(Tile("longest outage", duration(row["longest_ns"]), words))
    latencies = [row for row in answers.rows("latency_by_f") if row["p99_ns"] is not None]
    if latencies:
        row = max(latencies, key=lambda row: row["p99_ns"])
        words = f"of {row['f']}: {of.words(row['population'])}"
        tiles.append(Tile("worst p99", duration(row["p99_ns"]), words))
    return tiles
