"""Lists the failures of many runs by signature: when they were seen, how rare, new or gone.

A signature identifies a failure: runs that fail in the same way have the same signature. Everything
is computed from sums over runs: `signature_cells` (one row per signature and population) and
`populations`.

| answer            | content                                                                  |
|-------------------|--------------------------------------------------------------------------|
| signatures        | one row per failure: populations, first and last seen, runs since then   |
| signature_changes | with a baseline: new, known and gone failures, with the test's p-value   |
| detectability     | number of seeds that are needed to see a failure, by population          |
| detection_curves  | the probability that 1, 2, 5, ... seeds see a failure                    |

A failure that seems to be *gone* may only be rare. So Fisher's exact test compares the two labels,
in the settings that both labels have and in which the failure was ever seen. Holm's procedure
corrects for the number of signatures. No rate is computed over several populations.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from harness.verdict.known import NONE_KNOWN, KnownFailures
from harness.verdict.signature import SEPARATOR, shapes_text, split
from results.facts.schema import LIST_SEPARATOR
from results.questions.engines import answer_table
from results.statistics.estimates import ALPHA, fisher_exact, holm, wilson, zero_bound
from results.statistics.survival import found_within, seeds_for

Row = dict[str, Any]

NEW: Final = "new"
KNOWN: Final = "known"
GONE: Final = "gone"
ANY: Final = "any failure"
RULE: Final = "rule"
SIGNATURE: Final = "signature"
SEEDS: Final = (
    *(1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700),
    *(1_000, 2_000, 5_000, 10_000),
)

_KEY: Final = ("verdict", "target", "bugs", "signature")
_OF_FIRST: Final = ("checker", "rule", "first_run", "first_seed", "environment", "reason")
_SIGNATURE_COLUMNS: Final = {
    "verdict": "string",
    "signature": "string",
    "target": "string",
    "bugs": "string",
    "checker": "string",
    "rule": "string",
    "known": "string",
    "runs": "int64",
    "shapes": "string",
    "populations": "string",
    "first_run": "string",
    "first_seed": "int64",
    "environment": "string",
    "reason": "string",
    "first_day": "string",
    "first_code": "string",
    "last_day": "string",
    "last_code": "string",
    "last_run": "string",
    "days_since": "int64",
    "runs_since": "int64",
    "below_since": "float64",
}
_CHANGE_COLUMNS: Final = {
    "level": "string",
    "change": "string",
    "verdict": "string",
    "signature": "string",
    "target": "string",
    "bugs": "string",
    "populations": "string",
    "baseline_hits": "int64",
    "baseline_runs": "int64",
    "label_hits": "int64",
    "label_runs": "int64",
    "p_value": "float64",
    "p_adjusted": "float64",
    "says": "string",
    "first_run": "string",
    "first_day": "string",
    "last_day": "string",
}
_DETECTABILITY_COLUMNS: Final = {
    "population": "int64",
    "signature": "string",
    "runs": "int64",
    "hits": "int64",
    "rate": "float64",
    "low": "float64",
    "high": "float64",
    "seeds_half": "int64",
    "seeds_sure": "int64",
    "seeds_sure_low": "int64",
    "seeds_sure_high": "int64",
}
_CURVE_COLUMNS: Final = {
    "population": "int64",
    "signature": "string",
    "runs": "int64",
    "hits": "int64",
    "seeds": "int64",
    "probability": "float64",
    "low": "float64",
    "high": "float64",
}


def signatures(
    cells: Sequence[Row], days: Iterable[str | None], known: KnownFailures = NONE_KNOWN
) -> pa.Table:
    """Make one row per failure: invalid verdicts first, and among these, runs without a bug.

    `days` are the start days of all runs. `known` has the tickets of known failures.
    """
    newest = max((day for day in days if day is not None), default=None)
    rows = [_signature(key, members, newest) for key, members in _grouped(_split(cells)).items()]
    for row in rows:
        entry = known.of(row["signature"])
        row["known"] = None if entry is None else entry.words
    rows.sort(
        key=lambda row: (
            row["verdict"] != "invalid",
            row["bugs"] != "",
            -row["runs"],
            row["first_run"],
            row["signature"],
        )
    )
    return answer_table(rows, _SIGNATURE_COLUMNS)


def _split(cells: Iterable[Row]) -> list[Row]:
    """Separate each cell's shape (the kinds of the operations that failed) from its signature."""
    return [
        {**cell, "signature": text, "shape": shape}
        for cell in cells
        for text, shape in [split(cell["signature"])]
    ]


