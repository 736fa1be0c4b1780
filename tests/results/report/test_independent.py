"""Every number on the page equals an independent computation over the same histories."""

import html
import html.parser
import math
import re
import statistics
import urllib.parse

import pytest

from results.questions.engines import kind_of, query_names
from results.report.layouts import LAYOUTS
from results.report.number_words import NOTHING, TIMES
from results.report.populations import Populations
from results.statistics.estimates import student_quantile
from tests.results.report.oracle import arrangements, middle, rank
from tests.results.report.stores import COMPARED

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

INPUTS = {"slowest", "percentiles", "baseline_runs", "detection", "clean_runs", "totals"} | {
    name for name in query_names() if kind_of(name) == "cells"
}
"""Answers that the page does not show; only statistics and other questions use them."""
ANSWERS = sorted(
    ({*query_names()} - INPUTS)
    | {"detection_rates", "clean_rates", "uplift_ratios", "signatures"}
    | {"costs", "detectability", "detection_curves", "survival", "trend_by_code", "trend_by_day"}
    | {"uplift_by_role", "uplift_stratified"}
)
OF_ALL = {"cost_cells", "costs", "digest_cells", "totals"}
"""Totals of counts and costs over all runs, without rates or comparisons."""


def same(value, expected):
    """Whether two values are equal, apart from the rounding of fractions."""
    if isinstance(value, float) and isinstance(expected, float | int):
        return value == pytest.approx(expected, rel=1e-9, abs=1e-12)
    return value == expected


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_equal_the_independent_computation(reported, oracle, name):
    _, answers, _ = reported
    mine, theirs = answers.rows(name), getattr(oracle, name)()

    assert len(mine) == len(theirs)
    if not mine:
        return
    columns = [column for column in theirs[0] if column != "log_se"]
    texts = [
        name
        for name in columns
        if name == "population"
        or all(isinstance(row[name], str | bool | None) for row in [*mine, *theirs])
    ]
    sort = lambda rows: sorted(rows, key=lambda row: [repr(row[name]) for name in texts])  # noqa: E731
    for ours, other in zip(sort(mine), sort(theirs), strict=True):
        for column in columns:
            assert same(ours[column], other[column]), (column, ours, other)


def test_every_answer_is_compared_or_an_input():
    assert {*query_names()} <= {*ANSWERS, *INPUTS}


IDENTITY = {
    "uplift_ratios": ("population", "nemesis", "outcome"),
    "uplift_by_role": ("population", "nemesis", "phase", "role", "against"),
    "uplift_stratified": ("workload", "bugs", "nemesis", "outcome"),
}


@pytest.mark.parametrize("name", sorted(IDENTITY))
def test_intervals_of_uplift_equal_the_covariance_of_totals(reported, oracle, name):
    _, answers, _ = reported
    names = IDENTITY[name]
    found = {tuple(row[name] for name in names): row for row in answers.rows(name)}
    compared = 0
    for other in getattr(oracle, name)():
        row = found[tuple(other[name] for name in names)]
        if other["log_se"] is None:
            assert row["low"] is None
            assert row["why"]
            continue
        half = student_quantile(0.975, other["runs"] - other.get("strata", 1)) * other["log_se"]
        assert math.log(row["low"]) == pytest.approx(math.log(other["ratio"]) - half, abs=1e-6)
        assert math.log(row["high"]) == pytest.approx(math.log(other["ratio"]) + half, abs=1e-6)
        compared += 1
    assert compared >= 8


def test_the_summary_equals_the_independent_computation(reported, oracle):
    summary, _, _ = reported
    for name, value in oracle.totals().items():
        assert getattr(summary, name) == value, name
    for verdict, n in summary.verdicts.items():
        assert n == sum(run.verdict == verdict for run in oracle.runs)
    assert summary.exit_code == 1


