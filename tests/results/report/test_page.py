"""The page of a report in a real browser, also with hostile strings."""

import itertools
import re

import msgspec
import pytest

from harness.case import Case
from harness.ops import CheckResult, Verdict
from results.report import plots
from results.report.page import OPEN_ROWS_MAX
from results.report.populations import Populations
from results.report.report import report
from results.report.tables import Layout, make_table
from tests.results.report.histories import Script
from tests.support.browser import browser_test
from tests.support.run_folders import keep_run

EVIL = (
    "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&{{7*7}}${7*7}</style>"
)


def evil_store(store):
    script = Script()
    script.fact(0, "leader", node=EVIL, term=1)
    script.phase(1, "chaos")
    script.inject(5, EVIL, EVIL, targets=(EVIL,))
    for number in range(30):
        script.do(10 + number * 100, 15 + number * 100, f=EVIL, node=EVIL, value={"result": EVIL})
        script.do(20 + number * 100, 900 + number * 100, "fail", f=EVIL, error=f"{EVIL}: {EVIL}")
        script.do(30 + number * 100, 950 + number * 100, "info", f=EVIL, error=EVIL)
    script.heal(2000, EVIL, EVIL)
    script.fact(2500, "leader", node=EVIL, term=2)
    script.phase(9000, EVIL)
    script.do(9001, 9002, f=EVIL, node=EVIL)
    history = script.history()
    for seed, label in ((1, EVIL), (2, EVIL), (3, "b")):
        case = Case(seed=seed, workload="register", nemeses=(EVIL,), bugs=(EVIL,), profile=EVIL)
        results = [CheckResult("stats", Verdict.INVALID, EVIL)]
        record = {"run": EVIL, "environment": EVIL, "started": EVIL, "versions": {EVIL: EVIL}}
        keep_run(
            store, "evil", f"run-{seed}", case, history, results,
            verdict=Verdict.INVALID, label=label, **record,
        )  # fmt: skip
    broken = store / "evil" / "broken"
    broken.mkdir()
    (broken / "case.json").write_bytes(msgspec.json.encode({EVIL: EVIL}))
    return store


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    store = evil_store(tmp_path_factory.mktemp("evil"))
    return report(str(store), executor="inline", baseline="b")


@pytest.mark.xdist_group("spark")
def test_hostile_text_stays_text(evil):
    text = evil[2].read_text()

    assert "&lt;script&gt;document.title" in text
    for sign in ("<script", "<img", 'onerror=alert(1)>"', '</style>"'):
        assert sign not in text
    assert text.count("</style>") == 1
    assert "49" not in text.split("<tbody>")[1][:2000] or "{{7*7}}" in text


@pytest.mark.slow
@browser_test
def test_hostile_text_does_nothing_in_a_browser(evil, browser_page):
    browser_page.open(evil[2])

    assert "owned" not in browser_page.title()
    assert browser_page.evaluate("document.querySelectorAll('script, img').length") == 0
    assert browser_page.evaluate("document.querySelectorAll('table').length") > 10
    assert browser_page.requests == [evil[2].resolve().as_uri()]


@pytest.mark.slow
@browser_test
def test_the_page_fits_and_is_readable(reported, browser_page):
    browser_page.open(reported[2])
    for width, scheme in itertools.product((380, 1280), ("light", "dark")):
        browser_page.page.emulate_media(color_scheme=scheme)
        browser_page.page.set_viewport_size({"width": width, "height": 800})

        assert browser_page.evaluate("document.documentElement.scrollWidth") <= width
        for selector in ("body", "section > p", "svg text", "td", "th", "header h1", ".cut"):
            contrast = browser_page.evaluate(CONTRAST, selector)
            assert contrast >= 4.5, (selector, scheme)
        assert browser_page.evaluate(OVERFLOW) == []


