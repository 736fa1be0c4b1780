"""What a report says: sections of words, drawings and tables, made from the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from results.aggregate import OUTCOMES, Answers, Rows
from results.baseline import Comparison
from results.report.format import duration, interval, share
from results.report.layouts import LAYOUTS
from results.report.plots import Forest, Plot, latencies, rates, ratios, shares, stacked
from results.report.tables import Table, make_table

__all__ = ["Section", "sections"]

VERDICTS: Final = (("valid", "valid"), ("unknown", "unknown"), ("invalid", "invalid"))
_LATENCY: Final = ("p50_ns", "p95_ns", "p99_ns", "p999_ns")


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A heading, what it means, drawings, tables."""

    id: str
    title: str
    words: str
    plots: tuple[Plot, ...] = ()
    tables: tuple[Table, ...] = ()


def sections(answers: Answers) -> list[Section]:
    """Everything below the summary, in order; what has nothing to say is left out."""
    found = [
        _verdicts(answers),
        _detection(answers),
        _clean(answers),
        _uplift(answers),
        _availability(answers),
        _latency(answers),
        _operations(answers),
        _elections(answers),
        _trends(answers),
    ]
    if answers.comparison is not None:
        found.insert(1, _baseline(answers.comparison))
    return [section for section in found if section.tables]


