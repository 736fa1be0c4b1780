"""From tables to the numbers of a report: every query answered, and the statistics on top.

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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from results.baseline import Comparison, Line, compare
from results.engines import BASES, Engine, query, query_names
from results.schema import LIST_SEPARATOR
from results.statistics import risk_ratio, wilson, zero_bound

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


def aggregate(engine: Engine, *, baseline: str | None, label: str | None) -> Answers:
    """Answer everything; the fact tables and `verdicts` are registered with `engine` already.

    Raises `UsageError` for a baseline or label that no run has.
    """
    tables: dict[str, pa.Table] = {}
    for name in query_names():
        if name in BASES:
            engine.keep(name, query(name))
        tables[name] = engine.sql(f"SELECT * FROM {name}" if name in BASES else query(name))  # noqa: S608
    tables["judged"] = engine.sql(query("judged"))  # a kept table has no order
    needed = (*_NEEDED, *(_COMPARED if baseline is not None else ()))  # a row a run, or more
    rows = {name: tables[name].to_pylist() for name in needed}
    tables["detection_rates"] = _table(
        _with_rate(rows["detection"], "detected", lambda row: int(row["runs"])), _RATE_COLUMNS
    )
    tables["clean_rates"] = _table(_clean(rows["clean_runs"]), _CLEAN_COLUMNS)
    tables["uplift_ratios"] = _table(_uplift(rows), _UPLIFT_COLUMNS)
    tables["signatures"] = _table(_signatures(rows["failing_runs"]), _SIGNATURE_COLUMNS)
    comparison = None
    if baseline is not None:
        comparison = compare(
            rows["baseline_runs"], rows["latency_by_run"], baseline=baseline, label=label
        )
        tables["regressions"] = _table(
            [msgspec.structs.asdict(line) for line in comparison.lines], _LINE_COLUMNS
        )
    return Answers(tables, comparison)


_NEEDED: Final = (
    "detection",
    "clean_runs",
    "failing_runs",
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


def _signatures(failing: Rows) -> Rows:
    """Failing runs by verdict, target, bugs and signature: invalid ones without bugs come first.

    A group lists runs, of which it names the populations; it measures nothing over them.
    """
    groups: dict[tuple[str, str, str, str], Rows] = {}
    for row in failing:
        text = row["signature"] or "no verdict"
        key = (row["verdict"], row["target"], row["bugs"], text)
        groups.setdefault(key, []).append(row)
    order = sorted(
        groups.items(), key=lambda item: (item[0][0] != "invalid", item[0][2] != "", -len(item[1]))
    )
    found = []
    for (verdict, target, bugs, text), rows in order:
        first = min(rows, key=lambda row: (row["seed"], row["run"]))
        found.append(
            {
                "verdict": verdict,
                "signature": text,
                "target": target,
                "bugs": bugs,
                "checker": first["checker"],
                "rule": first["rule"],
                "runs": len(rows),
                "populations": LIST_SEPARATOR.join(
                    str(number) for number in sorted({row["population"] for row in rows})
                ),
                "first_run": first["run"],
                "first_seed": first["seed"],
                "reason": first["reason"],
            }
        )
    return found


def _uplift(rows: Mapping[str, Rows]) -> Rows:
    """Ratios by population, nemesis and outcome: overall ones first, then by kind of operation."""
    cells: dict[tuple[int, str, int, str], list[tuple[int, int, int, int]]] = {}

    def add(rank: int, outcome: str, row: Row, hits: str, trials: str) -> None:
        cells.setdefault((row["population"], row["nemesis"], rank, outcome), []).append(
            (
                row[f"{hits}_with"],
                row[f"{trials}_with"],
                row[f"{hits}_without"],
                row[f"{trials}_without"],
            )
        )

    for row in rows["uplift"]:
        add(0, "unanswered", row, "unanswered", "n")
        add(1, "info", row, "info", "n")
    for row in rows["uplift_time"]:
        add(2, "mutations down", row, "mutation", "ns")
        add(3, "reads down", row, "read", "ns")
    for row in rows["uplift_by_f"]:
        add(4, f"{row['f']} fails or is lost", row, "bad", "n")
    return [
        {"population": population, "nemesis": nemesis, "outcome": outcome, **_ratio_row(counts)}
        for (population, nemesis, _, outcome), counts in sorted(cells.items())
    ]


def _ratio_row(counts: Sequence[tuple[int, int, int, int]]) -> Row:
    found = risk_ratio(counts)
    low, high = found.interval or (None, None)
    return {**found._asdict(), "low": low, "high": high}
