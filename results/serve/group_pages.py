"""The pages about many runs: the verdict matrix, the trends, two labels side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from results.serve.drawing import total_plots, trend_plots
from results.serve.groups import DIMENSIONS, failures_of, matrix_of
from results.serve.labels import compare_labels
from results.serve.library import Library
from results.serve.over_time import ORDERED, TREND_DIMENSIONS, totals_of, trends_of
from results.serve.page import Page
from results.serve.query import BadQuery, Query, matching, parse_query
from results.serve.run_index import OUTCOMES
from results.serve.run_table import NONE

__all__ = ["labels", "matrix", "trends"]

MEASURE_S: Final = 2.0
NEW_SHOWN_MAX: Final = 40
LABELS_SHOWN_MAX: Final = 60


def matrix(library: Library, query_text: str) -> Page:
    """Outcomes by two dimensions."""
    query, also = parse_query(query_text, also=("down", "across"))
    down = _dimension(also["down"], "nemesis", "down", DIMENSIONS)
    across = _dimension(also["across"], "workload", "across", DIMENSIONS)
    table = library.table()
    rows = matching(table, query)
    made = matrix_of(table, rows, down, across)
    context = {
        "query": query,
        "down": down,
        "across": across,
        "dimensions": DIMENSIONS,
        "outcomes": OUTCOMES,
        "matrix": made,
        "notes": (*table.notes, *made.notes),
        "has_report": library.has_report(),
    }
    data = {
        "down": down,
        "across": across,
        "runs": len(rows),
        "cells": {
            up: {side: cell.counts for side, cell in cells.items()}
            for up, cells in made.cells.items()
        },
        "totals": {
            "down": {name: cell.counts for name, cell in made.row_totals.items()},
            "across": {name: cell.counts for name, cell in made.column_totals.items()},
            "all": made.total.counts,
        },
        "notes": context["notes"],
    }
    return Page("matrix.html", context, data)


def _dimension(given: list[str], default: str, name: str, known: Sequence[str]) -> str:
    value = next((text for text in reversed(given) if text), default)
    if value not in known:
        raise BadQuery(f"{name} is {value!r}; it is one of {', '.join(known)}")
    return value


def trends(library: Library, query_text: str) -> Page:
    """Failure rate, rate of operations and latency over labels, days or versions of the code."""
    query, also = parse_query(query_text, also=("by",))
    table = library.table()
    rows = matching(table, query)
    several = len(list(table.groups(rows, ("label",)))) > 1
    by = _dimension(also["by"], "label" if several else "day", "by", TREND_DIMENSIONS)
    failures = failures_of(table, rows, by)
    totals, cut = totals_of(table, rows, by, failures)
    found, more = trends_of(table, rows, by)
    paces, told = library.paces(table, [own for _, own in found], time_limit_s=MEASURE_S)
    points = [
        msgspec.structs.replace(
            point, measured=pace.measured, ok_per_s=pace.ok_per_s, p99_ns=pace.p99_ns
        )
        for (point, _), pace in zip(found, paces, strict=True)
    ]
    notes = [*table.notes, *cut]
    new = sorted(failures, key=lambda group: group.first_started, reverse=True)
    context = {
        "query": query,
        "by": by,
        "dimensions": TREND_DIMENSIONS,
        "totals": totals,
        "total_plots": total_plots(totals, joined=by in ORDERED),
        "new": new[:NEW_SHOWN_MAX],
        "new_cut": max(0, len(new) - NEW_SHOWN_MAX),
        "points": points,
        "plots": trend_plots(points, library.pace_words, joined=by in ORDERED),
        "pace_note": library.pace_note,
        "point_notes": [*more, *told],
        "notes": notes,
        "runs": len(rows),
        "has_report": library.has_report(),
        "labels": sorted(table.texts["label"].names)[:LABELS_SHOWN_MAX] if several else [],
    }
    data = {
        "by": by,
        "totals": totals,
        "new": new[:NEW_SHOWN_MAX],
        "points": points,
        "notes": [*notes, *more, *told],
    }
    return Page("trends.html", context, data)


def labels(library: Library, query: Query, names: Sequence[str]) -> Page:
    """Two labels: how often runs of the same setting fail, and how."""
    if len(names) != 2 or names[0] == names[1]:
        raise BadQuery(
            f"a comparison is of two labels, and these are given: {', '.join(names)}; write "
            f"label=A&label=B ({NONE} for runs without one)"
        )
    table = library.table()
    chosen = [matching(table, Query({**query.filters, "label": name})) for name in names]
    for name, rows in zip(names, chosen, strict=True):
        if not len(rows):
            raise BadQuery(f"no run here has the label {name!r}")
    found = compare_labels(table, chosen[0], chosen[1])
    context = {
        "query": query,
        "names": names,
        "sides": [Query({**query.filters, "label": name}) for name in names],
        "found": found,
        "notes": table.notes,
        "outcomes": OUTCOMES,
    }
    return Page("labels.html", context, {"labels": names, "comparison": found})
