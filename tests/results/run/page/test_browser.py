"""The page of a run in a real browser, also with hostile runs.

A console message, uncaught exception, dialog or network request fails a test
(`tests.support.browser`).
"""

import math
import random
import statistics

import pytest

from harness.case import Case
from harness.cli import main
from harness.ops import HARNESS, NEMESIS, Attempt, CheckResult, History, Op, OpType, Verdict
from harness.store import load_run
from results.run.page import build, read_results, render
from tests.results.run.page.runs import MS, S, Script, show, small_run, stale_read, write_run
from tests.support.browser import BROWSER_MARKS

pytestmark = BROWSER_MARKS

STATE = "() => ({from: harnessPage.view.from, to: harnessPage.view.to, begin: harnessPage.view.begin, end: harnessPage.view.end, selected: harnessPage.page.selected < 0 ? null : harnessPage.page.ops.index[harnessPage.page.selected]})"  # noqa: E501
FOUND = "() => Array.from(harnessPage.filter.found, (i) => harnessPage.page.ops.index[i])"


def state(page):
    return page.evaluate(STATE)


def indices(history, wanted):
    return [pair.invoke.index for pair in history.pairs if wanted(pair.invoke, pair.completion)]


# --- what the page shows ---------------------------------------------------------------------


def test_the_verdict_comes_first_with_the_counterexample_in_sentences(shared_page):
    assert shared_page.title() == "INVALID not linearizable · m2 · seed 7"
    assert shared_page.inner_text("#badge").lower() == "invalid"
    assert shared_page.inner_text("#headline").startswith("Wrong answer: No order explains op")
    assert "No order explains op" in shared_page.inner_text("#why")
    assert shared_page.inner_text("#replay") == "harness run"
    top = shared_page.evaluate("() => document.getElementById('why').getBoundingClientRect().top")
    assert top < 200


def test_the_first_view_of_an_invalid_run_shows_the_anomaly(open_page):
    history = small_run()
    focus = stale_read(history).operations
    pairs = [pair for pair in history.pairs if pair.invoke.index in focus]
    now = state(open_page)
    assert now["from"] < min(pair.invoke.time for pair in pairs)
    assert now["to"] > max(pair.completion.time for pair in pairs)
    assert now["to"] - now["from"] < (now["end"] - now["begin"]) / 2
    assert now["selected"] == focus[0]
    # the theme's red, in which invalid operations are framed
    open_page.wait_for_function("""() => {
      const canvas = document.getElementById("operations");
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let count = 0;
      for (let i = 0; i < data.length; i += 4)
        if (data[i] === 0xc8 && data[i + 1] === 0x1e && data[i + 2] === 0x2b) count++;
      return count > 100;
    }""")


def test_the_first_view_of_a_valid_run_is_all_of_it(browser_page, tmp_path):
    history = small_run()
    valid = CheckResult("stats", Verdict.VALID, "fine", details={"certificate": {"faults": ["x"]}})
    show(browser_page, write_run(tmp_path, history, [valid]))
    now = state(browser_page)
    assert (now["begin"], now["end"]) == (now["from"], now["to"])
    assert now["begin"] <= 0
    assert now["end"] >= 1800 * MS
    assert now["selected"] is None
    assert not browser_page.is_visible("#anomaly")
    assert browser_page.locator("#why details").count() == 0


def test_the_operations_that_contradict_each_other_are_drawn_by_time(shared_page):
    stale = stale_read(small_run()).operations[-1]
    words = shared_page.locator("#why svg.order text").all_text_contents()
    assert [text.split(" · ")[0].split()[1] for text in words] == sorted(
        (str(index) for index in stale_read(small_run()).operations), key=int
    )
    shared_page.click(f"#why svg.order g:has-text('op {stale} ') rect")
    assert state(shared_page)["selected"] == stale


