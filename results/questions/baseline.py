"""Compares two labels: did anything get better or worse, or is there no evidence?

A label is the name that a user gave to some runs, for example to the runs of one nightly build.
Only runs of the same *setting* (a case without its seed) are compared. Settings that only one label
has are left out, and counted. A comparison may ignore parts of a setting (`Ignored`), for example
the bugs. In each setting:

* Shares of runs (invalid, unknown) use Fisher's exact test and Wilson's intervals. If a bug is
  switched on, an invalid run is a detection, and more detections are better.
* For rates, unavailable time and latency percentiles, each run has one number, and the rank-sum
  test compares the runs. Rates are shown as the mean over runs with Student's interval, and
  latencies as the median over runs with the interval from order statistics.

Holm's procedure adjusts all p-values of the table together: if nothing changed, the chance that
*any* line says worse or better is at most 5 %. The price is that small changes need many runs: "no
evidence" does not mean "the same".
"""

from __future__ import annotations

import bisect
import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from statistics import fmean, stdev
from typing import Any, Final

import msgspec
import pyarrow as pa

from harness.errors import UsageError
from results.facts.setting import IGNORABLE
from results.questions.ignored import NONE_IGNORED, Ignored
from results.statistics.estimates import (
    ALPHA,
    fisher_exact,
    holm,
    median_interval,
    nearest_rank,
    rank_sum,
    student_quantile,
    wilson,
)

WORSE: Final = "worse"
BETTER: Final = "better"
NO_EVIDENCE: Final = "no evidence"
_ORDER: Final = {WORSE: 0, BETTER: 1, NO_EVIDENCE: 2}
_LABELS_SHOWN_MAX: Final = 20
_RATES: Final = (
    ("unanswered operations", "unanswered", "ops"),
    ("operations lost to info", "info", "ops"),
    ("mutations unavailable", "mutation_down_ns", "length_ns"),
    ("reads unavailable", "read_down_ns", "length_ns"),
)
"""Metrics with their two columns: the numerator and the denominator of the rate."""
_PARTS: Final = {
    "environment": "environments",
    "workload": "workloads",
    "asked": "nemeses",
    "bugs": "bugs",
    "profile": "profiles",
}
"""Columns that describe a setting, and their names in a sentence."""
_PERCENTILES: Final = (("p50_ns", "p50"), ("p99_ns", "p99"))
_ROWS_AT_ONCE: Final = 10_000