CONTRAST = """selector => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    return .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
  };
  const element = document.querySelector(selector);
  const style = getComputedStyle(element);
  const text = parse(selector.startsWith('svg') ? style.fill : style.color);
  let behind = element;
  let back = [0, 0, 0, 0];
  while (behind && (back.length === 4 && back[3] === 0)) {
    back = parse(getComputedStyle(behind).backgroundColor);
    behind = behind.parentElement;
  }
  const [a, b] = [light(text), light(back)].sort((x, y) => y - x);
  return (a + .05) / (b + .05);
}"""
OVERFLOW = """() => [...document.querySelectorAll('svg text.label')]
  .filter(text => text.getBBox().x < 0).map(text => text.textContent)"""


@pytest.mark.slow
@browser_test
def test_sections_are_reached_and_tables_open(reported, browser_page):
    browser_page.open(reported[2])
    browser_page.click("nav >> text=Latency")
    assert browser_page.evaluate("location.hash") == "#latency"
    closed = browser_page.locator("#latency details:not([open]):has(#table-latency_by_active)")
    closed.locator("summary").click()
    assert browser_page.locator("#table-latency_by_active").is_visible()


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_the_page_is_bounded_and_needs_nothing_else(reported):
    text = reported[2].read_text()

    assert len(text) < 1_000_000
    assert "http" not in text.replace("http-equiv", "")
    assert "src=" not in text
    assert "default-src 'none'" in text


@pytest.mark.xdist_group("spark")
def test_every_id_of_the_page_is_there_once(reported):
    page = reported[2].read_text(encoding="utf-8")
    ids = re.findall(r' id="([^"]*)"', page)

    assert len(ids) == len({*ids})
    assert {"availability", "table-availability"} <= {*ids}
    assert {*re.findall(r'href="#([^"]*)"', page)} <= {*ids}


@pytest.mark.xdist_group("spark")
def test_sections_begin_with_how_to_read_them_and_long_lists_are_folded(reported):
    page = reported[2].read_text(encoding="utf-8")
    readings = re.findall(r"</h2>\n<details class=\"method\"><summary>(.*?)<span>", page)
    tables = re.findall(r"<details( open)?>\n<summary>.*? <small>(\d+)</small></summary>", page)

    assert len(readings) == page.count('class="method"') > 10
    assert all(re.search(r"\d", text) for text in readings)
    assert page.count("<details open>") > 3
    assert sum(int(rows) > OPEN_ROWS_MAX for is_open, rows in tables if is_open) <= 1


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: plots.stacked("x", [("row", [1])] * n, [("valid", "valid")]),
        lambda n: plots.shares("x", [("row", [0.5])] * n, [("with", "with")]),
        lambda n: plots.rates("x", [plots.Forest("row", 0.5, 0.4, 0.6)] * n),
        lambda n: plots.ratios("x", [plots.Forest("row", 2, 1, 3)] * n),
        lambda n: plots.latencies("x", [("row", [10])] * n, ["p50"]),
    ],
)
def test_a_drawing_says_how_many_rows_it_leaves_out(draw):
    assert (draw(plots.ROWS_MAX).not_shown, len(draw(plots.ROWS_MAX).rows)) == (0, plots.ROWS_MAX)
    assert (draw(plots.ROWS_MAX + 3).not_shown, len(draw(43).rows)) == (3, plots.ROWS_MAX)


def lines_of(*labels):
    plot = plots.stacked("Runs", [(label, [1]) for label in labels], [("valid", "valid")])
    return plot.title, [row.lines for row in plot.rows]


def test_labels_of_a_drawing_lose_their_common_parts_only():
    assert lines_of("v1 · ddl · kudu", "v2 · ddl · kudu") == (
        "Runs (ddl · kudu)",
        [("v1",), ("v2",)],
    )
    assert lines_of("kill: reads down", "cut: reads down")[1] == [("kill",), ("cut",)]
    assert lines_of("v1 · ddl") == ("Runs", [("v1 · ddl",)])
    assert lines_of("v1", "v1 · ddl") == ("Runs", [("v1",), ("v1 · ddl",)])
    assert lines_of("v1", "v1")[1] == [("v1",), ("v1",)]