def test_partial_linearizations_are_drawn_with_their_steps(browser_page, tmp_path):
    history = small_run()
    create, rename, read = (
        indices(history, lambda call, done, f=f: call.f == f)[0]
        for f in ("create", "rename", "get")
    )
    survivors = [
        {"state": "t1 is gone", "last": [create, rename], "pending": []},
        {"state": "t1 is there", "last": [create], "pending": [rename]},
    ]
    result = CheckResult(
        "linearizable-catalog", Verdict.INVALID, "no", ("No.",), (read,),
        {"failure": {"operation": read, "core": [create, rename, read], "survivors": survivors}},
    )  # fmt: skip
    show(browser_page, write_run(tmp_path, history, [result]))
    steps = browser_page.locator("#why svg.order .step")
    assert steps.all_text_contents() == ["1", "2"]
    failing = browser_page.locator("#why svg.order .failing text").text_content()
    assert failing.startswith(f"op {read} ")
    assert failing.endswith("has no possible place")
    assert "t1 is gone" in browser_page.locator("#why svg.order .state").text_content()
    browser_page.click("#why figure button")
    assert steps.all_text_contents() == ["1"]
    assert "t1 is there" in browser_page.locator("#why svg.order .state").text_content()


def test_a_cycle_is_shown_as_its_checker_drew_it(browser_page, tmp_path):
    drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"/>'
    history = small_run()
    index = indices(history, lambda call, done: call.f == "get")[0]
    details = {"drawings": [drawing, drawing]}
    result = CheckResult("elle-list-append", Verdict.INVALID, "no", ("No.",), (index,), details)
    show(browser_page, write_run(tmp_path, history, [result]))
    size = "() => { const one = document.images[0]; return [one.naturalWidth, one.naturalHeight]; }"
    assert browser_page.evaluate(size) == [30, 20]
    assert browser_page.inner_text("#why figure button") == "Cycle 1 of 2: next"


def test_an_operation_has_one_number_whichever_its_end_is_named_by(browser_page, tmp_path):
    history = small_run()
    pair = next(pair for pair in history.pairs if pair.invoke.f == "get")
    call, done = pair.invoke.index, pair.completion.index
    result = CheckResult("elle", Verdict.INVALID, "no", (f"T1 is op {done}: r.",), (done,))
    show(browser_page, write_run(tmp_path, history, [result]))
    assert state(browser_page)["selected"] == call
    assert f"op {done}" not in browser_page.inner_text("#why")
    assert f"T1 is op {call}: r." in browser_page.inner_text("#why")
    assert f"op {done}" not in browser_page.inner_text("#detail")


def test_a_rate_is_of_no_less_than_a_second(shared_page):
    shared_page.evaluate("() => harnessPage.view.show(700e6, 705e6)")
    shared_page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => drawn(1)))")
    told = shared_page.evaluate(
        "() => harnessPage.panels.find((one) => one.canvas.id === 'rate').hit(400, 40).lines[0]"
    )
    assert told.endswith("in 1.000 s")


def test_a_sentence_leads_to_its_operation(shared_page):
    wanted = stale_read(small_run()).operations[1]
    shared_page.click(f"#why li button:text-is('op {wanted}')")
    assert state(shared_page)["selected"] == wanted
    assert f"op {wanted}" in shared_page.inner_text("#detail h2")


def test_details_of_an_operation(shared_page):
    stale = indices(small_run(), lambda call, done: call.time == 700 * MS)[0]
    shared_page.evaluate(f"() => harnessPage.page.selectIndex({stale})")
    text = shared_page.inner_text("#detail")
    for part in ("process 0", "ok", "0.700000 s", "m1", "aaaa1111", "1 RPC attempt"):
        assert part in text
    assert "m1 still answers in term 1" in text
    assert "partition-leader-1: cut m1 off" in text
    assert "A checker names this operation" in text


def test_an_address_opens_at_an_operation(browser_page, made_page):
    browser_page.open(f"{made_page.as_uri()}#op=3")
    assert state(browser_page)["selected"] == 3


def test_logs_around_the_moment(browser_page, tmp_path):
    history = small_run()
    logs = {
        "m1.log": "".join(f"{n / 100:.6f} tick {n}\n" for n in range(180)),
        "m2.log": "no times here\n",
        "odd #1?.log": "a name that an address must not take apart\n",
    }
    folder = write_run(tmp_path, history, [stale_read(history)], logs=logs)
    show(browser_page, folder)
    stale = indices(history, lambda call, done: call.time == 700 * MS)[0]
    browser_page.evaluate(f"() => harnessPage.page.selectIndex({stale})")
    text = browser_page.inner_text(".logs")
    assert "tick 69" in text
    assert "tick 70" in text
    assert "tick 50" not in text
    assert "m1.log, 180 lines" in text
    links = browser_page.locator(".logs a")
    hrefs = [links.nth(n).get_attribute("href") for n in range(links.count())]
    assert hrefs == ["./m1.log", "./m2.log", "./odd%20%231%3F.log"]


