"""From tables to the numbers of a report: every query answered, and the statistics on top.

Queries are in `results/sql`; what they cannot say portably (intervals, ratios, tests) is added here
as further answers, so that whatever stands on the page stands in a Parquet file as well:

| answer            | what                                                                     |
|-------------------|--------------------------------------------------------------------------|
| detection_rates   | `detection` with a 95 % interval of the rate (Wilson)                     |
| clean_rates       | `clean_runs` with an interval, and what the rate is below if none failed  |
| regressions       | two labels compared, see `results.baseline`                               |
| ...               | those of `results.failures`, `results.trends` and `results.uplift`        |

Nothing is measured over runs of different populations (see `results/sql/judged.sql`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from results.answer_table import answer_table
from results.baseline import Comparison, Line, compare
from results.engines import BASES, Engine, query, query_names
from results.failures import changes, detection, signatures
from results.statistics import wilson, zero_bound
from results.trends import Stored, costs, survival, trends
from results.uplift import by_role, ratios

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OUTCOMES", "Answers", "Rows", "aggregate"]

Row = dict[str, Any]
Rows = list[Row]

OUTCOMES: Final[dict[str, str]] = {
    "unanswered": "an operation fails without an answer of the target",
    "info": "an operation is lost to info",
    "mutations down": "a moment in which mutations are unavailable",
    "reads down": "a moment in which reads are unavailable",
}
"""What a fault can make likelier; kinds of operation follow as `F fails or is lost`."""


class Answers(msgspec.Struct, frozen=True):
    """All answers by name, as Arrow tables; `comparison` only with a baseline."""

    tables: dict[str, Any]
    comparison: Comparison | None

    def rows(self, name: str) -> Rows:
        """One answer as a list of dictionaries."""
        found: Rows = self.tables[name].to_pylist()
        return found


def aggregate(
    engine: Engine, *, baseline: str | None, label: str | None, stored: Stored | None = None
) -> Answers:
    """Answer everything; the fact tables and `verdicts` are registered with `engine` already.

    `stored` are the bytes that runs take, where that is known. Raises `UsageError` for a baseline
    or label that no run has.
    """
    tables: dict[str, pa.Table] = {}
    for name in query_names():
        if name in BASES:
            engine.keep(name, query(name))
        tables[name] = engine.sql(f"SELECT * FROM {name}" if name in BASES else query(name))  # noqa: S608
    for name in _ORDERED:
        tables[name] = engine.sql(query(name))  # a kept table has no order
    needed = (*_NEEDED, *(_COMPARED if baseline is not None else ()))  # a row a run, or more
    rows = {name: tables[name].to_pylist() for name in needed}
    tables["detection_rates"] = answer_table(
        _with_rate(rows["detection"], "detected", lambda row: int(row["runs"])), _RATE_COLUMNS
    )
    tables["clean_rates"] = answer_table(_clean(rows["clean_runs"]), _CLEAN_COLUMNS)
    tables["uplift_ratios"], tables["uplift_stratified"] = ratios(rows, rows["populations"])
    tables["uplift_by_role"] = by_role(rows["role_cells"])
    days = [cell["day"] for cell in rows["trend_cells"]]
    tables["signatures"] = signatures(rows["signature_cells"], days)
    tables["detectability"], tables["detection_curves"] = detection(
        rows["signature_cells"], rows["populations"]
    )
    for name in ("day", "code"):
        tables[f"trend_by_{name}"] = trends(rows["trend_cells"], rows["latency_trends"], name)
    tables["survival"] = survival(rows["survival_cells"])
    tables["costs"] = costs(rows["cost_cells"], stored)
    comparison = None
    if baseline is not None:
        comparison = compare(
            rows["baseline_runs"], rows["latency_by_run"], baseline=baseline, label=label
        )
        tables["regressions"] = answer_table(
            [msgspec.structs.asdict(line) for line in comparison.lines], _LINE_COLUMNS
        )
        tables["signature_changes"] = changes(
            rows["signature_cells"],
            rows["populations"],
            baseline=baseline,
            label=comparison.label,
        )
    return Answers(tables, comparison)


_ORDERED: Final = ("judged", "failing_runs")
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
    "uplift",
    "uplift_by_f",
    "uplift_time",
)
_COMPARED: Final = ("baseline_runs", "latency_by_run")
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
    found = []
    for row in rows:
        count = trials(row)
        interval = wilson(row[hits], count)
        rate = row[hits] / count if count else None
        found.append({**row, "rate": rate, "low": interval.low, "high": interval.high})
    return found


def _known(row: Row) -> int:
    return int(row["runs"] - row["unknown"])


def _clean(rows: Rows) -> Rows:
    """Trials are the runs whose verdict is known: an unknown one does not speak for the target."""
    return [
        {**row, "below": zero_bound(_known(row)) if row["invalid"] == 0 else None}
        for row in _with_rate(rows, "invalid", _known)
    ]
