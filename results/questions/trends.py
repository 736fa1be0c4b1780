"""Computes outcomes by day and by code version, and the costs of runs, from sums over runs.

| answer         | content                                                                     |
|----------------|-----------------------------------------------------------------------------|
| trend_by_day   | per population and day: failing share with interval, operations, latencies   |
| trend_by_code  | the same for each version of the code, in the order of their first run        |
| survival       | the share of runs without a failure after n operations (Kaplan-Meier)        |
| costs          | real time, CPU time and bytes by label, profile and nemesis                  |

The failing share is computed over the runs whose verdict is known. `costs` may add up runs of many
populations, because costs describe the harness and not the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from results.facts.schema import LIST_SEPARATOR
from results.questions.engines import answer_table
from results.statistics.estimates import wilson
from results.statistics.survival import kaplan_meier

Row = dict[str, Any]
Stored = Mapping[tuple[Any, ...], int]
"""Stored bytes by target, label and day (as text). These three partition a lake."""

NO: Final = {name: f"no {name}" for name in ("label", "profile", "nemesis")}
"""The names of the groups of runs without a label, profile or nemesis."""
_SUMS: Final = (
    *("runs", "valid", "permitted", "unknown", "invalid", "ops", "ok", "length_ns"),
    *("mutation_down_ns", "read_down_ns"),
)
_LATENCIES: Final = ("p50_ns", "p99_ns")
_TREND_COLUMNS: Final = {
    **dict.fromkeys(_SUMS, "int64"),
    **dict.fromkeys(("rate", "low", "high", "ok_per_s", "mutation_down", "read_down"), "float64"),
    **dict.fromkeys(_LATENCIES, "int64"),
    "first_started": "string",
}
_SURVIVAL_COLUMNS: Final = {
    "population": "int64",
    "ops": "int64",
    "at_risk": "int64",
    "failed": "int64",
    "survival": "float64",
    "low": "float64",
    "high": "float64",
    "until": "int64",
}
_SPENT: Final = ("runs", "timed", "wall_ns", "cpu_ns", "length_ns", "ops", "lines")
_COST_COLUMNS: Final = {
    "by": "string",
    "value": "string",
    **dict.fromkeys((*_SPENT, "bytes", "run_wall_ns", "run_cpu_ns", "run_bytes"), "int64"),
    "share": "float64",
}


def trends(cells: Sequence[Row], latencies: Sequence[Row], dimension: str) -> pa.Table:
    """Compute the trend by `dimension` (`day` or `code`). Runs without this value do not count.

    `latencies` are rows of `latency_trends`. Only rows over all kinds of operations are used.
    """
    took = {
        (row["population"], row["value"]): row
        for row in latencies
        if row["dimension"] == dimension and not row["f"]
    }
    groups: dict[tuple[int, str], list[Row]] = {}
    for cell in cells:
        if cell[dimension] is not None:
            groups.setdefault((cell["population"], cell[dimension]), []).append(cell)
    rows = []
    for (population, value), members in groups.items():
        row: Row = {name: sum(cell[name] for cell in members) for name in _SUMS}
        row |= {"population": population, dimension: value}
        row["first_started"] = min(cell["first_started"] for cell in members)
        decided = row["runs"] - row["unknown"]
        interval = wilson(row["invalid"], decided)
        row |= {"rate": row["invalid"] / decided if decided else None}
        row |= {"low": interval.low, "high": interval.high}
        length_ns = row["length_ns"]
        row["ok_per_s"] = row["ok"] * 1e9 / length_ns if length_ns else None
        for kind in ("mutation", "read"):
            row[f"{kind}_down"] = row[f"{kind}_down_ns"] / length_ns if length_ns else None
        took_ns = took.get((population, value), {})
        row |= {name: took_ns.get(name) for name in _LATENCIES}
        rows.append(row)
    order = ("population", "first_started") if dimension == "code" else ("population", "day")
    rows.sort(key=lambda row: tuple(row[name] for name in (*order, dimension)))
    return answer_table(rows, {"population": "int64", dimension: "string", **_TREND_COLUMNS})


def survival(cells: Sequence[Row]) -> pa.Table:
    """Compute survival curves: one row per population and number of operations until a failure.

    The last share of a curve is valid up to `until`, the number of operations of the longest run.
    """
    groups: dict[int, list[Row]] = {}
    for cell in cells:
        groups.setdefault(cell["population"], []).append(cell)
    rows = []
    for population, members in sorted(groups.items()):
        until = max(cell["ops"] for cell in members)
        for step in kaplan_meier((cell["ops"], cell["failed"], cell["ended"]) for cell in members):
            low, high = step.interval or (None, None)
            rows.append(
                {
                    "population": population,
                    "ops": step.at,
                    "at_risk": step.at_risk,
                    "failed": step.failed,
                    "survival": step.survival,
                    "low": low,
                    "high": high,
                    "until": until,
                }
            )
    return answer_table(rows, _SURVIVAL_COLUMNS)


def costs(cells: Sequence[Row], stored: Stored | None) -> pa.Table:
    """Compute costs by label, profile and nemesis. A run with several nemeses counts for each.

    The bytes of a lake's partition are divided among its runs in proportion to their history lines.
    """
    lines: dict[tuple[Any, ...], int] = {}
    for cell in cells:
        lines[_partition(cell)] = lines.get(_partition(cell), 0) + cell["lines"]
    keys: tuple[tuple[str, Callable[[Row], list[str]]], ...] = (
        ("all", lambda _: ["all runs"]),
        ("label", lambda cell: [cell["label"] or NO["label"]]),
        ("profile", lambda cell: [cell["profile"] or NO["profile"]]),
        ("nemesis", lambda cell: (cell["nemeses"] or NO["nemesis"]).split(LIST_SEPARATOR)),
    )
    whole = sum(cell["wall_ns"] or 0 for cell in cells)
    rows: list[Row] = []
    for by, values_of in keys:
        groups: dict[str, list[Row]] = {}
        for cell in cells:
            for value in values_of(cell):
                groups.setdefault(value, []).append(cell)
        spent = [_spent(by, value, group, lines, stored, whole) for value, group in groups.items()]
        rows += sorted(spent, key=lambda row: (-row["wall_ns"], row["value"]))
    return answer_table(rows, _COST_COLUMNS)


def _partition(cell: Row) -> tuple[Any, ...]:
    return cell["target"], cell["label"], cell["day"]


def _spent(
    by: str,
    value: str,
    cells: Sequence[Row],
    lines: Mapping[tuple[Any, ...], int],
    stored: Stored | None,
    whole: int,
) -> Row:
    row: Row = {name: sum(cell[name] or 0 for cell in cells) for name in _SPENT}
    row |= {"by": by, "value": value, "bytes": None, "run_bytes": None}
    if stored is not None:
        share = sum(
            stored.get(_partition(cell), 0) * cell["lines"] / (lines[_partition(cell)] or 1)
            for cell in cells
        )
        row |= {"bytes": round(share), "run_bytes": round(share / row["runs"])}
    row["run_wall_ns"] = row["wall_ns"] // row["timed"] if row["timed"] else None
    row["run_cpu_ns"] = row["cpu_ns"] // row["runs"]
    row["share"] = row["wall_ns"] / whole if whole else None
    return row