# --- the page ------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """A parser of the page: tables by id, as rows of (text, data-v), and titles of drawings.

    The heading line of a population becomes a column of the rows below it.
    """

    def __init__(self, text):
        super().__init__()
        self.tables, self.titles, self.drawn = {}, [], []
        self._table = self._cell = self._title = self._head = self._at = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "table" and "id" in given:
            name = given["id"].removeprefix("table-")
            self._table, self._head = self.tables.setdefault(name, []), None
            columns = [field for field, _, _ in LAYOUTS[name].columns]
            self._at = columns.index("of") if "of" in columns else None
        elif tag == "th" and given.get("scope") == "rowgroup":
            self._head = ""
        elif tag == "tr" and self._table is not None:
            self._table.append([])
        elif tag == "td" and self._table is not None:
            self._cell = ["", given.get("data-v")]
        elif tag == "title":
            self._title = ""
        elif tag == "rect":
            self.drawn.append(given)

    def handle_data(self, data):
        if self._cell is not None:
            self._cell[0] += data
        elif self._title is not None:
            self._title += data
        elif self._head == "":
            self._head = data

    def handle_endtag(self, tag):
        if tag == "td" and self._cell is not None:
            self._table[-1].append(tuple(self._cell))
            self._cell = None
        elif tag == "tr" and self._table and self._table[-1] and self._head is not None:
            self._table[-1].insert(self._at, (self._head, None))
        elif tag == "table":
            self._table = None
        elif tag == "title":
            self.titles.append(self._title)
            self._title = None


UNITS = {
    "ns": 1,
    "µs": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "min": 6e10,
    "h": 3.6e12,
    "%": 0.01,
    TIMES: 1,
    "B": 1,
    "kB": 1024,
    "MB": 1024**2,
}


def read_back(text):
    """Parse a cell: the sign of a bound, the number, and half a unit of its last digit."""
    if text == NOTHING:
        return None
    match = re.fullmatch(r"([<>] )?([\d,]+)(?:\.(\d+))?(?: (\S+))?", text)
    assert match, text
    unit = UNITS[match[4] or TIMES]
    number = float(f"{match[2]}.{match[3] or 0}".replace(",", ""))
    return match[1], number * unit, 0.5001 * 10 ** -len(match[3] or "") * unit


EMPTY = {"changed_verdicts", "permitted", "flakes", "signature_changes", "regressions"}
PARTS = {"uplift_ratios", "trend_by_code", "trend_by_day"}
"""Tables of which the page shows only a part."""


@pytest.fixture(scope="module")
def page(reported):
    return Page(reported[2].read_text())


def rows_of(oracle, answers, name):
    source = LAYOUTS[name].source or name
    if source == "regressions":
        return answers.rows(source)
    return getattr(oracle, source)()


def test_the_page_shows_every_table(page):
    assert set(page.tables) == set(LAYOUTS) - EMPTY


@pytest.mark.parametrize("name", sorted(set(LAYOUTS) - EMPTY))
def test_cells_agree_with_the_independent_computation(page, reported, oracle, name):
    layout = LAYOUTS[name]
    shown = [row for row in page.tables[name] if row]
    expected = rows_of(oracle, reported[1], name)
    numeric = [
        (at, field)
        for at, (field, _, way) in enumerate(layout.columns)
        if way in {"count", "ns", "share", "ratio", "p", "size"}
    ]
    pool = [tuple(row[field] for _, field in numeric) for row in expected]
    if layout.source is None and name not in PARTS:
        assert len(shown) == min(len(expected), layout.limit)
    for row in shown:
        raw = [None if row[at][1] is None else float(row[at][1]) for at, _ in numeric]
        match = next(
            (p for p in pool if all(same(x, y) for x, y in zip(raw, p, strict=True))),
            None,
        )
        assert match is not None, row
        pool.remove(match)
        for (at, _), value in zip(numeric, raw, strict=True):
            found = read_back(row[at][0])
            if value is None:
                assert found is None
                continue
            sign, number, half_digit = found
            if sign is None:
                assert number == pytest.approx(value, abs=half_digit), row[at]
                assert half_digit <= 0.06 * number or number == value, row[at]
            else:
                assert (value < number) == (sign == "< "), row[at]


def within(text, value):
    """Whether a string parses to a value, within the string's precision."""
    sign, number, half_digit = read_back(text)
    if sign is None:
        return number == pytest.approx(value, abs=half_digit)
    return (value < number) == (sign == "< ")


@pytest.mark.parametrize("name", ["detection_rates", "clean_rates", "uplift_ratios"])
def test_intervals_on_the_page_are_the_independent_ones(page, reported, oracle, name):
    columns = [field for field, _, _ in LAYOUTS[name].columns]
    shown = [row for row in page.tables[name] if row]
    identity = [
        at for at, name in enumerate(columns) if name in {"of", "bug", "nemesis", "outcome"}
    ]
    rows = {tuple(row[at][0] for at in identity): row for row in shown}
    of = Populations(reported[1].rows("populations"))
    for other in getattr(oracle, name)():
        other["of"] = of.words(other["population"])
        key = tuple(other[columns[at]] for at in identity)
        if key not in rows:
            continue  # the second table has these numbers by kind of operation
        text = rows.pop(key)[columns.index("range")][0]
        if name != "uplift_ratios":
            low, high = other["low"], other["high"]
        elif other["log_se"] is None:
            assert text == NOTHING
            continue
        else:
            half = student_quantile(0.975, other["runs"] - 1) * other["log_se"]
            low, high = other["ratio"] * math.exp(-half), other["ratio"] * math.exp(half)
        left, right = text.split(" … ")
        assert within(left, low), (text, low)
        assert within(right, high), (text, high)
    assert not rows