def _shapes(cells: Iterable[Row]) -> str:
    runs = Counter[str]()
    for cell in cells:
        runs[cell["shape"]] += cell["runs"]
    del runs[""]
    return shapes_text(runs)


def _grouped(cells: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell[name] for name in _KEY), []).append(cell)
    return groups


def _signature(key: tuple[str, ...], cells: Sequence[Row], newest: str | None) -> Row:
    first = min(cells, key=lambda cell: (cell["first_seed"], cell["first_run"]))
    dated = [cell for cell in cells if cell["first_started"] is not None]
    earliest = min(dated, key=lambda cell: cell["first_started"], default=None)
    latest = max(dated, key=lambda cell: cell["last_started"] or "", default=None)
    last_day = None if latest is None else latest["last_day"]
    runs_since = _runs_since(cells)
    return {
        **dict(zip(_KEY, key, strict=True)),
        **{name: first[name] for name in _OF_FIRST},
        "runs": sum(cell["runs"] for cell in cells),
        "shapes": _shapes(cells),
        "populations": _populations(cells),
        "first_day": None if earliest is None else earliest["first_day"],
        "first_code": None if earliest is None else earliest["first_code"],
        "last_day": last_day,
        "last_code": None if latest is None else latest["last_code"],
        "last_run": (latest or first)["last_run"],
        "days_since": _days(last_day, newest),
        "runs_since": runs_since,
        "below_since": zero_bound(runs_since),
    }


def _populations(cells: Iterable[Row]) -> str:
    return LIST_SEPARATOR.join(map(str, sorted({cell["population"] for cell in cells})))


def _runs_since(cells: Iterable[Row]) -> int:
    """Count the runs, of any label, after a failure's last run in the settings that had it."""
    since: dict[str, int] = {}
    for cell in cells:
        left = cell["setting_runs"] - cell["last_place"]
        since[cell["setting"]] = min(left, since.get(cell["setting"], left))
    return sum(since.values())


def _days(since: str | None, until: str | None) -> int | None:
    try:
        return (dt.date.fromisoformat(until or "") - dt.date.fromisoformat(since or "")).days
    except ValueError:
        return None


def changes(
    cells: Sequence[Row], populations: Sequence[Row], *, baseline: str, label: str
) -> pa.Table:
    """Compare the failures of two labels: which are new, known or gone in runs of `label`?

    One defect can have several signatures, because faults vary. So all failures of one rule
    are also compared together, if they have several signatures. The p-values of rules and of
    signatures are adjusted separately.
    """
    sides = {
        row["population"]: (baseline, label).index(row["label"])
        for row in populations
        if row["label"] in {baseline, label}
    }
    compared = [cell for cell in _split(cells) if cell["population"] in sides]
    by_rule = _grouped(
        [{**cell, "signature": _rule(cell), "whole": cell["signature"]} for cell in compared]
    )
    several = {
        key: group for key, group in by_rule.items() if len({cell["whole"] for cell in group}) > 1
    }
    runs: dict[tuple[str, str], int] = {}
    for row in populations:
        if row["population"] in sides:
            at = (row["setting"], row["label"])
            runs[at] = runs.get(at, 0) + row["runs"]
    rows: list[Row] = []
    for level, groups in ((RULE, several), (SIGNATURE, _grouped(compared))):
        changed: list[Row] = [
            {
                **dict(zip(_KEY, key, strict=True)),
                "level": level,
                **_change(
                    [[c for c in group if sides[c["population"]] == side] for side in (0, 1)],
                    runs,
                    (baseline, label),
                ),
            }
            for key, group in groups.items()
        ]
        for row, p in zip(changed, holm([row["p_value"] for row in changed]), strict=True):
            row["p_adjusted"] = p
            row["says"] = row["says"] or _says(row, p)
        rows += sorted(
            changed, key=lambda row: (_CHANGES[row["change"]], row["bugs"] != "", row["p_value"])
        )
    return answer_table(rows, _CHANGE_COLUMNS)


