"""The layout and the links of a run's page, in a real browser."""

import re
from importlib import resources

import pytest

from harness.case import Case
from harness.ops import CheckResult, History, Verdict
from harness.store import load_run
from results.report.verb import main as report_main
from results.run.page.build import build
from results.run.page.summary import about, read_results
from tests.results.run.page.runs import MS, S, Script, show, small_run, stale_read, write_run
from tests.support.browser import browser_test
from tests.support.run_folders import keep_torn

TEXTS = """() => new Promise((done) => {
  const texts = [], draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    texts.push(text);
    return draw.call(this, text, ...rest);
  };
  harnessPage.redraw();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    CanvasRenderingContext2D.prototype.fillText = draw;
    done(texts);
  }));
})"""
"""A script that redraws the canvases and returns their texts."""


def heading(page):
    return page.inner_text("#detail h2")


def test_one_line_tells_a_run_from_its_neighbours(tmp_path):
    history = small_run()
    case = Case(seed=7, bugs=("NO-LEASE",), nemeses=("partition-leader", "kill-leader"))
    stored = load_run(write_run(tmp_path, history, [stale_read(history)], case=case))
    line = about(stored)
    assert line == build(stored, read_results(stored.folder))["about"]
    for part in ("kudu/", "bug NO-LEASE", "partition-leader, kill-leader", "in sim", "seed 7"):
        assert part in line
    clean = load_run(write_run(tmp_path / "other", history, [stale_read(history)]))
    assert "bug" not in about(clean)


# Colours of texts and their backgrounds, by the names of the style's variables.
WORDS = [
    *[(name, ground) for name in ("ink", "soft", "red", "link") for ground in ("paper", "panel")],
    *[
        ("paper", ground)
        for ground in ("valid", "unknown", "red", "soft", "lead", "down", "paused")
    ],
    *[(name, "paper") for name in ("fail-text", "info-text")],
]


def themes():
    """Return the colours of the light theme, the dark theme, and a dark system, by name."""
    style = (resources.files("results.run.page") / "assets" / "page.css").read_text()
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", style)
    return [dict(re.findall(r"--([a-z0-9-]+):\s*#([0-9a-f]{6})", block)) for block in blocks]