def test_comparisons_of_labels_equal_brute_force(reported, oracle):
    _, answers, _ = reported
    lines = {(row["setting"], row["metric"]): row for row in answers.rows("regressions")}
    done = 0
    for (nemeses,) in COMPARED:
        runs = [
            run
            for run in oracle.runs
            if run.nemeses == nemeses and not run.bugs and run.case.workload == "ddl"
        ]
        sides = [[run for run in runs if run.label == label] for label in ("old", "new")]
        setting = next(s for s, _ in lines if s.startswith(f"ddl under {nemeses} ("))
        for metric, value in METRICS.items():
            values = [[value(run) for run in side] for side in sides]
            row = lines[setting, metric]
            if metric.endswith(("p50", "p99")):
                expected = [float(rank(side, 500)) for side in values]
            else:
                expected = [statistics.fmean(side) for side in values]
            assert [row["baseline_value"], row["label_value"]] == pytest.approx(expected), metric
            if metric not in {"invalid", "unknown"}:
                assert row["p_value"] == pytest.approx(arrangements(*values)), metric
            else:
                assert row["p_value"] == pytest.approx(1.0)
            assert [row["baseline_runs"], row["label_runs"]] == [3, 2]
            done += 1
    assert done == 2 * len(METRICS)
    for row in lines.values():
        assert row["p_value"] <= row["p_adjusted"] <= min(1.0, len(lines) * row["p_value"])
        assert row["verdict"] == "no evidence"  # 3 runs against 2 are too few for evidence


METRICS = {
    "invalid": lambda run: float(run.verdict == "invalid"),
    "unknown": lambda run: float(run.verdict == "unknown"),
    "unanswered operations": lambda run: (
        sum(op["type"] == "fail" and not op["answered"] for op in run.ops) / len(run.ops)
    ),
    "operations lost to info": lambda run: (
        sum(op["type"] == "info" for op in run.ops) / len(run.ops)
    ),
    "mutations unavailable": lambda run: run.down("mutation", 0, run.end) / run.end,
    "reads unavailable": lambda run: run.down("read", 0, run.end) / run.end,
    **{
        f"{f} p{q // 10}": lambda run, f=f, q=q: rank(
            [middle(op["latency"]) for op in run.ops if op["f"] == f and op["type"] == "ok"], q
        )
        for f in ("get", "list", "create")
        for q in (500, 990)
    },
}


def test_every_run_is_linked_and_every_failure_says_how_to_run_it_again(reported, oracle):
    text = reported[2].read_text()
    for run in oracle.runs:
        assert f'<a href="../{run.key}/' in text
    for row in oracle.failing_runs():
        assert f"{row['run']}/case.json</code>" in text
        assert html.escape(row["signature"]) in text
        assert html.escape(row["reason"], quote=False).split("'")[0] in text


def test_numbers_of_runs_lead_to_as_many_runs(reported):
    answers = reported[1]
    failures = {
        row["run"]: " · ".join(row["signature"].split(" · ")[:3])
        for row in answers.rows("failing_runs")
    }
    runs = [{**row, "signature": failures.get(row["run"])} for row in answers.rows("judged")]
    pattern = r'<td class="number" data-v="(\d+)"><a href="\.\./\?([^"]*)">'
    found = re.findall(pattern, reported[2].read_text())
    for number, query in found:
        filters = dict(urllib.parse.parse_qsl(html.unescape(query), strict_parsing=True))
        own = [run for run in runs if all(has(run, *each) for each in filters.items())]
        assert len(own) == int(number), filters
    assert len(found) > 100
    names = {name for _, query in found for name, _ in urllib.parse.parse_qsl(html.unescape(query))}
    assert {"setting", "label", "day", "code", "signature", "verdict", "nemesis"} <= names


def has(run, name, value):
    if name in {"bug", "nemesis"}:
        there = run["bugs" if name == "bug" else "nemeses"].split("+")
        return set(value.split(",")) <= set(there)
    return (str(run[name]) if run[name] not in {None, ""} else "(none)") == value


def test_no_answer_adds_up_runs_of_several_populations(reported):
    answers = reported[1]
    for name in sorted(answers.tables.keys() - {"digest_cells", "totals"}):
        columns = set(answers.tables[name].column_names)
        assert name in OF_ALL or columns & {"population", "populations", "run", "setting"}, name


def test_the_limit_of_a_table_is_said(page, reported, oracle):
    text = reported[2].read_text()
    beyond = len(oracle.latency_by_run()) - 20

    assert f"{beyond} more rows are in <code>answers/latency_by_run.parquet</code>" in text


def test_bars_are_as_long_as_their_numbers(page, reported, oracle):
    alike = oracle.populations()
    of = Populations(reported[1].rows("populations"))
    longest = max(row["runs"] for row in alike)
    expected = set()
    for row in alike:
        for verdict in ("valid", "unknown", "invalid"):
            if row[verdict]:
                words = of.words(row["population"])
                kind = "invalid with a bug" if verdict == "invalid" and row["bugs"] else verdict
                expected.add((f"{words}: {row[verdict]} {kind}", row[verdict]))
    assert {text for text, _ in expected} <= set(page.titles)
    kinds = {"valid", "unknown", "invalid", "expected"}
    widths = [float(bar["width"]) for bar in page.drawn if bar["class"] in kinds]
    scale = 420 / longest
    for text, n in expected:
        assert any(width == pytest.approx(n * scale, abs=0.01) for width in widths), text