def comparable(rows: Iterable[Row]) -> list[Row]:
    """Keep the changes that can be tested: failures in settings that both labels have."""
    return [row for row in rows if row["baseline_runs"]]


def _rule(cell: Row) -> str:
    return SEPARATOR.join(part for part in (cell["checker"], cell["rule"]) if part)


def _says(row: Row, p_adjusted: float) -> str:
    if p_adjusted >= ALPHA:
        return "as before, or chance" if row["change"] == KNOWN else "may be chance"
    if row["change"] != KNOWN:
        return "more than chance"
    more = row["label_hits"] * row["baseline_runs"] > row["baseline_hits"] * row["label_runs"]
    return "more often" if more else "less often"


_CHANGES: Final = {NEW: 0, GONE: 1, KNOWN: 2}


def _change(
    hits: Sequence[Sequence[Row]],
    runs: Mapping[tuple[str, str], int],
    labels: tuple[str, str],
) -> Row:
    both = [*hits[0], *hits[1]]
    seen = {cell["setting"] for cell in both}
    shared = sorted(s for s in seen if all((s, name) in runs for name in labels))
    counts = [
        (
            sum(cell["runs"] for cell in side if cell["setting"] in shared),
            sum(runs[setting, name] for setting in shared),
        )
        for side, name in zip(hits, labels, strict=True)
    ]
    change = KNOWN if hits[0] and hits[1] else NEW if hits[1] else GONE
    first = min(hits[1] or hits[0], key=lambda cell: (cell["first_seed"], cell["first_run"]))
    days = [cell[name] for cell in both for name in ("first_day", "last_day") if cell[name]]
    without = {NEW: labels[0], GONE: labels[1], KNOWN: "one of them"}[change]
    return {
        "change": change,
        "populations": _populations(both),
        "baseline_hits": counts[0][0],
        "baseline_runs": counts[0][1],
        "label_hits": counts[1][0],
        "label_runs": counts[1][1],
        "p_value": fisher_exact(*counts[0], *counts[1]) if shared else 1.0,
        "says": "" if shared else f"no run of such a setting in {without}",
        "first_run": first["first_run"],
        "first_day": min(days, default=None),
        "last_day": max(days, default=None),
    }


def detection(cells: Sequence[Row], populations: Sequence[Row]) -> tuple[pa.Table, pa.Table]:
    """Compute `detectability` and `detection_curves`: how many seeds it takes to see a failure.

    A run counts for one failure, which determines its verdict. If a population has several
    failures, a further row covers all of them together.
    """
    runs = {row["population"]: row["runs"] for row in populations}
    runs_by: dict[int, dict[str, int]] = {}
    for cell in _split(cells):
        if cell["verdict"] == "invalid":
            of_population = runs_by.setdefault(cell["population"], {})
            of_population[cell["signature"]] = (
                of_population.get(cell["signature"], 0) + cell["runs"]
            )
    table: list[Row] = []
    curves: list[Row] = []
    for population, of_population in sorted(runs_by.items()):
        every = (
            {ANY: sum(of_population.values()), **of_population}
            if len(of_population) > 1
            else of_population
        )
        for text, hits in sorted(
            every.items(), key=lambda item: (-item[1], item[0] != ANY, item[0])
        ):
            about = {
                "population": population,
                "signature": text,
                "runs": runs[population],
                "hits": hits,
            }
            table.append({**about, **_detectability(hits, runs[population])})
            curves += [
                {**about, **found_within(n, hits, runs[population])._asdict()} for n in SEEDS
            ]
    return (
        answer_table(table, _DETECTABILITY_COLUMNS),
        answer_table(curves, _CURVE_COLUMNS),
    )


def _detectability(hits: int, runs: int) -> Row:
    interval = wilson(hits, runs)
    return {
        "rate": hits / runs,
        "low": interval.low,
        "high": interval.high,
        "seeds_half": seeds_for(hits / runs, sure=0.5),
        "seeds_sure": seeds_for(hits / runs),
        "seeds_sure_low": seeds_for(interval.high),
        "seeds_sure_high": seeds_for(interval.low),
    }