# --- filters, compared with an independent computation --------------------------------------------


FILTERS = [
    ("kind", "get", lambda call, done: call.f == "get"),
    ("outcome", "info", lambda call, done: done is None or done.type is OpType.INFO),
    ("outcome", "fail", lambda call, done: done is not None and done.type is OpType.FAIL),
    ("process", "2", lambda call, done: call.process == 2),
    ("node", "m2", lambda call, done: done is not None and done.node == "m2"),
    ("table", "t1", lambda call, done: (call.value or {}).get("name") == "t1"),
    ("table", "aaaa1111", lambda call, done: "aaaa1111" in str(done and done.value)),
    ("table", "bbbb", lambda call, done: "bbbb2222" in str(done and done.value)),
    ("text", "NO ANSWER", lambda call, done: "no answer" in str(done and done.error)),
    ("text", "rpc: no", lambda call, done: "RPC: no" in str(done and done.error)),
    ("text", '"nonce":"n3"', lambda call, done: (call.value or {}).get("nonce") == "n3"),
    ("text", "no such text", lambda call, done: False),
]


def test_filters(shared_page):
    for field, value, wanted in FILTERS:
        if field in {"kind", "outcome", "node"}:
            shared_page.select_option(f"#{field}", value)
        else:
            shared_page.fill(f"#{field}", value)
        expected = indices(small_run(), wanted)
        assert expected == shared_page.evaluate(FOUND), (field, value)
        assert shared_page.inner_text("#count") == f"{len(expected)} of 8 operations"
        assert shared_page.locator("#matches li").count() == len(expected)
        shared_page.click("#reset")
        assert len(shared_page.evaluate(FOUND)) == 8


def test_filters_hold_at_once_and_an_op_is_found_by_its_number(shared_page):
    shared_page.select_option("#kind", "get")
    shared_page.select_option("#outcome", "fail")
    assert len(shared_page.evaluate(FOUND)) == 1
    shared_page.click("#reset")
    history = small_run()
    shared_page.fill("#text", f"#{history.pairs[2].completion.index}")
    assert [history.pairs[2].invoke.index] == shared_page.evaluate(FOUND)


def test_a_table_named_in_full_is_meant_alone(browser_page, tmp_path):
    script = Script().op(1, 2, 0, "get", {"name": "t1"}, "ok")
    history = script.op(3, 4, 0, "get", {"name": "t10"}, "ok").history()
    show(browser_page, write_run(tmp_path, history, [CheckResult("c", Verdict.VALID, "r")]))
    browser_page.fill("#table", "t1")
    assert browser_page.evaluate(FOUND) == [0]
    browser_page.fill("#table", "t")  # a part of a name is enough; no table has this exact name
    assert browser_page.evaluate(FOUND) == [0, 2]


# --- zoom and navigation ---------------------------------------------------------------------


def test_zooming_by_wheel_keeps_the_moment_under_the_pointer(open_page):
    open_page.keyboard.press("0")
    box = open_page.locator("#operations").bounding_box()
    x = box["width"] * 0.6
    open_page.mouse.move(box["x"] + x, box["y"] + 30)
    under = "(x) => harnessPage.view.time(x)"
    before, span = open_page.evaluate(under, x), state(open_page)
    open_page.keyboard.down("Control")
    for _ in range(4):
        open_page.mouse.wheel(0, -100)
    open_page.keyboard.up("Control")
    open_page.wait_for_function(
        "(span) => harnessPage.view.to - harnessPage.view.from < span",
        arg=(span["to"] - span["from"]) / 2,
    )
    assert abs(open_page.evaluate(under, x) - before) < MS


def test_a_plain_wheel_scrolls_the_page_and_a_drag_moves_in_time(open_page):
    open_page.keyboard.press("0")
    open_page.keyboard.press("+")
    whole = state(open_page)
    box = open_page.locator("#operations").bounding_box()
    open_page.mouse.move(box["x"] + 500, box["y"] + 5)
    open_page.mouse.down()
    open_page.mouse.move(box["x"] + 400, box["y"] + 5, steps=4)
    open_page.mouse.up()
    moved = state(open_page)
    assert moved["from"] > whole["from"]
    assert math.isclose(moved["to"] - moved["from"], whole["to"] - whole["from"])
    open_page.mouse.wheel(0, 200)
    open_page.wait_for_function("() => scrollY > 0")
    assert state(open_page) == moved


