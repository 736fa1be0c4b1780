"""From tables to the numbers of a report: every query answered, and the statistics on top.

The engine gathers cells in a pass over each large table: counts and sums of which there are few,
however many runs there are. Most questions are about cells, and are asked of a DuckDB here,
whichever engine gathered them; so nothing a run comes here but the first few rows of what lists
runs.

Queries are in `results/sql`; what they cannot say portably (intervals, ratios, tests) is added here
as further answers, so that whatever stands on the page stands in a Parquet file as well:

| answer            | what                                                                     |
|-------------------|--------------------------------------------------------------------------|
| detection_rates   | `detection` with a 95 % interval of the rate (Wilson)                     |
| clean_rates       | `clean_runs` with an interval, and what the rate is below if none failed  |
| uplift_ratios     | per nemesis and outcome: rates with and without, their ratio, an interval |
| signatures        | runs that are not valid, grouped by what they have in common              |
| regressions       | two labels compared, see `results.baseline`                               |

Nothing is added up over runs of different populations (see `results/sql/judged.sql`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from results.baseline import Comparison, Line, compare
from results.engines import DuckEngine, Engine, kind_of, query, query_names, unordered
from results.schema import LIST_SEPARATOR
from results.statistics import Sums, risk_ratio, wilson, zero_bound

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
    """All answers by name, as Arrow tables; `comparison` only with a baseline.

    With `most`, those that list runs are cut after so many rows.
    """

    tables: dict[str, Any]
    comparison: Comparison | None
    most: int | None = None

    def rows(self, name: str) -> Rows:
        """One answer as a list of dictionaries."""
        found: Rows = self.tables[name].to_pylist()
        return found

    def total(self, name: str) -> int:
        """How many rows an answer has, as far as that is known where it is cut."""
        if self.most is None or name not in {"judged", "failing_runs"}:
            return int(self.tables[name].num_rows)
        rows = self.rows("totals" if name == "judged" else "signature_cells")
        return sum(row["runs"] for row in rows)


def aggregate(
    engine: Engine, *, baseline: str | None, label: str | None, most: int | None = None
) -> Answers:
    """Answer everything; the fact tables and `verdicts` are registered with `engine` already.

    Answers with a row a run, or more, are cut after `most` rows, but for what two labels are
    compared by. Raises `UsageError` for a baseline or label that no run has.
    """
    tables: dict[str, pa.Table] = {}
    with contextlib.closing(DuckEngine()) as driver:
        for name in query_names():
            if name in _COMPARED_ONLY and baseline is None:
                continue
            found = _asked(engine, driver, name, _cut(name, baseline, most))
            if found is not None:
                tables[name] = found
                driver.take(name, found)
    rows = {name: tables[name].to_pylist() for name in _NEEDED}
    tables["detection_rates"] = _table(
        _with_rate(rows["detection"], "detected", lambda row: int(row["runs"])), _RATE_COLUMNS
    )
    tables["clean_rates"] = _table(_clean(rows["clean_runs"]), _CLEAN_COLUMNS)
    tables["uplift_ratios"] = _table(_uplift(rows), _UPLIFT_COLUMNS)
    tables["signatures"] = _table(_signatures(rows["signature_cells"]), _SIGNATURE_COLUMNS)
    comparison = None
    if baseline is not None:
        # A row a run, or more: no column that is not compared.
        compared = {
            name: tables[name].select(names).to_pylist() for name, names in _COMPARED.items()
        }
        comparison = compare(
            compared["baseline_runs"], compared["latency_by_run"], baseline=baseline, label=label
        )
        tables["regressions"] = _table(
            [msgspec.structs.asdict(line) for line in comparison.lines], _LINE_COLUMNS
        )
    return Answers(tables, comparison, most)


def _asked(engine: Engine, driver: DuckEngine, name: str, cut: str) -> pa.Table | None:
    """The answer to one query; `None` where it is only kept for others."""
    text, kind = query(name), kind_of(name)
    if kind == "of cells":
        return driver.sql(text)
    if kind == "cells":  # an engine would sort a few rows with more ado
        found = engine.sql(text)
        return found.sort_by([(column, "ascending") for column in found.column_names])
    if kind != "base":
        return engine.sql(text + cut)
    rows, order = unordered(text)
    if name == "slowest":
        engine.keep(name, text + cut if cut else rows)
        return None
    engine.keep(name, rows)
    return engine.sql(f"SELECT * FROM {name} ORDER BY {order}{cut}")  # noqa: S608


def _cut(name: str, baseline: str | None, most: int | None) -> str:
    """How many rows of an answer are wanted, in SQL."""
    whole = most is None or (baseline is not None and name in {*_COMPARED, "slowest"})
    return "" if whole or name not in _OF_RUNS else f"\nLIMIT {most}"


_OF_RUNS: Final = ("judged", "failing_runs", "slowest", "changed_verdicts", "latency_by_run")
_NEEDED: Final = ("detection", "clean_runs", "signature_cells", "exposure_cells", "downtime_cells")
_COMPARED: Final = {
    "baseline_runs": (
        *("setting", "label", "run", "environment", "workload", "asked", "bugs", "profile"),
        *("verdict", "ops", "info", "unanswered", "length_ns"),
        *("mutation_down_ns", "read_down_ns"),
    ),
    "latency_by_run": ("run", "f", "p50_ns", "p99_ns"),
}
_COMPARED_ONLY: Final = ("baseline_runs",)
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
_SIGNATURE_COLUMNS: Final = {
    "verdict": "string",
    "signature": "string",
    "target": "string",
    "bugs": "string",
    "checker": "string",
    "rule": "string",
    "runs": "int64",
    "populations": "string",
    "first_run": "string",
    "first_seed": "int64",
    "environment": "string",
    "reason": "string",
}
_UPLIFT_COLUMNS: Final = {
    "population": "int64",
    "nemesis": "string",
    "outcome": "string",
    "with_rate": "float64",
    "without_rate": "float64",
    "ratio": "float64",
    "low": "float64",
    "high": "float64",
    "runs": "int64",
    "why": "string",
}
_TYPES: Final = {"str": "string", "int": "int64", "float": "float64", "float | None": "float64"}
_LINE_COLUMNS: Final = {name: _TYPES[kind] for name, kind in Line.__annotations__.items()}


def _table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> pa.Table:
    import pyarrow as pa

    types = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64()}
    layout = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    return pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows], layout)


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


def _signatures(cells: Rows) -> Rows:
    """Failing runs by verdict, target, bugs and signature: invalid ones without bugs come first.

    A group lists runs, of which it names the populations; it measures nothing over them.
    """
    groups: dict[tuple[str, str, str, str], Rows] = {}
    for row in cells:
        key = (row["verdict"], row["target"], row["bugs"], row["signature"])
        groups.setdefault(key, []).append(row)
    found = []
    for rows in groups.values():
        first = min(rows, key=lambda row: (row["first_seed"], row["first_run"]))
        populations = sorted({row["population"] for row in rows})
        named = LIST_SEPARATOR.join(map(str, populations))
        runs = sum(row["runs"] for row in rows)
        found.append({**first, "runs": runs, "populations": named})
    # Of as many runs, those that come first where every failing run is listed.
    order = lambda row: (  # noqa: E731
        row["verdict"] != "invalid",
        row["bugs"] != "",
        -row["runs"],
        row["first_run"],
        row["signature"],
    )
    return sorted(found, key=order)


def _uplift(rows: Mapping[str, Rows]) -> Rows:
    """Ratios by population, nemesis and outcome: overall ones first, then by kind of operation."""
    cells = [
        (row["population"], row["nemesis"], rank, row["outcome"] if rank < len(_OVERALL)
         else f"{row['f']} fails or is lost", row)
        for row in (*rows["exposure_cells"], *rows["downtime_cells"])
        for rank in (_OVERALL.get(row["outcome"], len(_OVERALL)),)
    ]  # fmt: skip
    return [
        {"population": population, "nemesis": nemesis, "outcome": outcome, **_ratio_row(row)}
        for population, nemesis, _, outcome, row in sorted(cells, key=lambda cell: cell[:4])
    ]


_OVERALL: Final = {name: place for place, name in enumerate(OUTCOMES)}


def _ratio_row(row: Row) -> Row:
    found = risk_ratio(Sums(*(int(row[name]) for name in Sums._fields)))
    low, high = found.interval or (None, None)
    return {**found._asdict(), "low": low, "high": high}
