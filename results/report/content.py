"""Makes the sections of a report from its answers: text, drawings and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from results.questions.aggregate import Answers, Rows
from results.questions.uplift import OUTCOMES
from results.report.addresses import Addresses
from results.report.layouts import LAYOUTS
from results.report.over_runs import AGAINST, baseline, costs, flakes, seeds, seen, trends
from results.report.plots import Forest, latencies, rates, ratios, shares, stacked
from results.report.readings import reading
from results.report.section import VERDICTS, Report, Section, counts_of, linked, ranged
from results.report.tables import make_table

_LATENCY: Final = ("p50_ns", "p95_ns", "p99_ns", "p999_ns")


def sections(answers: Answers, places: Addresses) -> list[Section]:
    """Return all sections below the summary, in order, without empty sections."""
    report = Report(answers, places)
    sections = [
        _failures(report),
        flakes(report),
        _verdicts(report),
        trends(report),
        _detection(report),
        seeds(report),
        _clean(report),
        _uplift(report),
        _availability(report),
        _latency(report),
        _operations(report),
        _elections(report),
        costs(report),
        _runs(report),
    ]
    sections = [
        msgspec.structs.replace(section, reading=reading(report, section.id))
        for section in sections
        if section.tables
    ]
    if answers.comparison is not None:
        first = sections[:1] and sections[0].id == "failures"
        sections.insert(1 if first else 0, baseline(report, answers.comparison))
    return sections


def _failures(report: Report) -> Section:
    failing = report.answers.tables["failing_runs"]
    groups = [
        {
            **row,
            "of": _listed(report, row["populations"]),
            "signature": row["signature"] + report.answers.known_failures.mark(row["signature"]),
            "seen": seen(row),
            "verdict": _expected(row),
            "runs": (row["runs"], _failing(report, row)),
            "first_run": (row["first_run"], report.places.link(row["first_run"])),
            "replay": report.places.replay(row["first_run"], row["environment"]),
        }
        for row in report.answers.rows("signatures")
    ]
    layout = LAYOUTS["failing_runs"]
    every = [
        {
            **row,
            "verdict": _expected(row),
            "replay": report.places.replay(row["run"][0], row["environment"]),
        }
        for row in report.told(failing.slice(0, layout.limit))
    ]
    return Section(
        id="failures",
        title="What failed",
        words="A signature consists of the checker, the broken rule and the last fault. "
        "Failures with the same signature most likely have the same cause, although the "
        "operations involved differ from run to run. A run's link opens its page, "
        "or its folder where it has none yet; “harness report FOLDER” makes one.",
        tables=(
            *report.tables("signatures", signatures=groups),
            *(
                [
                    make_table(
                        "failing_runs", layout, every, total=report.answers.total("failing_runs")
                    )
                ]
                if every
                else []
            ),
        ),
    )


def _expected(row: Mapping[str, Any]) -> str:
    verdict: str = row["verdict"]
    return "expected" if row["bugs"] and verdict == "invalid" else verdict


def _listed(report: Report, populations: str) -> str:
    return "; ".join(report.of.words(int(n)) for n in populations.split("+"))


def _failing(report: Report, row: Mapping[str, Any]) -> str:
    bugs = {"bug": row["bugs"].replace("+", ",")} if row["bugs"] else {"bugs": None}
    fields = {name: row[name] for name in ("verdict", "signature", "target")}
    return report.places.runs(**fields, **bugs)


def _verdicts(report: Report) -> Section:
    bars = [(row["of"], counts_of(row)) for row in report.rows("populations")]
    return Section(
        id="verdicts",
        title="Verdicts",
        words="The installed checkers judged every run again from its history. Numbers are only "
        "added up over runs of one label whose cases are equal except for the seed.",
        plots=(stacked("Groups of runs that differ only in the seed", bars, VERDICTS),),
        tables=report.tables(
            *("populations", "permitted", "checkers", "changed_verdicts"),
            populations=linked(report, report.rows("populations")),
        ),
    )


def _detection(report: Report) -> Section:
    rows = linked(report, ranged(report.rows("detection_rates"), "share"))
    forests = [
        Forest(
            f"{row['bug']}: {row['of']}",
            row["rate"],
            row["low"],
            row["high"],
            f"{row['detected']}/{row['runs'][0]}",
        )
        for row in rows
    ]
    return Section(
        id="detection",
        title="Bug switches: how soon are they found?",
        words="A bug is detected by a run whose verdict is invalid. Rates have Wilson's 95 % "
        "interval. Runs and time to the first detection are counted in the order of the seeds. A "
        "run with several bugs counts for each of them.",
        plots=(rates("Detection rate by bug switch and group of runs", forests),),
        tables=report.tables(
            "detection_rates",
            "detection_by_nemesis",
            "detection_by_checker",
            detection_rates=rows,
        ),
    )


def _clean(report: Report) -> Section:
    return Section(
        id="clean",
        title="False alarms: runs without a bug",
        words="If none of N runs is invalid, the rate of invalid runs is below the given share "
        "with 95 % confidence (an exact one-sided bound). Runs whose verdict is unknown "
        "do not count.",
        tables=report.tables(
            "clean_rates",
            clean_rates=linked(report, ranged(report.rows("clean_rates"), "share")),
        ),
    )


def _uplift(report: Report) -> Section:
    rows = ranged(report.rows("uplift_ratios"), "ratio")
    drawn = [row for row in rows if row["outcome"] in OUTCOMES and row["low"] is not None]
    plots = []
    for words, members in report.by_population(drawn):
        forests = [
            Forest(f"{row['nemesis']}: {row['outcome']}", row["ratio"], row["low"], row["high"])
            for row in members
        ]
        plots.append(
            ratios(f"How many times more likely with the fault than without it: {words}", forests)
        )
    pooled = _pooled(report)
    if pooled:
        forests = [
            Forest(f"{row['nemesis']}: {row['outcome']}", row["ratio"], row["low"], row["high"])
            for row in pooled
            if row["low"] is not None and row["outcome"] in OUTCOMES and not row["bugs"]
        ]
        if forests:
            plots.insert(0, ratios("Pooled ratios over all groups of runs without a bug", forests))
    roles = [
        {**row, "against_words": AGAINST[row["against"]]}
        for row in ranged(report.rows("uplift_by_role"), "ratio")
    ]
    meanings = "; ".join(f"“{name}”: {words}" for name, words in OUTCOMES.items())
    return Section(
        id="uplift",
        title="What do faults make more likely?",
        words="How much more likely an outcome is while a fault of the nemesis is active than "
        f"in the rest of the chaos phase, for one group of runs ({meanings}). Operations "
        "count by their invocation. Intervals treat runs, not operations, as independent, "
        "since operations of one run fail together. Each interval holds with 95 % "
        "confidence by itself, so a few of many intervals miss the true ratio. Other "
        "faults of the same runs affect both sides. Pooled ratios use the Mantel-Haenszel "
        "method, which compares each group only with itself; if the p-value for the "
        "agreement of all groups is small, the pooled ratio does not describe every "
        "group. A fault hit the leader if the leader was among its targets at the "
        f"injection.{report.cut(drawn)}",
        plots=tuple(plots),
        tables=report.tables(
            *("uplift_stratified", "uplift_ratios", "uplift_by_role", "uplift_by_operation"),
            uplift_stratified=pooled,
            uplift_by_role=roles,
            uplift_ratios=[row for row in rows if row["outcome"] in OUTCOMES],
            uplift_by_operation=[row for row in rows if row["outcome"] not in OUTCOMES],
        ),
    )


def _pooled(report: Report) -> Rows:
    """Return the rows of pooled ratios: rows without bugs first, then significant ratios first."""
    rows = [
        {**row, "group": " · ".join(filter(None, (row["workload"], row["bugs"] or "no bug")))}
        for row in ranged(report.answers.rows("uplift_stratified"), "ratio")
    ]
    return sorted(rows, key=lambda row: (row["bugs"] != "", not _stands_out(row)))


def _stands_out(row: Mapping[str, Any]) -> bool:
    """Whether the interval of a ratio excludes 1."""
    return row["low"] is not None and (row["low"] > 1 or row["high"] < 1)


def _availability(report: Report) -> Section:
    rows = report.rows("availability")
    legend = (("with", "of the time with a fault"), ("without", "of the time without"))
    plots = []
    for words, members in report.by_population(rows):
        series: dict[str, list[float | None]] = {}
        for row in members:
            for kind in ("mutation", "read"):
                cells = series.setdefault(f"{row['nemesis']}: {kind}s", [None, None])
                if row["ns"]:
                    cells[0 if row["active"] else 1] = row[f"{kind}_down_ns"] / row["ns"]
        plots.append(
            shares(f"Unavailable in the chaos phase: {words}", list(series.items()), legend)
        )
    names = (
        *("availability", "availability_quantiles", "faults", "outages", "outage_after_heal"),
        "recovery",
    )
    return Section(
        id="availability",
        title="Availability and recovery",
        words="An outage is a time of at least half a second in which operations were in "
        "progress and the target answered none of them; a definite refusal is an answer. "
        "Breaks of up to a second between attempts do not end an outage. Each of several "
        "overlapping faults counts their common time. After a heal, “waited” is the time "
        "since the first operation that was in progress." + report.cut(rows),
        plots=tuple(plots),
        tables=report.tables(
            *names,
            availability_quantiles=linked(report, report.rows("availability_quantiles")),
        ),
    )


def _latency(report: Report) -> Section:
    rows = report.rows("latency_by_f")
    plots = [
        latencies(
            f"Latency by operation: {words}",
            [(row["f"], [row[name] for name in _LATENCY]) for row in members],
            ("p50", "p95", "p99", "p99.9"),
        )
        for words, members in report.by_population(rows)
    ]
    by_run, most = report.answers.tables["latency_by_run"], report.answers.most
    first = "" if most is None else f" Single runs are those with the {most:,} longest operations."
    slowest = by_run.sort_by([("p99_ns", "descending"), ("run", "ascending")])
    nodes = [{**row, "node": row["node"] or "no node"} for row in report.rows("latency_by_node")]
    names = ("f", "active", "phase", "node")
    return Section(
        id="latency",
        title="Latency",
        words="Latencies of acknowledged operations, by nearest rank over log-linear buckets. "
        "Each value is the middle of its bucket, with an error of at most "
        f"1.6 %.{first}{report.cut(rows)}",
        plots=tuple(plots),
        tables=(
            *report.tables(*(f"latency_by_{name}" for name in names), latency_by_node=nodes),
            *([report.head("latency_by_run", slowest)] if len(slowest) else []),
        ),
    )


def _operations(report: Report) -> Section:
    return Section(
        id="operations",
        title="Operations and errors",
        words="The target refused an operation if it answered with a definite error (“the table "
        "exists”); other failed operations got no answer. An operation without a "
        "completion counts as info. An operation that was lost under two faults counts "
        "for both.",
        tables=report.tables("op_counts", "errors", "info_losses"),
    )


def _elections(report: Report) -> Section:
    return Section(
        id="elections",
        title="Elections",
        words="A change of leader is a new leader that the harness saw after the first of the run.",
        tables=report.tables("elections", "election_causes"),
    )


def _runs(report: Report) -> Section:
    return Section(
        id="runs",
        title="All runs",
        words="Each run has a link to its page, or to its folder if it has no page yet.",
        tables=report.tables("judged"),
    )