def luminance(colour):
    """Return the relative luminance, as WCAG 2.2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("theme", [0, 1, 2])
@pytest.mark.parametrize(("words", "ground"), WORDS)
def test_words_can_be_read(theme, words, ground):
    colours = themes()[theme]
    high, low = sorted((luminance(colours[name]) for name in (words, ground)), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= 4.5  # WCAG 2.2, 1.4.3, level AA


def test_a_dark_system_and_the_dark_theme_look_alike():
    light, dark, system = themes()
    assert dark == system != light


@browser_test
def test_that_line_stands_under_the_verdict(shared_page):
    assert shared_page.inner_text("#about").endswith("in sim · seed 7")


@browser_test
def test_a_bar_of_a_leader_that_still_answers_says_so(shared_page):
    assert "still answers in term 1" in shared_page.evaluate(TEXTS)
    # the last 15 ms of the axis leave no room for a label
    shared_page.evaluate("() => harnessPage.view.set(1000e6, 1800e6)")
    assert not [text for text in shared_page.evaluate(TEXTS) if text.startswith("still")]


@browser_test
def test_faults_and_leaders_are_reached_without_a_pointer(shared_page):
    press = shared_page.keyboard.press
    press("0")
    press("Escape")
    press("f")
    assert "cut m1 off" in shared_page.inner_text("#said")
    press("Shift+F")
    for key, wanted in (
        ("f", "fault partition-leader-1"),
        ("f", "fault kill-leader-1"),
        ("f", "fault partition-leader-1"),
        ("Shift+F", "fault kill-leader-1"),
        ("Shift+L", "m2 leads in term 2"),
        ("Shift+L", "m1 leads in term 1"),
        ("l", "m2 leads in term 2"),
    ):
        press(key)
        assert heading(shared_page) == wanted
    assert shared_page.evaluate(
        "() => harnessPage.view.from <= 500e6 && harnessPage.view.to >= 1e9"
    )


@browser_test
def test_faults_of_one_moment_are_all_passed(browser_page, tmp_path):
    script = Script().fact(0, "phase", {"phase": "chaos"})
    for node in ("m1", "m2", "m3"):
        fault = {"fault": f"cut-{node}", "targets": [node], "note": f"cut {node} off"}
        script.nemesis(100, "cut", action="inject", **fault)
        script.nemesis(200, "cut", action="heal", **fault)
    script.op(50, 60, 0, "list", {}, "ok", {"tables": [], "term": 1})
    valid = CheckResult("stats", Verdict.VALID, "fine")
    show(browser_page, write_run(tmp_path, script.history(), [valid]))
    seen = []
    for _ in range(4):
        browser_page.keyboard.press("f")
        seen.append(heading(browser_page))
    assert seen == ["fault cut-m1", "fault cut-m2", "fault cut-m3", "fault cut-m1"]


@browser_test
def test_a_sentence_brings_the_timeline_into_a_small_window(browser_page, made_page):
    browser_page.set_viewport_size({"width": 400, "height": 600})
    browser_page.open(made_page)
    browser_page.wait_for_selector("html[data-ready]")
    box = "() => document.getElementById('operations').getBoundingClientRect().toJSON()"
    before = browser_page.evaluate(box)["top"]
    wanted = stale_read(small_run()).operations[1]
    browser_page.click(f"#why li button:text-is('op {wanted}')")
    after = browser_page.evaluate(box)
    assert before > 600
    assert 0 <= after["top"] < after["bottom"] <= 600


@browser_test
def test_there_is_no_leader_after_the_leader_ended(shared_page):
    late = next(pair for pair in small_run().pairs if pair.invoke.time == 1010 * MS)
    shared_page.evaluate(f"() => harnessPage.page.selectIndex({late.invoke.index})")
    text = shared_page.inner_text("#detail")
    assert "no leader: m2 led in term 2 until 1.000 s, when its process ended" in text
    assert "m2 leads" not in text


@browser_test
def test_the_part_in_view_is_as_long_as_it_says(shared_page):
    shared_page.evaluate("() => harnessPage.view.fit()")
    status = "document.getElementById('status').textContent"  # updated with the next frame
    shared_page.wait_for_function(f"() => {status}.startsWith('0.000 s to 1.800 s (1.800 s)')")


@browser_test
def test_a_printed_page_has_all_panels_as_they_are_now(browser_page, made_page):
    browser_page.set_viewport_size({"width": 900, "height": 300})
    browser_page.open(made_page)
    browser_page.wait_for_selector("html[data-ready]")
    browser_page.evaluate("() => harnessPage.view.fit()")
    rate = "() => document.getElementById('table-lanes').toDataURL()"
    before = browser_page.evaluate(rate)
    browser_page.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    assert browser_page.evaluate(rate) != before


@browser_test
def test_the_bar_of_tools_is_one_line_in_a_usual_window(open_page):
    open_page.evaluate(
        "() => { document.getElementById('count').textContent = '123,456 operations'; }"
    )
    tops = open_page.evaluate("""() => Array.from(document.querySelectorAll('#bar > *:not(.gap)'))
      .map((e) => e.getBoundingClientRect())
      .filter((box) => box.height).map((box) => Math.round(box.top + box.height / 2))""")
    assert max(tops) - min(tops) < 10


@browser_test
def test_a_run_that_was_cut_short_says_so_and_how_to_judge_it(browser_page, tmp_path):
    folder = keep_torn(tmp_path, "made", "run-1", Case(seed=7), small_run())
    show(browser_page, folder)
    assert browser_page.inner_text("#notes").split("\n\n") == [
        "The run was cut short: its history comes from the op log.",
        "This run was never checked: there is no results.json in its folder.",
    ]
    line = browser_page.inner_text(".replay")
    assert line.split()[:4] == ["Judge", "it", "harness", "check"]


def far_apart(told):
    """Build a run of 100 s that has an anomaly of three operations every 10 s."""
    script = Script().fact(0, "phase", {"phase": "chaos"})
    for start in range(10_000, 100_000, 10_000):
        for process in range(3):
            begin = start + 100 * process
            script.op(begin, begin + 50, process, "list", {}, "ok", {"tables": [], "term": 1})
    history = script.history()
    named = tuple(pair.invoke.index for pair in history.pairs)
    sentences = [" and ".join(f"op {index}" for index in named[:told])]
    verdict = CheckResult("elle", Verdict.INVALID, "several", tuple(sentences), named)
    return history, verdict


@browser_test
@pytest.mark.parametrize(("told", "last_ms"), [(3, 10_250), (4, 20_050), (27, 10_250), (0, 10_250)])
def test_of_many_anomalies_the_one_explained_is_shown(browser_page, tmp_path, told, last_ms):
    history, verdict = far_apart(told)
    show(browser_page, write_run(tmp_path, history, [verdict]))
    begin, end = browser_page.evaluate("() => [harnessPage.view.from, harnessPage.view.to]")
    assert 9_000 * MS < begin < 10_000 * MS or told == 4
    assert begin < 10_000 * MS
    assert last_ms * MS < end < 1.4 * last_ms * MS
    browser_page.keyboard.press("p")  # `p` goes from the first anomaly to the last one
    assert harness_selected(browser_page) == verdict.operations[-1]


def waited(fact, took_s, ok=False):
    """Build a run in which the target was healed at 10 s and the harness waited afterwards."""
    script = Script().fact(0, "phase", {"phase": "chaos"})
    script.op(9_000, 9_010, 0, "list", {}, "ok", {"tables": [], "term": 1})
    value = {"ok": ok, "took_s": took_s, "bound_s": took_s}
    script.fact(10_000 + 1000 * took_s, fact, value).fact(200_000, "phase", {"phase": "final"})
    history = script.history()
    (index,) = [op.index for op in history.facts(fact)]
    return history, CheckResult("liveness", Verdict.INVALID, "late", ("Late.",), (index,))


@browser_test
def test_a_promise_about_a_stretch_of_time_opens_on_all_of_it(browser_page, tmp_path):
    history, verdict = waited("live", 60)
    show(browser_page, write_run(tmp_path, history, [verdict]))
    begin, end = browser_page.evaluate("() => [harnessPage.view.from, harnessPage.view.to]")
    assert begin < 10 * S
    assert 70 * S < end < 150 * S
    assert heading(browser_page) == "live"


@browser_test
def test_the_output_of_a_crashed_node_is_folded(browser_page, tmp_path):
    exited = {"node": "m1", "code": 1, "expected": False, "log": ["Traceback", "Lost: its disk"]}
    script = Script().fact(0, "phase", {"phase": "chaos"}).fact(5_000, "node-exit", exited)
    script.op(9_000, 9_010, 0, "list", {}, "ok", {"tables": [], "term": 1})
    sentences = ("Node m1 ended by itself.", "The log of m1 ends with:\nTraceback\nLost: its disk")
    verdict = CheckResult(
        "crash", Verdict.INVALID, "m1", sentences, (1,), {"rule": "unexpected-exit"}
    )
    show(browser_page, write_run(tmp_path, script.history(), [verdict]))
    assert browser_page.locator("#why ol > li").count() == 2
    assert not browser_page.is_visible("#why pre")
    assert "Lost: its disk" in browser_page.locator("#why pre").text_content()
    assert heading(browser_page) == "m1: node-exit"
    begin, end = browser_page.evaluate("() => [harnessPage.view.from, harnessPage.view.to]")
    assert 2 * S < begin < 5 * S < end < 8 * S


@browser_test
def test_a_permitted_deviation_is_not_red(browser_page, tmp_path):
    found = stale_read(small_run())
    permitted = CheckResult("c", Verdict.PERMITTED, "r", found.explanation, found.operations)
    show(browser_page, write_run(tmp_path, small_run(), [permitted]))
    assert browser_page.inner_text("#anomaly") == "Deviation"
    words = browser_page.inner_text("#detail .blame")
    assert "permits" in words
    assert "counterexample" not in words
    link, blame, red = browser_page.evaluate("""() => ["--link", "--blame", "--red"].map(
      (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim())""")
    assert blame == link != red


@browser_test
def test_the_address_follows_the_view(open_page):
    address = "() => location.hash"
    assert open_page.evaluate(address) == ""
    open_page.select_option("#kind", "get")
    open_page.evaluate("() => harnessPage.view.set(0.5e9, 0.9e9)")
    index = stale_read(small_run()).operations[0]
    open_page.evaluate(f"() => harnessPage.page.selectIndex({index})")
    wanted = f"#op={index}&at=0.500000..0.900000&kind=get"
    open_page.wait_for_function(f"() => location.hash === {wanted!r}")
    open_page.evaluate("() => location.reload()")
    open_page.wait_for_selector("html[data-ready]")
    assert open_page.evaluate(address) == wanted
    assert harness_selected(open_page) == index
    assert open_page.inner_text("#count") == "2 of 8 operations"
    view = open_page.evaluate("() => [harnessPage.view.from, harnessPage.view.to]")
    assert view == pytest.approx([0.5 * S, 0.9 * S])


@browser_test
def test_a_name_of_tables_has_a_lane_with_segments(shared_page):
    shared_page.evaluate("() => harnessPage.view.fit()")
    shared_page.locator("#table-lanes").scroll_into_view_if_needed()
    shared_page.wait_for_function(
        "() => harnessPage.panels.find((one) => one.canvas?.id === 'table-lanes').visible"
    )
    texts = shared_page.evaluate(TEXTS)
    assert [text for text in texts if text in {"t1", "t2", "t5"}] == ["t1", "t2", "t5"]
    assert texts.count("aaaa11") == 2  # the table was renamed


@browser_test
def test_a_kind_has_one_colour_in_all_workloads(browser_page, tmp_path):
    colours = {}
    for name, kinds in (("a", ("get", "create", "odd")), ("b", ("create", "alter", "get"))):
        script = Script()
        for n, kind in enumerate(kinds):
            script.op(10 * n, 10 * n + 5, 0, kind, {}, "ok")
        valid = CheckResult("c", Verdict.VALID, "r")
        show(browser_page, write_run(tmp_path, script.history(), [valid], name=name))
        rows = browser_page.evaluate("""() => Array.from(document.querySelectorAll("#kinds th"),
          (cell) => [cell.textContent, cell.querySelector("i").style.background])""")
        assert len({colour for _, colour in rows}) == len(rows)
        colours[name] = dict(rows)
    assert all(colours["a"][kind] == colours["b"][kind] for kind in ("get", "create"))


def harness_selected(page):
    return page.evaluate("() => harnessPage.page.ops.index[harnessPage.page.selected]")


@browser_test
def test_times_do_not_run_into_the_name_of_the_axis(shared_page):
    places = """(from) => new Promise((done) => {
      harnessPage.view.set(from, from + 400e6);
      const pen = document.getElementById("axis").getContext("2d"), lefts = [];
      pen.fillText = (text, x) => lefts.push([text, x - pen.measureText(text).width / 2]);
      harnessPage.redraw();
      const drawn = () => { delete pen.fillText; done(lefts); };
      requestAnimationFrame(() => requestAnimationFrame(drawn));
    })"""
    for start_ms in range(580, 620, 5):
        drawn = shared_page.evaluate(places, start_ms * MS)
        times = [left for text, left in drawn if text.endswith(" s")]
        assert len(times) > 2
        # the axis's name ends at 104, so labels must begin after it
        assert min(times) >= 108, (start_ms, drawn)


def test_results_of_another_history_are_not_shown(tmp_path, capsys):
    folder = write_run(tmp_path, small_run(), [CheckResult("stats", Verdict.VALID, "kept")])
    assert report_main([str(folder)]) == 0
    assert build(load_run(folder), read_results(folder))["verdict"] == "valid"
    other = write_run(tmp_path, History(small_run()[:-1]), [stale_read(small_run())], name="other")
    (folder / "history.parquet").write_bytes((other / "history.parquet").read_bytes())
    capsys.readouterr()
    assert report_main([str(folder)]) == 2
    assert "history.parquet" in capsys.readouterr().err
    data = build(load_run(folder), read_results(folder))
    assert (data["verdict"], data["checkers"], data["focus"]) == ("unknown", [], ())
    assert "history.parquet" in data["notes"][0]
    assert data["replay"] == f"harness check {folder}"
    assert [load_run(path).foreign for path in (folder, other)] == [True, False]