def test_an_operation_is_selected_by_a_click(open_page):
    open_page.evaluate("() => harnessPage.view.set(590e6, 640e6)")
    open_page.evaluate("() => new Promise(requestAnimationFrame)")
    x, lane = open_page.evaluate("() => [harnessPage.view.x(610e6), 2]")
    open_page.locator("#operations").click(position={"x": x, "y": 12 + lane * 24 + 8})
    rename = indices(small_run(), lambda call, done: call.f == "rename")[0]
    assert state(open_page)["selected"] == rename


def test_the_keyboard_alone_will_do(open_page):
    press = open_page.keyboard.press
    for _ in range(60):
        press("Tab")
        if open_page.evaluate("() => document.activeElement.id") == "operations":
            break
    assert open_page.evaluate("() => document.activeElement.id") == "operations"
    press("0")
    whole = state(open_page)
    assert (whole["from"], whole["to"]) == (whole["begin"], whole["end"])
    press("+")
    press("+")
    zoomed = state(open_page)
    assert math.isclose((whole["to"] - whole["from"]) / 4, zoomed["to"] - zoomed["from"])
    press("ArrowRight")
    assert state(open_page)["from"] > zoomed["from"]
    press("Home")
    assert state(open_page)["from"] == whole["from"]
    press("Escape")
    press("Enter")
    history = small_run()
    now = state(open_page)
    middle = (now["from"] + now["to"]) / 2
    nearest = min(history.pairs, key=lambda pair: abs(pair.invoke.time - middle))
    assert now["selected"] == nearest.invoke.index
    assert f"op {nearest.invoke.index}" in open_page.inner_text("#said")
    press("a")
    press("Escape")
    focus = sorted(stale_read(history).operations)
    press("n")
    first = state(open_page)["selected"]
    press("n")
    assert {first, state(open_page)["selected"]} == set(focus)
    press("j")
    order = [pair.invoke.index for pair in history.pairs]
    assert order.index(state(open_page)["selected"]) == order.index(focus[-1]) + 1


def test_brackets_go_along_a_process(shared_page):
    history = small_run()
    own = indices(history, lambda call, done: call.process == 0)
    shared_page.evaluate(f"() => harnessPage.page.selectIndex({own[1]})")
    shared_page.keyboard.press("]")
    assert state(shared_page)["selected"] == own[2]
    shared_page.keyboard.press("[")
    shared_page.keyboard.press("[")
    assert state(shared_page)["selected"] == own[0]


def test_typing_into_a_field_is_no_command(shared_page):
    before = state(shared_page)
    shared_page.keyboard.press("/")
    assert shared_page.evaluate("() => document.activeElement.id") == "text"
    shared_page.keyboard.type("rat0")
    assert shared_page.input_value("#text") == "rat0"
    assert state(shared_page) == before
    assert shared_page.evaluate("() => document.documentElement.dataset.theme") is None


def test_help_theme_colours_and_attempts(open_page):
    open_page.keyboard.press("?")
    assert open_page.is_visible("#help")
    open_page.keyboard.press("Escape")
    assert not open_page.is_visible("#help")
    paper = "() => getComputedStyle(document.body).backgroundColor"
    light = open_page.evaluate(paper)
    open_page.keyboard.press("t")
    assert open_page.evaluate(paper) != light
    open_page.keyboard.press("c")
    assert open_page.inner_text("#colour") == "Colour: outcome"
    open_page.keyboard.press("r")
    assert open_page.is_checked("#rpc")


def test_a_dark_system_has_a_dark_page_and_a_narrow_one_does_not_overflow(browser_page, made_page):
    browser_page.set_viewport_size({"width": 390, "height": 800})
    browser_page.emulate_media(color_scheme="dark")
    browser_page.open(made_page)
    browser_page.wait_for_selector("html[data-ready]")
    colour = browser_page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb(19, 23, 29)"
    assert browser_page.evaluate("() => document.documentElement.scrollWidth") == 390


def test_every_control_has_a_name(shared_page):
    nameless = shared_page.evaluate("""() => Array.from(
      document.querySelectorAll("button, input, select, canvas, a"))
      .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.closest("label")))
      .map((e) => e.outerHTML)""")
    assert nameless == []


# --- numbers, compared with an independent computation --------------------------------------------


