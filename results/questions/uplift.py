"""Measures the effect of faults on failures: per population, pooled, and by role and phase.

| answer            | content                                                                 |
|-------------------|-------------------------------------------------------------------------|
| uplift_ratios     | per population, nemesis, outcome: rates with and without a fault, ratio |
| uplift_stratified | the same, pooled over populations of one target, workload and bugs      |
| uplift_by_role    | the same by phase and role of a fault's targets; also compares roles    |

Pooled ratios use the Mantel-Haenszel method (`results.statistics.strata`). Each population is a
stratum, so runs with different labels, profiles or options are never compared with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from results.facts.schema import LIST_SEPARATOR
from results.questions.engines import answer_table
from results.statistics.estimates import Ratio, Sums, risk_ratio
from results.statistics.strata import pooled_ratio

Row = dict[str, Any]
Rows = list[Row]
Cells = dict[tuple[int, str, int, str], Sums]

OUTCOMES: Final[dict[str, str]] = {
    "unanswered": "an operation fails without an answer of the target",
    "info": "an operation is lost to info",
    "mutations down": "a moment in which mutations are unavailable",
    "reads down": "a moment in which reads are unavailable",
}
"""Outcomes that a fault may make likelier, in words. Each kind F also has `F fails or is lost`."""
_OVERALL: Final = tuple(OUTCOMES)
_RATIO: Final = {
    **dict.fromkeys(("with_rate", "without_rate", "ratio", "low", "high"), "float64"),
    "runs": "int64",
    "why": "string",
}
_UPLIFT_COLUMNS: Final = {
    "population": "int64",
    "nemesis": "string",
    "outcome": "string",
    **_RATIO,
}
_GROUP: Final = ("target", "environment", "workload", "bugs")
_POOLED_COLUMNS: Final = {
    **dict.fromkeys((*_GROUP, "nemesis", "outcome"), "string"),
    "ratio": "float64",
    "low": "float64",
    "high": "float64",
    "strata": "int64",
    "runs": "int64",
    "agree_p": "float64",
    "why": "string",
    "populations": "string",
}
_ROLE_COLUMNS: Final = {
    "population": "int64",
    "nemesis": "string",
    "phase": "string",
    "role": "string",
    "against": "string",
    "n": "int64",
    "m": "int64",
    **_RATIO,
}


def ratios(rows: Mapping[str, Rows], populations: Sequence[Row]) -> tuple[pa.Table, pa.Table]:
    """Compute `uplift_ratios` and `uplift_stratified`, with the outcomes of `OUTCOMES` first."""
    cells = _cells(rows)
    overall = [
        {
            "population": population,
            "nemesis": nemesis,
            "outcome": outcome,
            **_told(risk_ratio(sums)),
        }
        for (population, nemesis, _, outcome), sums in sorted(cells.items())
    ]
    return answer_table(overall, _UPLIFT_COLUMNS), _pooled(cells, populations)


def _cells(rows: Mapping[str, Rows]) -> Cells:
    cells: Cells = {}
    for row in (*rows["exposure_cells"], *rows["downtime_cells"]):
        outcome = row["outcome"]
        rank = _OVERALL.index(outcome) if outcome in _OVERALL else len(_OVERALL)
        words = outcome if outcome in _OVERALL else f"{row['f']} fails or is lost"
        sums = Sums(*(int(row[name]) for name in Sums._fields))
        cells[row["population"], row["nemesis"], rank, words] = sums
    return cells


def _pooled(cells: Cells, populations: Sequence[Row]) -> pa.Table:
    of = {row["population"]: tuple(row[name] for name in _GROUP) for row in populations}
    groups: dict[tuple[Any, ...], list[tuple[int, Sums]]] = {}
    for (population, nemesis, rank, outcome), sums in sorted(cells.items()):
        key = (*of[population], nemesis, rank, outcome)
        groups.setdefault(key, []).append((population, sums))
    rows = []
    for (*group, nemesis, _, outcome), strata in groups.items():
        ratio = pooled_ratio([sums for _, sums in strata])
        if ratio.strata < 2:
            continue
        low, high = ratio.interval or (None, None)
        numbers = LIST_SEPARATOR.join(str(population) for population, _ in strata)
        rows.append(
            {
                **dict(zip(_GROUP, group, strict=True)),
                "nemesis": nemesis,
                "outcome": outcome,
                "populations": numbers,
                **ratio._asdict(),
                "low": low,
                "high": high,
            }
        )
    return answer_table(rows, _POOLED_COLUMNS)


def by_role(cells: Sequence[Row]) -> pa.Table:
    """Compute `uplift_by_role` from rows of `role_cells` with trials with and without a fault."""
    rows = []
    for row in cells:
        if not (row["n"] and row["m"]):
            continue
        sums = Sums(*(row[name] for name in Sums._fields))
        rows.append({**row, **_told(risk_ratio(sums))})
    return answer_table(rows, _ROLE_COLUMNS)


def _told(found: Ratio) -> Row:
    low, high = found.interval or (None, None)
    return {**found._asdict(), "low": low, "high": high}