def _tables(answers: Answers, *names: str, **given: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The tables of some answers that have rows; `given` rows instead of an answer's own."""
    found = []
    for name in names:
        rows = given.get(name)
        table = make_table(name, LAYOUTS[name], answers.rows(name) if rows is None else rows)
        if table.rows:
            found.append(table)
    return found


def _ranged(rows: Iterable[Mapping[str, Any]], unit: str) -> Rows:
    """Rows with their two ends written as one cell, `range`."""
    return [{**row, "range": interval(row["low"], row["high"], unit)} for row in rows]


def _verdicts(answers: Answers) -> Section:
    bars = []
    for row in answers.rows("verdict_matrix"):
        bugs = f" with {row['bugs']}" if row["bugs"] else ""
        label = f"{row['nemeses'] or 'none'}{bugs}, {row['workload']}"
        bars.append((label, [row["valid"], row["unknown"], row["invalid"]]))
    return Section(
        id="verdicts",
        title="Verdicts",
        words="Every run was judged again from its history, by the checkers as they are now.",
        plots=(stacked("Runs by nemeses, bug switches and workload", bars, VERDICTS),),
        tables=tuple(
            _tables(answers, "verdict_matrix", "checkers", "failing_runs", "changed_verdicts")
        ),
    )


def _detection(answers: Answers) -> Section:
    rows = _ranged(answers.rows("detection_rates"), "share")
    forests = [
        Forest(row["bug"], row["rate"], row["low"], row["high"], f"{row['detected']}/{row['runs']}")
        for row in rows
    ]
    names = ("detection_rates", "detection_by_nemesis", "detection_by_checker")
    return Section(
        id="detection",
        title="Bug switches: how soon are they found?",
        words="A bug is detected by a run whose verdict is invalid. Rates have Wilson's 95 % "
        "interval. Runs and time to the first detection are counted in the order of the seeds. A "
        "run with several bugs counts for each of them; “alone” are the runs with no other bug.",
        plots=(rates("Detection rate by bug switch", forests),),
        tables=tuple(_tables(answers, *names, detection_rates=rows)),
    )


def _clean(answers: Answers) -> Section:
    rows = [
        {**row, "nemeses": "all together" if row["nemeses"] is None else row["nemeses"]}
        for row in _ranged(answers.rows("clean_rates"), "share")
    ]
    return Section(
        id="clean",
        title="Runs without a bug switch: is anybody blamed?",
        words="Where none of N runs is invalid, the rate of invalid runs is below the given share "
        "with 95 % confidence (the exact one-sided bound). Runs whose verdict is unknown do not "
        "count for it.",
        tables=tuple(_tables(answers, "clean_rates", clean_rates=rows)),
    )


def _uplift(answers: Answers) -> Section:
    rows = _ranged(answers.rows("uplift_ratios"), "ratio")
    forests = [
        Forest(f"{row['nemesis']}: {row['outcome']}", row["ratio"], row["low"], row["high"])
        for row in rows
        if row["outcome"] in OUTCOMES and row["low"] is not None
    ]
    meanings = "; ".join(f"“{name}”: {words}" for name, words in OUTCOMES.items())
    plot = ratios("How many times likelier with the fault than without", forests)
    return Section(
        id="uplift",
        title="Which fault makes what likelier?",
        words="In the chaos phase of all runs with the nemesis: how likely something is while a "
        f"fault of it is active, against the rest of the time ({meanings}). Operations count by "
        "their invocation. Intervals take the run as the unit, since operations of one run fail "
        "together; each holds with 95 % by itself, so of many a few will miss. Other faults of the "
        "same runs fall on both sides.",
        plots=(plot,) if forests else (),
        tables=tuple(
            _tables(
                answers,
                "uplift_ratios",
                "uplift_by_operation",
                uplift_ratios=[row for row in rows if row["outcome"] in OUTCOMES],
                uplift_by_operation=[row for row in rows if row["outcome"] not in OUTCOMES],
            )
        ),
    )


def _availability(answers: Answers) -> Section:
    found: dict[str, dict[str, list[float | None]]] = {"mutation": {}, "read": {}}
    for row in answers.rows("availability"):
        for kind, by_nemesis in found.items():
            cells = by_nemesis.setdefault(row["nemesis"], [None, None])
            if row["ns"]:
                cells[0 if row["active"] else 1] = row[f"{kind}_down_ns"] / row["ns"]
    legend = (("with", "of the time with a fault"), ("without", "of the time without"))
    plots = [
        shares(f"{kind.capitalize()}s unavailable in the chaos phase", list(rows.items()), legend)
        for kind, rows in found.items()
        if rows
    ]
    names = ("availability", "faults", "outages", "outage_after_heal", "recovery")
    return Section(
        id="availability",
        title="Availability and recovery",
        words="An outage (a window of unavailability) is half a second or more in which operations "
        "were under way (breaks of up to a second between tries do not end it) and the target "
        "answered none; a definite no is an answer. Faults that overlap count the same time each. "
        "After a heal, “waited” is counted from the first operation that was under way.",
        plots=tuple(plots),
        tables=tuple(_tables(answers, *names)),
    )


def _latency(answers: Answers) -> Section:
    rows = answers.rows("latency_by_f")
    drawn = [(row["f"], [row[name] for name in _LATENCY]) for row in rows]
    slowest = sorted(answers.rows("latency_by_run"), key=lambda row: (-row["p99_ns"], row["run"]))
    nodes = [{**row, "node": row["node"] or "not said"} for row in answers.rows("latency_by_node")]
    names = ("f", "active", "phase", "node", "run")
    plot = latencies("Latency by operation", drawn, ("p50", "p95", "p99", "p99.9"))
    return Section(
        id="latency",
        title="Latency",
        words="Of acknowledged operations, by nearest rank over log-linear buckets: each value is "
        "the middle of its bucket, at most 1.6 % off.",
        plots=(plot,) if drawn else (),
        tables=tuple(
            _tables(
                answers,
                *(f"latency_by_{name}" for name in names),
                latency_by_run=slowest,
                latency_by_node=nodes,
            )
        ),
    )


def _operations(answers: Answers) -> Section:
    return Section(
        id="operations",
        title="Operations and errors",
        words="Refused operations failed with an answer of the target (“the table exists”); other "
        "failures had none. An operation without completion counts as info. One that was lost "
        "under two faults counts for both.",
        tables=tuple(_tables(answers, "op_counts", "errors", "info_losses")),
    )


def _elections(answers: Answers) -> Section:
    return Section(
        id="elections",
        title="Elections",
        words="A new leader that the harness saw; the first one of a run is none.",
        tables=tuple(_tables(answers, "elections", "election_causes")),
    )


def _trends(answers: Answers) -> Section:
    named = {
        name: [{**row, "label": row["label"] or "no label"} for row in answers.rows(name)]
        for name in ("trends", "latency_by_label")
    }
    bars = [
        (row["label"], [row["valid"], row["unknown"], row["invalid"]]) for row in named["trends"]
    ]
    return Section(
        id="trends",
        title="Labels in the order of their first run",
        words="Labels may hold runs of different cases; to compare two, use --baseline.",
        plots=(stacked("Runs by label", bars, VERDICTS),),
        tables=tuple(_tables(answers, "trends", "latency_by_label", **named)),
    )


def _baseline(found: Comparison) -> Section:
    rows = []
    for line in found.lines:
        write = duration if line.unit == "ns" else share
        rows.append(
            {
                **msgspec.structs.asdict(line),
                "before": write(line.baseline_value),
                "before_range": interval(line.baseline_low, line.baseline_high, line.unit),
                "after": write(line.label_value),
                "after_range": interval(line.label_low, line.label_high, line.unit),
            }
        )
    left_out = found.baseline_runs_left_out + found.label_runs_left_out
    return Section(
        id="baseline",
        title=f"“{found.label}” against the baseline “{found.baseline}”",
        words=f"{len(rows)} comparisons in {found.settings} "
        f"{'setting' if found.settings == 1 else 'settings'} that both labels have "
        f"({left_out} runs of other settings are left out). Shares of runs: Fisher's exact test; "
        "everything else: the rank-sum test over runs. All p-values are adjusted together by "
        "Holm's procedure, so that the chance of any false “worse” or “better” is below 5 %. “No "
        "evidence” is not “the same”: it may only need more runs.",
        tables=(make_table("regressions", LAYOUTS["regressions"], rows),),
    )