def random_history(count=600):
    rng = random.Random(5)
    ops = []
    free = dict.fromkeys(range(8), 0)
    for n in range(count):
        slot = min(free, key=free.get)
        start = free.pop(slot) + rng.randrange(5 * MS)
        kind = rng.choice([OpType.OK] * 6 + [OpType.FAIL, OpType.INFO])
        end = start + int(rng.lognormvariate(15, 1))
        f = rng.choice("abc")
        ops.append((start, slot, OpType.INVOKE, f))
        if n >= count - 8:
            continue  # this operation never ends
        ops.append((end, slot, kind, f))
        free[slot + 1000 * (kind is OpType.INFO)] = end + 1
    ops.sort(key=lambda op: op[0])
    return History(Op(i, t, p, kind, f) for i, (t, p, kind, f) in enumerate(ops))


def test_quantiles_and_rates_of_the_plots(browser_page, tmp_path):
    history = random_history()
    show(browser_page, write_run(tmp_path, history, [CheckResult("c", Verdict.VALID, "r")]))
    width, buckets = 100 * MS, 12
    for q in (0.5, 0.9, 0.99, 1.0):
        found = browser_page.evaluate(
            f"() => harnessPage.quantiles(harnessPage.page, 0, {buckets * width}, {width}, {q})"
        )
        for kind, points in zip("abc", found, strict=True):
            expected = {}
            for pair in history.pairs:
                if pair.invoke.f == kind and pair.type is OpType.OK:
                    bucket = pair.invoke.time // width
                    took = pair.completion.time - pair.invoke.time
                    expected.setdefault(bucket, []).append(took)
            expected = {b: values for b, values in expected.items() if b < buckets}
            assert len(expected) == len(points)
            for point in points:
                values = expected[point["bucket"]]
                assert point["count"] == len(values)
                covers = [
                    v for v in values if sum(w <= v for w in values) >= q * len(values) - 1e-9
                ]
                assert point["value"] == min(covers)
    end = max(op.time for op in history)
    total = end // width + 1
    found = browser_page.evaluate(
        f"() => harnessPage.rates(harnessPage.page, 0, {total * width}, {width}).map((c) => [...c])"
    )
    for kind, counts in zip(("ok", "fail", "info"), found, strict=True):
        expected = [0] * total
        for pair in history.pairs:
            if pair.type.value == kind:
                at = end if pair.completion is None else pair.completion.time
                expected[at // width] += 1
        assert expected == counts
    assert statistics.fsum(sum(counts) for counts in found) == len(history.pairs)


def test_rates_outside_of_the_range_are_not_counted(browser_page, tmp_path):
    history = random_history()
    show(browser_page, write_run(tmp_path, history, [CheckResult("c", Verdict.VALID, "r")]))
    begin, end = 200 * MS, 450 * MS
    found = browser_page.evaluate(
        f"() => harnessPage.rates(harnessPage.page, {begin}, {end}, {50 * MS}).map((c) => [...c])"
    )
    inside = [p for p in history.pairs if p.completion and begin <= p.completion.time < end]
    assert sum(map(sum, found)) == len(inside)
    # An operation that never ended counts as one, at the end of the run.
    last = max(op.time for op in history)
    ended = [p for p in history.pairs if p.completion and p.completion.time < last]
    for to, expected in ((last, len(ended)), (last + 1, len(history.pairs))):
        found = browser_page.evaluate(
            f"() => harnessPage.rates(harnessPage.page, 0, {to}, {last + 1}).map((c) => [...c])"
        )
        assert sum(map(sum, found)) == expected


# --- hostile runs cannot act in their page --------------------------------------------------------

EVIL = (
    '</script><script>alert("1")</script><img src=x onerror=alert(2)>'
    '<svg onload=alert(3)><a href="javascript:alert(4)">x</a><style>*{display:none}</style><!--'
)


EVIL_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="alert(9)">'
    '<script>alert(8)</script><image href="http://127.0.0.1:9/x.png"/></svg>'
)