def test_long_labels_have_two_lines_and_stay_distinct():
    long = "partition-leader: an operation fails without an answer of the target"
    _, (lines, _) = lines_of(long, "kill")
    assert " ".join(lines) == long

    _, cut = lines_of(*(f"{'word ' * 30}{end}" for end in "ab"))
    assert len({*cut}) == 2
    assert all(len(line) <= plots.LINE_CHARS_MAX for lines in cut for line in lines)


def test_rows_of_a_population_share_a_line_above_them():
    layout = Layout("x", (("of", "of which runs", "text"), ("n", "n", "count")))
    several = make_table("x", layout, [{"of": of, "n": 1} for of in "aabb"])
    single = make_table("x", layout, [{"of": of, "n": 1} for of in "abc"])

    assert (several.heads, [len(row) for row in several.rows]) == (("a", "", "b", ""), [1] * 4)
    assert ({*single.heads}, [len(row) for row in single.rows]) == ({""}, [2] * 3)


def test_settings_shared_by_most_populations_are_not_in_their_names():
    fields = ("label", "workload", "asked", "bugs", "environment", "target", "profile")
    rows = [
        {"population": n, "setting": str(n), **dict.fromkeys(fields, "same"), "asked": f"n{n}"}
        for n in range(4)
    ]
    rows[3] |= {"target": "hive", "bugs": ""}
    of = Populations(rows)

    assert [of.words(n) for n in range(4)] == ["n0", "n1", "n2", "n3 · no bug · hive"]
    assert (of.shared, of.usual) == ("same · same · same · same", "same · same")


def ends(path):
    """Return the points of a path: the pairs of numbers after M and L."""
    return [tuple(map(float, point.split())) for point in re.split("[ML]", path.rstrip("Z"))[1:]]


def test_curves_stay_in_their_frame_and_count_omitted_points():
    points = [(1, 0.1, 0.0, 0.3), (10, 0.5, 0.2, 0.9), (100, 1.0, 0.8, 1.0)]
    chart = plots.curves("x", [plots.Curve("row", points)] * 6, "seeds", logarithmic=True)

    assert (len(chart.lines), chart.not_shown) == (plots.CURVES_MAX, 2)
    line, band = ends(chart.lines[0].path), ends(chart.lines[0].band)
    middle = (chart.left + chart.right) / 2
    assert [x for x, _ in line] == pytest.approx([chart.left, middle, chart.right])
    heights = [tick.x for tick in chart.y_ticks]  # the heights of 0 %, 25 % and so on, up to 100 %
    assert [y for _, y in line][1:] == pytest.approx([heights[2], heights[4]])
    assert len(band) == 2 * len(points)
    assert all(heights[4] <= y <= heights[0] for _, y in (*line, *band))


def test_a_step_goes_on_level_and_then_down():
    chart = plots.curves(
        "x", [plots.Curve("row", [(0, 1.0, 1.0, 1.0), (4, 0.5, None, None)])], "ops", steps=True
    )
    (x, top), corner, bottom = ends(chart.lines[0].path)
    assert x < corner[0] == bottom[0]
    assert corner[1] == top < bottom[1]
    assert len({*ends(chart.lines[0].band)}) == 1  # the interval is known only at the first point


def test_a_curve_of_many_points_is_bounded():
    points = [(n, 1 - n / 10_000, 0.0, 1.0) for n in range(5_000)]
    chart = plots.curves("x", [plots.Curve("row", points)], "ops")
    assert len(ends(chart.lines[0].path)) == plots.POINTS_MAX + 1
    assert ends(chart.lines[0].path)[-1][0] == pytest.approx(chart.right)


def test_a_chart_of_nothing_is_empty():
    assert plots.curves("x", [plots.Curve("row", [])], "ops").lines == []
