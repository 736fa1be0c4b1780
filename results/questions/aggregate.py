"""Computes the numbers of a report: answers every query, then adds statistics.

In one pass over each large table, the engine (DuckDB or Spark) makes *cells*: counts and sums, with
few rows for any number of runs. Most questions only read cells; a DuckDB in this process answers
them, whichever engine made the cells. So this process receives rows about single runs only for
lists of runs, and only the first rows of each list.

The queries are in `results/questions/sql`. SQL cannot compute intervals, ratios and tests portably,
so this module adds them as further answers. So every number of the page is also in a Parquet file:

| answer            | content                                                                  |
|-------------------|--------------------------------------------------------------------------|
| detection_rates   | `detection` with a 95 % interval of the rate (Wilson)                     |
| clean_rates       | `clean_runs` with an interval, and an upper bound if none failed          |
| regressions       | two labels compared, see `results.questions.baseline`                     |
| ...               | the answers of the modules `failures`, `trends` and `uplift`              |

A population is the runs of one label whose cases differ only in the seed. No measurement mixes runs
of different populations (`results/questions/sql/judged.sql`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa

from harness.verdict.known import NONE_KNOWN, KnownFailures
from results.questions.baseline import (
    Comparison,
    Line,
    compare,
    rows_of,
)
from results.questions.engines import DuckEngine, Engine, Extent, answer_table, kind_of, query
from results.questions.failures import changes, detection, signatures
from results.questions.ignored import NONE_IGNORED, Ignored
from results.questions.trends import Stored, costs, survival, trends
from results.questions.uplift import by_role, ratios
from results.statistics.estimates import wilson, zero_bound

Row = dict[str, Any]
Rows = list[Row]


class Answers(msgspec.Struct, frozen=True):
    """All answers, as Arrow tables by name. Without a baseline, `comparison` is `None`.

    Lists of runs are cut after `most` rows, unless `most` is `None`.
    """

    tables: dict[str, Any]
    comparison: Comparison | None
    most: int | None = None
    known_failures: KnownFailures = NONE_KNOWN

    def rows(self, name: str) -> Rows:
        rows: Rows = self.tables[name].to_pylist()
        return rows

    def total(self, name: str) -> int:
        """Return an answer's number of rows; for lists of runs, the number before the cut."""
        if self.most is None or name not in {"judged", "failing_runs"}:
            return int(self.tables[name].num_rows)
        rows = self.rows("totals" if name == "judged" else "signature_cells")
        return sum(row["runs"] for row in rows)