def hostile_history():
    """Build a history that has the same text in every possible place."""
    about = {"fault": EVIL, "targets": [EVIL], "note": EVIL}
    answer = {"result": "ok", "table_id": EVIL, "schema_version": EVIL, "tables": [[EVIL, EVIL]]}
    facts = [
        ("phase", {"phase": EVIL}),
        ("leader", {"node": EVIL, "term": 1}),
        ("node-exit", {"node": EVIL, "code": EVIL, "expected": EVIL}),
        ("live", {"core": [EVIL], EVIL: EVIL}),
        ("log", {"message": EVIL}),
    ]
    lines = [(HARNESS, OpType.INFO, f, value, {}) for f, value in facts]
    lines.append((NEMESIS, OpType.INFO, EVIL, {"action": "inject", **about}, {}))
    asked = {"name": EVIL, "new_name": EVIL, EVIL: EVIL}
    extra = {"error": EVIL, "node": EVIL, "attempts": (Attempt(EVIL, 1, 2, EVIL),)}
    kinds = ((EVIL, "ok"), ("create", "ok"), ("alter", "ok"), ("rename", "info"))
    for process, (f, kind) in enumerate(kinds):
        lines.append((process, OpType.INVOKE, f, asked, {}))
        lines.append((process, OpType(kind), f, answer, extra))
    bite = {"bite": {"count": 1, "unit": EVIL}}
    lines.append((NEMESIS, OpType.INFO, EVIL, {"action": "heal", **about, **bite}, {}))
    state = {"tables": [{"id": EVIL, "name": EVIL, "state": EVIL, "version": EVIL}]}
    lines.append(
        (HARNESS, OpType.INFO, "snapshot", {"masters": {EVIL: state}, EVIL: {EVIL: 1}}, {})
    )
    return History(
        Op(i, i * MS, process, kind, f, value, **extra)
        for i, (process, kind, f, value, extra) in enumerate(lines)
    )


@pytest.mark.parametrize("deflate_from", [0, 10**9])
def test_a_hostile_run_executes_nothing(browser_page, tmp_path, deflate_from):
    history = hostile_history()
    calls = tuple(pair.invoke.index for pair in history.pairs)
    results = [
        CheckResult(
            EVIL, Verdict.INVALID, EVIL, (EVIL, f"op {calls[0]} {EVIL}"), calls,
            {"certificate": {EVIL: {EVIL: EVIL}, "list": [EVIL, EVIL]}},
        ),
        CheckResult(
            "drawn", Verdict.INVALID, EVIL, (EVIL,), calls, {"drawings": [EVIL_SVG]},
        ),
        CheckResult(
            "ordered", Verdict.INVALID, EVIL, (EVIL,), calls,
            {"failure": {"operation": calls[0], "core": list(calls), "survivors": [
                {"state": EVIL, "last": list(calls[:2]), "pending": [EVIL, -1, 10**12]}, EVIL,
            ]}},
        ),
    ]  # fmt: skip
    case = Case(seed=1, workload=EVIL, nemeses=(EVIL,), bugs=(EVIL,), target_options={EVIL: EVIL})
    logs = {"<img src=x onerror=alert(5)>.log": f"0.001 {EVIL}\n{EVIL}\n"}
    logs["javascript:alert(6).log"] = EVIL
    folder = write_run(tmp_path, history, results, case=case, logs=logs, replay=EVIL)
    data = build(load_run(folder), read_results(folder))
    text = render({**data, "title": EVIL, "notes": [EVIL]}, deflate_from=deflate_from)
    (folder / "report.html").write_text(text)
    browser_page.open(folder / "report.html")
    browser_page.wait_for_selector("html[data-ready]")
    assert browser_page.inner_text("#title") == EVIL
    browser_page.evaluate(
        "() => document.querySelectorAll('details').forEach((d) => d.open = true)"
    )
    for index in calls:
        browser_page.evaluate(f"() => harnessPage.page.selectIndex({index})")
        assert EVIL in browser_page.inner_text("#detail")
    if deflate_from:
        sweep_panels(browser_page)
    counts = browser_page.evaluate(
        "() => [document.scripts.length, document.images.length, document.querySelectorAll("
        "'svg:not(.order), style:not(head style), a[href^=javascript]').length, "
        "document.styleSheets.length]"
    )
    assert counts == [2, 1, 0, 1]
    assert browser_page.unexpected() == []
    assert [url for url in browser_page.requests if not url.endswith("report.html")] == []


def sweep_panels(page):
    """Point at and click on everything in every panel; tips and details must appear."""
    page.keyboard.press("0")
    for panel in ("lanes", "operations", "latency", "rate", "table-lanes"):
        page.locator(f"#{panel}").scroll_into_view_if_needed()
        box = page.locator(f"#{panel}").bounding_box()
        for part in range(1, 30):
            x, y = box["width"] * (0.05 + 0.03 * part), box["height"] * (part % 10 + 0.5) / 10
            if part % 7 == 0:
                page.locator(f"#{panel}").click(position={"x": x, "y": y}, force=True)
            else:
                page.mouse.move(box["x"] + x, box["y"] + y)


