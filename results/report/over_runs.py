"""Makes the report's sections on trends over days, versions, labels and seeds, and on costs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.errors import counted
from results.questions.aggregate import Rows
from results.questions.baseline import NO_EVIDENCE, Comparison
from results.questions.failures import ANY, RULE, comparable
from results.questions.trends import NO
from results.report.number_words import NOTHING, count, duration, interval, share
from results.report.plots import Chart, Curve, Forest, Plot, curves, latencies, rates, stacked
from results.report.readings import compared
from results.report.section import PLOTS_MAX, VERDICTS, Report, Section, counts_of, linked, ranged
from results.report.summary import ignore_hint

_OVER: Final = {"day": "day", "code": "version of the code"}
DRAWN_MAX: Final = 4
"""The maximum number of populations drawn over time. Tables have all populations."""
STEPS_MAX: Final = 30
CURVES: Final = 4
CERTAIN: Final = 0.995
"""A chart ends at the number of seeds at which all curves have reached this probability."""
AGAINST: Final = {
    "without": "no such fault",
    "other": "another node hit",
    "chaos": "the same in chaos",
}
"""Words for each baseline to which a report compares the rate under faults that hit one role."""


def seen(row: Mapping[str, Any]) -> str:
    """Describe the days on which a failure was seen, and how many later runs did not see it."""
    if row["first_day"] is None:
        return ""
    days = row["first_day"]
    if row["last_day"] != row["first_day"]:
        days = f"{row['first_day']} to {row['last_day']}"
    code = f", last with {row['last_code']}" if row["last_code"] is not None else ""
    runs, days_since = row["runs_since"], row["days_since"]
    if not runs:
        return f"seen {days}{code}: in the last run of its setting"
    if not days_since:  # runs of one day may be one soak, and their order means nothing
        return f"seen {days}{code}"
    return (
        f"seen {days}{code}; {counted(runs, 'run')} of its settings in "
        f"{counted(days_since, 'day')} since without it, so now rarer than "
        f"{share(row['below_since'])} (95 %)"
    )


def flakes(report: Report) -> Section:
    """Make the section about cases that ran several times with the same code."""
    repeated = report.answers.rows("repeated_cases")
    of = {row["setting"]: row["population"] for row in report.answers.rows("populations")}
    for row in repeated:
        row["of"] = report.of.setting(of[row["setting"]])
    rows = report.rows("flakes")
    for row in rows:
        fields = {"setting": row["setting"], "seed": str(row["seed"]), "code": row["code"]}
        row["runs"] = (row["runs"], report.places.runs(**fields))
        row["of"] = report.of.setting(row["population"])
    return Section(
        id="flakes",
        title="Cases that had different outcomes with the same code" if rows else "Repeated cases",
        words="Runs of one case (setting and seed) by the same code. A different verdict is a "
        "flake. On real clusters the target may cause flakes. In the simulation, neither "
        "verdicts nor histories may differ; if they do, something other than the seed "
        "influenced the run.",
        tables=report.tables("flakes", "repeated_cases", flakes=rows, repeated_cases=repeated),
    )


def trends(report: Report) -> Section:
    """Make the section about trends over days and versions, and settings with several labels."""
    over = _over_time(report)
    settings: dict[str, Rows] = {}
    for row in report.rows("populations"):
        words = report.of.setting(row["population"])
        worded = {**row, "setting_words": words, "label": row["label"] or "no label"}
        settings.setdefault(row["setting"], []).append(worded)
    several = [
        sorted(rows, key=lambda row: (row["first_started"], row["label"]))
        for rows in settings.values()
        if len(rows) > 1
    ]
    several.sort(key=lambda rows: str(rows[0]["setting_words"]))
    plots = [
        stacked(
            f"Runs by label: {rows[0]['setting_words']}",
            [(row["label"], counts_of(row)) for row in rows],
            VERDICTS,
        )
        for rows in several[:PLOTS_MAX]
    ]
    left = len(several) - PLOTS_MAX
    return Section(
        id="trends",
        title="Trends over versions, days and labels",
        words="Shown are groups of runs with several versions of the code or on several days, "
        "and settings that several labels have. The failing share is taken over runs "
        "whose verdict is known (Wilson's 95 % interval); “ok/s” is the number of "
        "acknowledged operations per second of the run. Use --baseline to compare two "
        "labels by statistical tests."
        + (f" {left} more settings are not drawn, but in the table." if left > 0 else ""),
        plots=(*_time_plots(report, over), *plots),
        tables=report.tables(
            *("trend_by_code", "trend_by_day", "trends", "latency_trends"),
            **over,
            trends=linked(report, [row for rows in several for row in rows]),
        ),
    )


def _over_time(report: Report) -> dict[str, Rows]:
    tables = {}
    for name in ("code", "day"):
        rows = report.rows(f"trend_by_{name}")
        several = {
            row["population"]
            for row, after in itertools.pairwise(rows)
            if row["population"] == after["population"]
        }
        drawn = [row for row in rows if row["population"] in several]
        tables[f"trend_by_{name}"] = linked(report, ranged(drawn, "share"), name)
    kept = {
        (name, row["population"]) for name in ("code", "day") for row in tables[f"trend_by_{name}"]
    }
    tables["latency_trends"] = [
        {**row, "f": row["f"] or "all of them"}
        for row in report.rows("latency_trends")
        if (row["dimension"], row["population"]) in kept
    ]
    return tables


def _time_plots(report: Report, tables: Mapping[str, Rows]) -> tuple[Plot, ...]:
    """Plot the failing shares of a few populations, and the latencies of the first population.

    The x axis has versions of the code if the population has several versions, else days.
    """
    plots: list[Plot] = []
    over = [("code", of, rows) for of, rows in report.by_population(tables["trend_by_code"])]
    titles = {of for _, of, _ in over}
    days = report.by_population(tables["trend_by_day"])
    over += [("day", of, rows) for of, rows in days if of not in titles]
    for name, of, rows in over[:DRAWN_MAX]:
        last, words = rows[-STEPS_MAX:], _OVER[name]
        forests = [
            Forest(
                row[name],
                row["rate"],
                row["low"],
                row["high"],
                f"{row['invalid']}/{row['runs'][0] - row['unknown']}",
            )
            for row in last
            if row["rate"] is not None
        ]
        plots.append(rates(f"Failing runs by {words}: {of}", forests))
    for name, of, rows in over[:1]:
        timed = [row for row in rows[-STEPS_MAX:] if row["p50_ns"] is not None]
        values = [(row[name], [row["p50_ns"], row["p99_ns"]]) for row in timed]
        plots.append(latencies(f"Latency by {_OVER[name]}: {of}", values, ("p50", "p99")))
    return tuple(plots)


def seeds(report: Report) -> Section:
    """Make the section about how many seeds or operations it takes to see a failure."""
    curve = report.rows("detectability")
    rows = [
        {
            **row,
            "seeds_range": _seeds(row["seeds_sure_low"], row["seeds_sure_high"]),
            "hits": (row["hits"], _hits(report, row)),
        }
        for row in ranged(curve, "share")
    ]
    survived = ranged(report.rows("survival"), "share")
    return Section(
        id="seeds",
        title="How many seeds and operations does it take to see a failure?",
        words="If a share p of runs has a failure, n seeds see it with probability 1 - (1 - p)^n; "
        "bands and intervals come from p (Wilson, 95 %). A run counts for the one failure of its "
        "verdict. Below: the share of runs without a failure after a number of operations "
        "(Kaplan-Meier, with Greenwood's intervals). A run fails where the first operation that "
        "its checker names began; a run without a failure is censored at its end.",
        charts=tuple(_charts(report)),
        tables=report.tables("detectability", "survival", detectability=rows, survival=survived),
    )


def _seeds(low: int | None, high: int | None) -> str:
    return f"{count(low)} … {count(high) if high is not None else NOTHING}"


def _hits(report: Report, row: Mapping[str, Any]) -> str:
    fields = {**report.of.filters(row["population"]), "verdict": "invalid"}
    if row["signature"] != ANY:
        fields["signature"] = row["signature"]
    return report.places.runs(**fields)


def _charts(report: Report) -> list[Chart]:
    drawn = []
    points = _of_all(report.rows("detection_curves"))
    if points:
        unsure = [row["seeds"] for row in points if row["low"] < CERTAIN]
        last = min(
            (row["seeds"] for row in points if row["seeds"] > max(unsure, default=1)),
            default=max(unsure, default=1),
        )
        points = [row for row in points if row["seeds"] <= last]
        lines = [
            Curve(of, [(row["seeds"], row["probability"], row["low"], row["high"]) for row in rows])
            for of, rows in report.by_population(points)[:CURVES]
        ]
        title = "Probability that n seeds see a failure"
        drawn.append(curves(title, lines, "seeds", logarithmic=True))
    steps = report.rows("survival")
    if steps:
        lines = [Curve(of, _steps(rows)) for of, rows in report.by_population(steps)[:CURVES]]
        title = "Runs without a failure after n operations"
        drawn.append(curves(title, lines, "operations", steps=True))
    return drawn


def _of_all(points: Sequence[dict[str, Any]]) -> Rows:
    """Keep one curve per population: the curve of all its failures, or of its only failure."""
    several = {row["population"] for row in points if row["signature"] == ANY}
    return [row for row in points if (row["signature"] == ANY) == (row["population"] in several)]


def _steps(rows: Rows) -> list[tuple[float, float, float | None, float | None]]:
    steps = [(row["ops"], row["survival"], row["low"], row["high"]) for row in rows]
    return [(0, 1.0, 1.0, 1.0), *steps, (rows[-1]["until"], *steps[-1][1:])]


def costs(report: Report) -> Section:
    """Make the section about costs. Each sum except the total links to its runs."""
    rows = []
    for row in report.answers.rows("costs"):
        named = None if row["value"] == NO.get(row["by"]) else row["value"]
        fields = {} if row["by"] == "all" else {row["by"]: named}
        rows.append({**row, "runs": (row["runs"], report.places.runs(**fields) if fields else "")})
    return Section(
        id="costs",
        title="Costs",
        words="Costs are the real time of the runs, the CPU time of their checks, and bytes in "
        "the lake. The bytes of a target, label and day are divided among its runs in "
        "proportion to the lines of their histories. A run with several nemeses counts "
        "for each of them. Costs are sums over all runs, and say nothing about the target.",
        tables=report.tables("costs", costs=rows),
    )


def baseline(report: Report, found: Comparison) -> Section:
    """Make the section that compares two labels: their failures and all metrics."""
    changes = [
        {
            **row,
            "first_run": (row["first_run"], report.places.link(row["first_run"])),
            "label_hits": (
                row["label_hits"],
                report.places.runs(
                    signature=row["signature"], verdict=row["verdict"], label=found.label
                ),
            ),
        }
        for row in comparable(report.answers.rows("signature_changes"))
    ]
    for row in changes:  # no link for a whole rule: lists of runs lack this filter
        if row["level"] == RULE:
            row["label_hits"] = row["label_hits"][0]
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
    title = f"“{found.label}” against the baseline “{found.baseline}”"
    differs = f"The labels differ in {found.differs}. " if found.differs else ""
    if not found.settings:
        words = (
            f"{differs}No setting has runs of both labels, so nothing is compared"
            f"{ignore_hint(found)}."
        )
        return Section(id="baseline", title=title, reading=words, words="")
    return Section(
        id="baseline",
        title=title,
        reading=differs + compared(found),
        words=f"{counted(len(rows), 'comparison')} in {counted(found.settings, 'setting')} "
        f"that both labels have ({counted(left_out, 'run')} of other settings left out). "
        "Shares of runs: Fisher's exact test; everything else: the rank-sum test over "
        "runs. All p-values are adjusted together by Holm's procedure, so that the chance of any "
        "false “worse” or “better” is below 5 %. “No evidence” does not mean “the same”: more "
        "runs may show a difference. A failure is new or gone if only one of the labels has it; "
        "Fisher's exact test over the settings that both have, adjusted over all rules and over "
        "all signatures, shows whether chance explains that.",
        tables=(
            *report.tables("signature_changes", signature_changes=changes),
            *report.tables(
                *("regressions", "no_evidence"),
                regressions=[row for row in rows if row["verdict"] != NO_EVIDENCE],
                no_evidence=[row for row in rows if row["verdict"] == NO_EVIDENCE],
            ),
        ),
    )