Row = Mapping[str, Any]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one setting for two labels. `*_low` and `*_high` are the interval's ends."""

    setting: str
    metric: str
    unit: str  # "share", "rate" or "ns"
    baseline_runs: int
    label_runs: int
    baseline_value: float
    baseline_low: float | None
    baseline_high: float | None
    label_value: float
    label_low: float | None
    label_high: float | None
    p_value: float
    p_adjusted: float
    verdict: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of two labels: its lines, with evidence first, and counts of skipped runs."""

    baseline: str
    label: str
    lines: tuple[Line, ...]
    settings: int
    differs: str  # what differs between the settings of the two labels; empty if nothing does
    ignorable: tuple[str, ...]  # values for `--ignore`: parts that differ, or are already ignored
    baseline_runs_left_out: int
    label_runs_left_out: int

    @property
    def worse(self) -> int:
        return sum(line.verdict == WORSE for line in self.lines)


class _Side:
    """The runs of one label in one setting, reduced to counts and a few floats per run."""

    def __init__(self, first: Row) -> None:
        self.first = first
        self.values: dict[str, set[str]] = {field: set() for field in _PARTS}
        self.runs = 0
        self.verdicts: Counter[str] = Counter()
        self.rates: dict[str, array[float]] = {name: array("d") for name, _, _ in _RATES}
        self.latencies: dict[tuple[str, str], array[float]] = {}

    def add(self, row: Row) -> None:
        """Add one run, or a row that counts `runs` equal runs. Such a row has no rates."""
        count = row.get("runs")
        self.runs += 1 if count is None else count
        self.verdicts[row["verdict"]] += 1 if count is None else count
        for field, values in self.values.items():
            values.add(row[field] or "none")
        if count is None:
            for name, part, whole in _RATES:
                if row[whole]:
                    self.rates[name].append(row[part] / row[whole])

    def add_latencies(self, row: Row) -> None:
        for column, _ in _PERCENTILES:
            values = self.latencies.setdefault((row["f"], column), array("d"))
            values.append(row[column])


def compare(
    runs: Iterable[Row],
    latencies: Iterable[Row],
    *,
    baseline: str,
    label: str | None,
    ignored: Ignored = NONE_IGNORED,
) -> Comparison:
    """Compare the runs of `label` (`None`: the only other label) with the runs of `baseline`.

    Rows are consumed as they arrive and not kept. Memory per run: 40 bytes, plus the id, plus 16
    bytes per kind of operation. `runs` may also hold rows of `run_cells`, each of which represents
    several equal runs.
    """
    of_runs: dict[str, _Side] = {}
    all_sides: dict[str, dict[str, _Side]] = {}
    for row in ignored.of(runs):
        of_setting = all_sides.setdefault(row["setting"], {})
        side = of_setting.get(row["label"])
        if side is None:
            side = of_setting[row["label"]] = _Side(row)
        side.add(row)
        if "run" in row:
            of_runs[row["run"]] = side
    label = chosen_label((name for names in all_sides.values() for name in names), baseline, label)
    for row in latencies:
        if row["run"] in of_runs:
            of_runs[row["run"]].add_latencies(row)
    sides = {
        setting: {name: side for name, side in names.items() if name in {baseline, label}}
        for setting, names in all_sides.items()
        if not names.keys().isdisjoint({baseline, label})
    }
    lines: list[Line] = []
    left_out = {baseline: 0, label: 0}
    settings = 0
    named = [(_name(names, ignored), names) for names in sides.values()]
    for name, names in sorted(named, key=lambda item: item[0]):
        if len(names) < 2:
            for missing, missed in names.items():
                left_out[missing] += missed.runs
            continue
        settings += 1
        lines += _lines(name, names[baseline], names[label], "bugs" not in ignored.parts)
    differs, fields = _difference(sides.values(), baseline, label)
    return Comparison(
        baseline=baseline,
        label=label,
        lines=tuple(_judged(lines)),
        settings=settings,
        differs=f"{differs}{ignored.words}" if differs else "",
        ignorable=tuple(name for name in IGNORABLE if name in {*fields, *ignored.parts})
        if {*fields} & IGNORABLE.keys() - {*ignored.parts}
        else (),
        baseline_runs_left_out=left_out[baseline],
        label_runs_left_out=left_out[label],
    )


def _difference(
    sides: Collection[Mapping[str, _Side]], baseline: str, label: str
) -> tuple[str, list[str]]:
    of_labels = [[side[name] for side in sides if name in side] for name in (baseline, label)]
    parts, fields = [], []
    for field, words in _PARTS.items():
        values = [
            " and ".join(sorted({value for side in of_label for value in side.values[field]}))
            for of_label in of_labels
        ]
        if values[0] != values[1]:
            parts.append(f"{words} ({values[0]} against {values[1]})")
            fields.append(field)
    settings = [{side.first["setting"] for side in of_label} for of_label in of_labels]
    if not parts and settings[0] != settings[1]:
        parts = ["options of their cases"]
    return ", ".join(parts), fields


def rows_of(table: pa.Table, names: Sequence[str]) -> Iterator[Row]:
    """Yield rows with some columns. Rows are dicts of about a kilobyte, so batches are small."""
    for batch in table.select(names).to_batches(_ROWS_AT_ONCE):
        yield from batch.to_pylist()


def chosen_label(labels: Iterable[str | None], baseline: str, label: str | None) -> str:
    """Return the label to compare with `baseline`; raise `UsageError` if the choice is unclear."""
    present = sorted({name for name in labels if name is not None})
    if baseline not in present:
        raise UsageError(
            f"--baseline is {baseline!r}, which no run here has; the labels here: "
            f"{listed(present)} (label runs with `harness soak --label`)"
        )
    others = [name for name in present if name != baseline]
    if label is None and len(others) == 1:
        return others[0]
    if label is None or label not in others:
        state = "is missing" if label is None else f"is {label!r}"
        raise UsageError(
            f"--label {state}; choose the label to compare with {baseline!r} from: {listed(others)}"
        )
    return label


def accept_labels(
    labels: AbstractSet[str | None], *, baseline: str | None, label: str | None
) -> None:
    """Raise `UsageError` at once, rather than after hours of work, for a label that no run has."""
    if baseline is not None:
        chosen_label(labels, baseline, label)
    elif label is not None and label not in labels:
        raise UsageError(
            f"--label is {label!r}, which no run here has; the labels here: {listed(labels)}"
        )


def listed(labels: Iterable[str | None]) -> str:
    """Write the first few labels, sorted, on one line."""
    present = sorted({name for name in labels if name is not None})
    listed = ", ".join(repr(name) for name in present[:_LABELS_SHOWN_MAX]) or "none"
    more = len(present) - _LABELS_SHOWN_MAX
    return f"{listed} and {more} more" if more > 0 else listed


def _name(sides: Mapping[str, _Side], ignored: Ignored) -> str:
    return setting_words(next(iter(sides.values())).first, ignored.parts)


def setting_words(row: Row, ignored: Collection[str] = ()) -> str:
    """Describe a setting in words, with its hash: different settings may have equal words."""
    bugs = f" with {row['bugs']}" if row["bugs"] and "bugs" not in ignored else ""
    where = row["environment"] or "cut short"
    what = f"{row['workload']} under {row['asked']}{bugs}"
    profile = "" if "profile" in ignored else f"{row['profile']}, "
    return f"{what} ({where}, {profile}{row['setting'][:6]})"


def _lines(setting: str, first: _Side, second: _Side, bugs_count: bool) -> Iterator[Line]:
    has_bug = bugs_count and bool(first.first["bugs"])
    yield _share(setting, "detected" if has_bug else "invalid", "invalid", first, second)
    yield _share(setting, "unknown", "unknown", first, second)
    for metric, _, _ in _RATES:
        values = [side.rates[metric] for side in (first, second)]
        if all(values):
            yield _ranked(setting, metric, "rate", values[0], values[1])
    kinds = sorted({f for side in (first, second) for f, _ in side.latencies})
    for f in kinds:
        for column, words in _PERCENTILES:
            latencies = [side.latencies.get((f, column)) for side in (first, second)]
            if latencies[0] and latencies[1]:
                yield _ranked(setting, f"{f} {words}", "ns", latencies[0], latencies[1])


def _share(setting: str, metric: str, verdict: str, first: _Side, second: _Side) -> Line:
    hits = [side.verdicts[verdict] for side in (first, second)]
    trials = [side.runs for side in (first, second)]
    intervals = [wilson(hit, n) for hit, n in zip(hits, trials, strict=True)]
    return Line(
        setting=setting,
        metric=metric,
        unit="share",
        baseline_runs=trials[0],
        label_runs=trials[1],
        baseline_value=hits[0] / trials[0],
        baseline_low=intervals[0].low,
        baseline_high=intervals[0].high,
        label_value=hits[1] / trials[1],
        label_low=intervals[1].low,
        label_high=intervals[1].high,
        p_value=fisher_exact(hits[0], trials[0], hits[1], trials[1]),
        p_adjusted=1.0,
        verdict=_direction(metric, hits[0] / trials[0], hits[1] / trials[1]),
    )


def _ranked(
    setting: str, metric: str, unit: str, first: Sequence[float], second: Sequence[float]
) -> Line:
    middles = [_middle(unit, values) for values in (first, second)]
    p_value = rank_sum(first, second)
    return Line(
        setting=setting,
        metric=metric,
        unit=unit,
        baseline_runs=len(first),
        label_runs=len(second),
        baseline_value=middles[0][0],
        baseline_low=middles[0][1],
        baseline_high=middles[0][2],
        label_value=middles[1][0],
        label_low=middles[1][1],
        label_high=middles[1][2],
        p_value=p_value,
        p_adjusted=1.0,
        # The test compares ranks, so ranks (not means or medians) decide the direction.
        verdict=_direction(metric, *_wins(first, second)),
    )


def _wins(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Count, for each group, the pairs (one value from each group) in which its value is larger."""
    ordered = sorted(first)
    second_wins = sum(bisect.bisect_left(ordered, value) for value in second)
    not_first = sum(bisect.bisect_right(ordered, value) for value in second)
    return float(len(first) * len(second) - not_first), float(second_wins)


def _middle(unit: str, values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Return the mean of rates, or the median of latencies, and the two ends of its interval."""
    if unit == "ns":
        interval = median_interval(values)
        middle = nearest_rank(sorted(values), 500)
        return (middle, None, None) if interval is None else (middle, interval.low, interval.high)
    mean = fmean(values)
    if len(set(values)) < 2:  # equal values have no spread, so there is no interval
        return mean, None, None
    half = student_quantile(1 - ALPHA / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return mean, max(0.0, mean - half), mean + half


def _direction(metric: str, baseline: float, label: float) -> str:
    if baseline == label:
        return NO_EVIDENCE
    more_is_better = metric == "detected"
    return BETTER if (label > baseline) == more_is_better else WORSE


def _judged(lines: Sequence[Line]) -> list[Line]:
    adjusted = holm([line.p_value for line in lines])
    judged = [
        msgspec.structs.replace(
            line, p_adjusted=p, verdict=line.verdict if p < ALPHA else NO_EVIDENCE
        )
        for line, p in zip(lines, adjusted, strict=True)
    ]
    return sorted(judged, key=lambda line: (_ORDER[line.verdict], line.p_value))