def test_a_script_that_got_in_would_be_stopped_by_the_policy(browser_page, made_page, tmp_path):
    hostile = '<main><script>alert(1)</script><img src=x onerror="alert(2)">'
    path = tmp_path / "report.html"
    path.write_text(made_page.read_text().replace("<main>", hostile))
    browser_page.expect("Content Security Policy")
    browser_page.open(path)
    browser_page.wait_for_selector("html[data-ready]")
    assert any("Content Security Policy" in problem for problem in browser_page.problems)
    assert [p for p in browser_page.problems if "dialog" in p] == []


# --- real runs ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_page_of_a_real_run(browser_page, tmp_path, capsys):
    options = ["--time-limit", "15", "--nemesis", "partition-leader,kill-leader", "--seed", "3"]
    main(["run", "--env", "sim", "--store", str(tmp_path), *options])
    capsys.readouterr()
    (folder,) = tmp_path.glob("*/latest")
    assert (folder / "report.html").is_file()
    browser_page.open(folder / "report.html")
    browser_page.wait_for_selector("html[data-ready]")
    run = load_run(folder)
    assert browser_page.inner_text("#badge").lower() == run.record.verdict.value
    assert browser_page.inner_text("#count") == f"{len(run.history.pairs)} operations"
    assert browser_page.is_visible("#tables-part")
    assert "aligned with the history" in browser_page.evaluate(
        "() => harnessPage.page.data.log_clock"
    )
    for key in ("j", "j", "]", "c", "r", "0", "+"):
        browser_page.keyboard.press(key)
    assert "Logs around" in browser_page.inner_text("#detail")


# --- browsers that lack a feature -----------------------------------------------------------------


def test_without_scripts_the_verdict_can_be_read(browser, made_page):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(made_page.as_uri())
    badge, text = page.inner_text("#badge"), page.inner_text("body")
    context.close()
    assert badge.lower() == "invalid"
    for part in (
        "Wrong answer: No order",
        "8 operations · 2 faults",
        "harness run",
        "made/run-1",
    ):
        assert part in text


def test_a_browser_that_cannot_inflate_says_so(browser_page, made_page, tmp_path):
    folder, path = made_page.parent, tmp_path / "report.html"
    path.write_text(render(build(load_run(folder), read_results(folder)), deflate_from=0))
    browser_page.add_init_script("delete window.DecompressionStream")
    browser_page.expect("DecompressionStream")
    browser_page.open(path)
    browser_page.wait_for_selector("#fallback:not([hidden])")
    assert "cannot decompress" in browser_page.inner_text("#failed")
    assert "No order explains op" in browser_page.inner_text("#fallback")


@pytest.mark.parametrize("history", [History([]), History([Op(0, 0, 0, OpType.INVOKE, "f")])])
def test_runs_of_almost_nothing(browser_page, tmp_path, history):
    show(browser_page, write_run(tmp_path, history, [CheckResult("c", Verdict.UNKNOWN, "r")]))
    assert browser_page.inner_text("#badge").lower() == "unknown"
    for key in ("0", "+", "j", "n", "a", "Enter", "]"):
        browser_page.keyboard.press(key)


def test_many_operations_are_drawn_coarse_and_few_exactly(browser_page, tmp_path):
    history = random_history(4000)
    show(browser_page, write_run(tmp_path, history, [CheckResult("c", Verdict.VALID, "r")]))
    browser_page.wait_for_function("() => harnessPage.page.visibleOps > 0")
    assert not browser_page.is_visible("#tables-part")  # the run has no tables
    assert "merged into columns" in browser_page.inner_text("#status")
    total = len(history.pairs)
    assert browser_page.evaluate("() => harnessPage.page.visibleOps") == total
    browser_page.evaluate(f"() => harnessPage.view.set({S}, {S + 100 * MS})")
    browser_page.wait_for_function(f"() => harnessPage.page.visibleOps < {total}")
    assert "merged into columns" not in browser_page.inner_text("#status")
    shown = [
        pair
        for pair in history.pairs
        if pair.invoke.time < S + 100 * MS
        and (pair.completion is None or pair.completion.time >= S)
    ]
    assert browser_page.evaluate("() => harnessPage.page.visibleOps") == len(shown)