def aggregate(
    engine: Engine,
    *,
    baseline: str | None,
    label: str | None,
    most: int | None = None,
    stored: Stored | None = None,
    known: KnownFailures = NONE_KNOWN,
    ignored: Ignored = NONE_IGNORED,
    asking: Callable[[int, int], None] = lambda _done, _of: None,
) -> Answers:
    """Answer all questions from the tables of `engine`.

    Answers with one or more rows per run are cut after `most` rows, except comparisons of two
    labels. `stored` has the sizes of runs in bytes, if known. `known` lists failures that have
    tickets. The comparison of labels ignores the parts of settings in `ignored`. Before each
    question, `asking` is called with the number of answered questions and the total. Raises
    `UsageError` for a baseline or label that no run has.
    """
    tables: dict[str, pa.Table] = {}
    extent = Extent(most, baseline is not None)
    with contextlib.closing(DuckEngine()) as driver:
        names = list(extent.names())
        for number, name in enumerate(names):
            asking(number, len(names))
            of_cells = kind_of(name) == "of cells"
            answer = driver.sql(query(name)) if of_cells else engine.answer(name, extent)
            if answer is not None:
                tables[name] = answer
                driver.take(name, answer)
    rows = {name: tables[name].to_pylist() for name in _NEEDED}
    tables["detection_rates"] = answer_table(
        _with_rate(rows["detection"], "detected", lambda row: int(row["runs"])), _RATE_COLUMNS
    )
    tables["clean_rates"] = answer_table(_clean(rows["clean_runs"]), _CLEAN_COLUMNS)
    tables["uplift_ratios"], tables["uplift_stratified"] = ratios(rows, rows["populations"])
    tables["uplift_by_role"] = by_role(rows["role_cells"])
    days = [cell["day"] for cell in rows["trend_cells"]]
    tables["signatures"] = signatures(rows["signature_cells"], days, known)
    tables["detectability"], tables["detection_curves"] = detection(
        rows["signature_cells"], rows["populations"]
    )
    for name in ("day", "code"):
        tables[f"trend_by_{name}"] = trends(rows["trend_cells"], rows["latency_trends"], name)
    tables["survival"] = survival(rows["survival_cells"])
    tables["costs"] = costs(rows["cost_cells"], stored)
    comparison = None
    if baseline is not None:
        # These tables have one or more rows per run, so keep only the columns to compare.
        compared = {name: rows_of(tables[name], names) for name, names in _COMPARED.items()}
        comparison = compare(
            compared["baseline_runs"],
            compared["latency_by_run"],
            baseline=baseline,
            label=label,
            ignored=ignored,
        )
        tables["regressions"] = answer_table(
            [msgspec.structs.asdict(line) for line in comparison.lines], _LINE_COLUMNS
        )
        tables["signature_changes"] = changes(
            ignored.of_failures(rows["signature_cells"]),
            [{**row} for row in ignored.of(rows["populations"])],
            baseline=baseline,
            label=comparison.label,
        )
    return Answers(tables, comparison, most, known)


_NEEDED: Final = (
    "detection",
    "clean_runs",
    "cost_cells",
    "latency_trends",
    "populations",
    "role_cells",
    "signature_cells",
    "survival_cells",
    "trend_cells",
    "downtime_cells",
    "exposure_cells",
)
_COMPARED: Final = {
    "baseline_runs": (
        *("setting", "label", "run", "environment", "workload", "asked", "bugs", "profile"),
        *("verdict", "ops", "info", "unanswered", "length_ns"),
        *("mutation_down_ns", "read_down_ns"),
    ),
    "latency_by_run": ("run", "f", "p50_ns", "p99_ns"),
}
_RATE_COLUMNS: Final = {
    "bug": "string",
    "population": "int64",
    "runs": "int64",
    "detected": "int64",
    "unknown": "int64",
    "rate": "float64",
    "low": "float64",
    "high": "float64",
    "length_ns": "int64",
    "runs_to_first": "int64",
    "ns_to_first": "int64",
    "first_run": "string",
}
_CLEAN_COLUMNS: Final = {
    "population": "int64",
    "runs": "int64",
    "invalid": "int64",
    "unknown": "int64",
    "rate": "float64",
    "low": "float64",
    "high": "float64",
    "below": "float64",
    "length_ns": "int64",
}
_TYPES: Final = {"str": "string", "int": "int64", "float": "float64", "float | None": "float64"}
_LINE_COLUMNS: Final = {name: _TYPES[kind] for name, kind in Line.__annotations__.items()}


def _with_rate(rows: Iterable[Row], hits: str, trials: Callable[[Row], int]) -> Rows:
    changed = []
    for row in rows:
        count = trials(row)
        interval = wilson(row[hits], count)
        rate = row[hits] / count if count else None
        changed.append({**row, "rate": rate, "low": interval.low, "high": interval.high})
    return changed


def _known(row: Row) -> int:
    return int(row["runs"] - row["unknown"])


def _clean(rows: Rows) -> Rows:
    """Add failure rates. Runs with an unknown verdict are not successes, so they do not count."""
    return [
        {**row, "below": zero_bound(_known(row)) if row["invalid"] == 0 else None}
        for row in _with_rate(rows, "invalid", _known)
    ]
