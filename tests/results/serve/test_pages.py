"""The content of the pages and the API, over real HTTP."""

import html
import io
import json
import os
import re
import zipfile
from urllib.parse import parse_qsl, quote, urlencode

import pytest

from harness.case import Fault
from harness.cli import main
from harness.ops import CheckResult, Verdict
from harness.verdict.known import KnownFailure, KnownFailures
from results.facts.run_numbers import run_numbers
from results.serve import pages
from tests.results.serve.conftest import serving
from tests.results.serve.stores import HOSTILE, S, add_run, failing, history

GOOD = ["b3", "b2", "b1", "a4", "a3", "a2", "a1"]


def names(served, query=""):
    return [row["run"] for row in served.api(f"runs?{query}")["runs"]]


def test_the_list_has_every_run_newest_first_with_its_problems(served):
    data = served.api("runs")
    assert data["total"] == 12
    expected = {"invalid": 2, "unknown": 1, "valid": 4, "unfinished": 1, "broken": 4}
    assert data["counts"] == expected
    rows = {row["run"]: row for row in data["runs"]}
    assert [row["run"] for row in data["runs"] if row["run"] in GOOD] == GOOD
    assert [rows[run]["outcome"] for run in ("torn", "rotten")] == ["broken", "broken"]
    assert "history.parquet" in rows["torn"]["problem"]
    assert "run.json" in rows["no-record"]["problem"]
    assert rows["unfinished"]["outcome"] == "unfinished"
    assert rows["linked"]["outcome"] == "broken"
    assert "SECRET" not in json.dumps(data)
    assert rows["a2"]["started"] == "2026-11-21T08:00:00+00:00"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("label=(none)&name=beta", ["b2", "b1"]),
        ("nemeses=pause-leader", ["b2"]),
        ("seed=2..5", ["b1", "a4", "a3", "a2"]),
        ("day=..2026-11-21&name=alpha", ["a3", "a2", "a1"]),
        ("q=LEASE+alpha", ["a3"]),
        ("name=alpha&sort=-seed", ["a4", "a3", "a2", "a1"]),
        ("name=alpha&wall_s=1.5&ops=18..22", ["a4", "a3", "a2", "a1"]),
        ("run=a1", ["a1"]),
        ("nemesis=pause-leader,kill-leader", ["b1"]),
        ("profile=strict&target=kudu&environment=sim&name=alpha", ["a4", "a3", "a2", "a1"]),
    ],
)
def test_filters_and_order(served, query, expected):
    assert names(served, query) == expected


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("sort=foo", "sort is 'foo'"),
        ("page=0", "page is '0'"),
        ("seed=x", "seed is 'x'"),
        ("seed=..", "seed is '..'"),
        ("ops=1..2..3", "ops is '1..2..3'"),
        ("day=yesterday", "day is 'yesterday'"),
        ("verdict=good", "verdict is 'good'"),
        ("nemesys=x", "no parameter 'nemesys'"),
        (f"q={'x' * 600}", "more than 500"),
        ("q=%ff", "cannot be read"),
        ("&".join(f"q={n}" for n in range(60)), "cannot be read"),
    ],
)
def test_bad_queries_are_answered_with_the_value_and_the_rule(served, query, text):
    for path in (f"/?{query}", f"/api/runs?{query}"):
        status, _, body = served.ask(path)
        assert status == 400
        assert text in body.decode().replace("&#39;", "'")


def test_every_row_links_to_a_page_that_is_there(served):
    hrefs = set(re.findall(r'class="open" href="([^"]+)"', served.page("/")))
    assert len(hrefs) == 12
    for href in hrefs:
        assert served.ask(href)[0] == 200, href


def test_hostile_texts_are_escaped_on_every_page(served):
    key = "beta/b3"
    paths = [
        "/",
        f"/?{urlencode({'label': HOSTILE})}",
        f"/run/{key}/",
        f"/compare?run={key}&run=alpha/a1",
        f"/compare?run=alpha/a1&run={key}",
        "/matrix?down=bug&across=label",
        "/trends?by=label",
        "/trends?by=nemeses",
    ]
    for path in paths:
        text = served.page(path)
        assert "<script>alert" not in text, path
        assert "onerror=alert(2)>" not in text, path
        assert "&lt;script&gt;alert(1)" in text, path
        assert "49" not in re.findall(r"onerror=alert\(2\)&gt;(\w+)", text)
    status, headers, body = served.ask(f"/?{urlencode({'sort': HOSTILE})}")
    assert status == 400
    assert b"<script>alert" not in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_the_page_of_a_run_agrees_with_its_files(served):
    text = served.page("/run/alpha/a3/")
    for expected in ("NO-LEASE", "harness run --env sim --case", "lin", "20 operations", "p99"):
        assert expected in text
    data = served.api("run/alpha/a3")
    numbers = run_numbers(served.store / "alpha" / "a3")
    assert data["numbers"]["total"]["ok"] == numbers.total.ok == 10
    assert [check["checker"] for check in data["checkers"]] == ["stats", "lin"]


def test_the_twin_that_differs_in_one_thing_comes_first(store):
    buggy = {"seed": 1, "bugs": ("NO-LEASE",)}
    for run, fields in {
        "n/r": buggy,
        "n/near": {"seed": 2, "bugs": ("NO-LEASE",)},
        "n/two": {"seed": 1, "label": "v2"},
        "other/clean": {"seed": 1, "started": "2026-11-28T10:00:00+00:00"},
        "other/again": buggy,
        "other/options": {**buggy, "rate": 99.0, "label": "v2"},
        "other/far": {"seed": 2},
    }.items():
        add_run(store, *run.split("/"), **fields)
    with serving(store) as served:
        text = served.page("/run/n/r/").partition("Compare with")[2].partition("Files")[0]
    rows = re.findall(r'title="([^"]*)"><a class="open".*?<td class="why">(.*?)</td>', text)
    assert [(key, re.sub("<[^>]*>", "", words)) for key, words in rows] == [
        ("other/again", "nothing: the same case again"),
        ("other/clean", "bugs none"),
        ("n/two", "bugs none · label v2"),
        ("other/options", "label v2 · options"),
        ("n/near", "seed 2"),
    ]


def test_filters_are_removed_one_by_one(served):
    for path, query in (
        ("/", "q=a+lease&nemesis=kill-leader,pause-leader&name=beta"),
        ("/matrix", "down=bug&across=label&label=v1&verdict=valid"),
        ("/trends", "by=day&label=v1"),
        ("/compare", "label=v1&label=v2&name=alpha"),
    ):
        text = served.page(f"{path}?{query}")
        chips = re.findall(r'<a class="chip" href="([^"]*)"[^>]*>(\w+) <b>([^<]*)</b>', text)
        left = [parse_qsl(html.unescape(url).partition("?")[2]) for url, _, _ in chips]
        expected = [
            pair for name, value in parse_qsl(query) if (path, name) != ("/compare", "label")
            for pair in ((name, part) for part in re.split("[ ,]", value))
            if name not in {"down", "across", "by"}
        ]  # fmt: skip
        assert [chip[1:] for chip in chips] == expected
        for pair, rest in zip(expected, left, strict=True):
            now = [(name, part) for name, value in rest for part in re.split("[ ,]", value)]
            assert sorted([*now, pair]) == sorted(
                (name, part) for name, value in parse_qsl(query) for part in re.split("[ ,]", value)
            )


def test_one_point_is_no_trend(store):
    add_run(store, "a", "one", label="v1")
    add_run(store, "a", "two", label="v2", bugs=("B",))
    with serving(store) as served:
        assert served.page("/trends?by=day").count("<figure") == 0
        assert served.page("/trends?by=label").count("<figure") == 3  # about all runs together


def test_an_explanation_leads_to_its_operations_and_one_is_open(store):
    sentences = ("It saw <b>op 4</b>, then op 12.", f"shop 5, op 5x and {HOSTILE}")
    results = [
        CheckResult("stats", Verdict.VALID, "enough"),
        CheckResult("lin", Verdict.INVALID, "why", sentences),
        CheckResult("other", Verdict.INVALID, "why else", ("op 1 is wrong",)),
    ]
    add_run(store, "a", "r", verdict=Verdict.INVALID, results=results)
    with serving(store) as served:
        text = served.page("/run/a/r/")
    assert re.findall(r'<a href="report.html#op=(\d+)">op (\d+)</a>', text) == [
        ("4", "4"), ("12", "12"), ("1", "1"),
    ]  # fmt: skip
    assert "&lt;b&gt;<a " in text
    assert "<script>alert" not in text
    opened = re.findall(r'<details class="check" (open)?>\s*<summary>.*?<b>(\w+)</b>', text)
    assert opened == [("", "stats"), ("open", "lin"), ("", "other")]


def test_a_counterexample_is_a_page_in_the_same_sandbox(store):
    folder = add_run(store, "a", "r")
    for name in ("counterexample.html", "other.html"):
        (folder / name).write_text("<h1>drawn</h1>")
    with serving(store) as served:
        status, headers, body = served.ask("/run/a/r/counterexample.html")
        assert (status, body) == (200, b"<h1>drawn</h1>")
        assert headers["Content-Type"].startswith("text/html")
        assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
        assert "allow-same-origin" not in headers["Content-Security-Policy"]
        other = served.ask("/run/a/r/other.html")[1]
        assert other["Content-Type"].startswith("text/plain")


def test_equal_latencies_differ_by_nothing(store):
    for latency_ms in (2000, 2001, 2100):
        add_run(store, "a", f"r{latency_ms}", made=history(latency_ms=latency_ms))
    with serving(store) as served:
        assert " %" not in served.page("/compare?run=a/r2000&run=a/r2001").partition("Oper")[2]
        assert "+5 %" in served.page("/compare?run=a/r2000&run=a/r2100")


@pytest.mark.parametrize("run", ["torn", "no-record", "unfinished", "linked", "rotten"])
def test_poisoned_runs_have_pages_that_say_why(served, run):
    text = served.page(f"/run/poison/{run}/")
    assert "SECRET" not in text
    data = served.api(f"run/poison/{run}")
    assert data["run"]["problem"] or data["notes"]
    both = served.page(f"/compare?run=poison/{run}&run=alpha/a1")
    assert "SECRET" not in both


def test_artefacts_are_made_once_and_again_when_the_run_changed(store):
    folder = add_run(store, "alpha", "a1")
    with serving(store) as served:
        status, headers, body = served.ask("/run/alpha/a1/trace.json")
        assert status == 200
        assert len(json.loads(body)["traceEvents"]) > 20
        made = (folder / "trace.json").stat().st_mtime_ns
        assert served.ask("/run/alpha/a1/trace.json")[2] == body
        assert (folder / "trace.json").stat().st_mtime_ns == made
        (folder / "trace.json").write_text("old")
        later = made + 10**9
        os.utime(folder / "run.json", ns=(later, later))
        assert served.ask("/run/alpha/a1/trace.json")[2] == body
        status, headers, body = served.ask("/run/alpha/a1/report.html")
        assert status == 200
        assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
        assert b"<html" in body.lower()


def test_an_artefact_that_cannot_be_made_is_said_and_no_crash(served):
    for run in ("torn", "linked"):
        status, _, body = served.ask(f"/run/poison/{run}/trace.json")
        assert status == 422
        assert b"cannot be made" in body
        assert b"SECRET" not in body


def test_a_link_in_a_run_keeps_artefacts_from_being_made(store):
    folder = add_run(store, "alpha", "a1")
    (folder / "m1.log").symlink_to("/etc/passwd")
    with serving(store) as served:
        status, _, body = served.ask("/run/alpha/a1/report.html")
        assert status == 422
        assert b"links are not followed" in body
        assert not (folder / "report.html").exists()


def test_the_archive_holds_every_plain_file(served):
    status, headers, body = served.ask("/zip/poison/linked.zip")
    assert status == 200
    assert headers["Transfer-Encoding"] == "chunked"
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        assert archive.testzip() is None
        expected = {"linked/case.json", "linked/history.parquet", "linked/results.json"}
        assert set(archive.namelist()) == expected
        folder = served.store / "poison" / "linked"
        for name in archive.namelist():
            assert archive.read(name) == (folder / name.removeprefix("linked/")).read_bytes()


def test_a_comparison_tells_fields_verdicts_and_latencies_apart(served):
    data = served.api("compare?run=alpha/a1&run=alpha/a3")
    found = {item["field"]: (item["first"], item["second"]) for item in data["differences"]}
    assert found["seed"] == ("1", "3")
    assert found["bugs"] == ("[]", '["NO-LEASE"]')
    assert found["run.label"] == ("v1", "v2")
    assert "workload" not in found
    assert data["verdicts"] == [
        {"checker": "lin", "verdicts": ["valid", "invalid"]},
        {"checker": "stats", "verdicts": ["valid", "valid"]},
    ]
    slow, quick = (data["numbers"][place]["total"]["latency_ns"][0] for place in (1, 0))
    assert slow - quick == 38_000_000
    same = served.api("compare?run=alpha/a1&run=alpha/a1")
    assert same["differences_count"] == 0
    assert served.ask("/compare?run=alpha/a1")[0] == 400
    assert served.ask("/compare?run=alpha/a1&run=alpha/none")[0] == 404


def test_differences_of_two_cases_are_listed_before_their_faults(store):
    for seed in (1, 2):
        faults = tuple(Fault(f"f{n}", "kill", (n + 1) * S + seed, S) for n in range(300))
        add_run(store, "a", f"r{seed}", seed=seed, faults=faults, label=f"v{seed}")
    with serving(store) as served:
        data = served.api("compare?run=a/r1&run=a/r2")
        page = served.page("/compare?run=a/r1&run=a/r2")
    fields = [item["field"] for item in data["differences"]]
    assert (len(fields), data["differences_count"]) == (200, 302)
    assert {"seed", "run.label"} == set(fields[:2])
    assert all(re.fullmatch(r"faults\[\d+\].at_ns", field) for field in fields[2:])
    folded = page[page.index("Planned faults: 198 of these") :].partition("</details>")[0]
    assert (folded.count("faults["), page.count("faults[")) == (198, 198)


def test_numbers_are_written_alike(store):
    add_run(store, "a", "slow", made=history(latency_ms=2_500, count=1_300))
    with serving(store) as served:
        page = served.page("/run/a/slow/")
    assert "1,300" in page
    assert "2,500" in page
    assert "\u202f" not in page


def test_few_points_of_a_trend_have_their_names_below_them(store):
    for label in ("one", "two", "three"):
        add_run(store, "a", label, label=label)
    with serving(store) as served:
        page = served.page("/trends")
    for label in ("one", "two", "three"):
        assert page.count(f"<span>{label}</span>") == 5  # once per plot


@pytest.mark.parametrize(
    "query", ["", "&nemesis=kill-leader", "&name=beta", "&q=alpha", "&bug=(none)"]
)
@pytest.mark.parametrize(
    ("down", "across"),
    [
        ("nemesis", "workload"), ("bug", "label"), ("nemeses", "day"), ("name", "name"),
        ("nemesis", "nemesis"), ("bug", "nemesis"),
    ],
)  # fmt: skip
def test_every_matrix_cell_counts_the_runs_that_its_link_lists(served, down, across, query):
    data = served.api(f"matrix?down={down}&across={across}{query}")
    assert sum(data["totals"]["all"].values()) == served.api(f"runs?{query[1:]}")["matching"]
    text = served.page(f"/matrix?down={down}&across={across}{query}")
    cells = re.findall(r'<td class="cell[^"]*"><a href="/([^"]*)" title="([^"]*)"', text)
    inner = sum(len(row) for row in data["cells"].values())
    assert len(cells) == inner + sum(len(data["totals"][side]) for side in ("down", "across")) + 1
    for href, title in cells:
        listed = served.api("runs" + html.unescape(href))["counts"]
        counted = {
            name: int(number) for number, name in (part.split() for part in title.split(", "))
        }
        assert listed == counted, href


def test_trends_count_rate_and_interval(served):
    points = served.api("trends?by=label")["points"]
    # Both runs have the same label, but only one has a bug switch, so their rates are separate.
    own = [point for point in points if point["value"] == "v2"]
    assert sorted((point["runs"], point["unknown"], point["rate"] or 0) for point in own) == [
        (1, 0, 1.0), (1, 1, 0),
    ]  # fmt: skip
    (v1,) = [point for point in points if point["value"] == "v1"]
    assert (v1["runs"], v1["rate"], v1["low"]) == (2, 0.0, 0.0)
    assert v1["high"] == pytest.approx(0.6576, abs=1e-4)
    numbers = run_numbers(served.store / "alpha" / "a1")
    assert v1["ok_per_s"] == pytest.approx(10 / (numbers.end_ns / 1e9))
    totals = {total["value"]: total for total in served.api("trends?by=label")["totals"]}
    counts = {name: totals["(none)"][name] for name in ("valid", "invalid", "broken", "unfinished")}
    assert counts == {"valid": 1, "invalid": 1, "broken": 4, "unfinished": 1}
    days = [point["value"] for point in served.api("trends?by=day&q=alpha")["points"]]
    assert sorted(set(days)) == ["2026-11-20", "2026-11-21", "2026-11-22"]


def polylines(served, query):
    """Return the number of points of each line in the first drawing of one setting."""
    plot = served.page(f"/trends?{query}").partition("Runs of one setting")[2].split("</figure>")[0]
    return [len(line.split()) for line in re.findall(r'<polyline[^>]* points="([^"]*)"', plot)]


def test_a_line_joins_labels_of_one_setting_and_nothing_else(tmp_path):
    for label in ("v1", "v2", "v3"):
        day = f"2026-11-2{label[1]}T00:00:00+00:00"
        add_run(tmp_path, "n", f"same-{label}", label=label, started=day)
        add_run(tmp_path, "n", f"own-{label}", label=label, started=day, rate=10.0 * int(label[1]))
        add_run(tmp_path, "n", f"bug-{label}", label=label, started=day, bugs=("B",))
    with serving(tmp_path) as served:
        assert sorted(polylines(served, "by=label")) == [3, 3]
        assert polylines(served, "by=name") == []  # names have no order, so no line joins them


def test_equal_failures_are_one_group_that_leads_to_its_runs(tmp_path):
    for seed in range(60):
        shape = "get" if seed < 40 else "list"
        signature = f"lin · stale-read · cut · {shape}"
        add_run(tmp_path, "n", f"r{seed:02}", seed=seed, **failing(signature))
    add_run(tmp_path, "n", "other", target="etcd", **failing("lin · stale-read · cut · get"))
    add_run(tmp_path, "n", "rare", **failing("crash · exit · kill"))
    failures = KnownFailures((KnownFailure("lin", "T-1"), KnownFailure("other", "T-2")))
    with serving(tmp_path, known=failures) as served:
        groups = served.api("runs")["signatures"]
        assert [(group["target"], group["runs"], group["first_run"]) for group in groups] == [
            ("kudu", 60, "n/r00"),
            ("etcd", 1, "n/other"),
            ("kudu", 1, "n/rare"),
        ]
        text = served.page("/")
        (link,) = re.findall(r'<td class="n">60</td>.*?<a href="([^"]*)"', text, re.DOTALL)
        assert served.api("runs" + html.unescape(link).removeprefix("/"))["matching"] == 60
        assert [group["known"] for group in groups] == ["T-1", "T-1", None]
        assert [entry["ticket"] for entry in served.api("runs")["gone"]] == ["T-2"]
        assert served.page("/").count('<span class="tag">new</span>') == 1
        assert groups[0]["shapes"] == "get 40, list 20"
        assert served.api("runs?shape=list")["matching"] == 20
        assert served.api("runs?checker=crash")["matching"] == 1
        assert served.api("runs?q=why+it+is")["matching"] == 62
        assert served.api("runs?target=etcd&sort=signature")["runs"][0]["checker"] == "lin"


@pytest.mark.slow
def test_a_comparison_shows_what_a_report_knows_of_runs_without_results(tmp_path):
    for run in ("a", "b"):
        (add_run(tmp_path, "n", run, workload="register") / "results.json").unlink()
    both = "compare?run=n/a&run=n/b"
    with serving(tmp_path) as served:
        assert served.api(both)["verdicts"] == []
        assert main(["report", str(tmp_path), "--executor", "inline"]) in {0, 1, 2}
        answer = served.api(both)["verdicts"]
        assert "verdicts of the last harness report" in served.api("run/n/a")["notes"][0]
    assert {one["checker"] for one in answer} >= {"linearizable-register", "stats"}
    assert all(None not in one["verdicts"] for one in answer)


def test_a_report_of_the_store_is_linked_and_shown_if_there_is_one(store):
    add_run(store, "alpha", "a1")
    with serving(store) as served:
        assert served.ask("/report/")[0] == 404
        assert "/report/" not in served.page("/matrix")
        (store / ".report").mkdir()
        (store / ".report" / "report.html").write_text("<h1>all</h1>")
        assert "/report/" in served.page("/matrix")
        assert "/report/" in served.page("/trends")
        status, headers, body = served.ask("/report/")
        assert (status, body) == (200, b"<h1>all</h1>")
        assert headers["Content-Security-Policy"].startswith("sandbox")
        assert served.ask("/report")[0] == 308


def test_an_empty_store_and_names_beyond_ascii(store, tmp_path):
    store.mkdir()
    with serving(store) as served:
        assert "holds no runs yet" in served.page("/")
        assert served.page("/matrix")
        assert served.page("/trends")
    odd = store / "séries x" / "a b#c"
    good = add_run(tmp_path / "other", "n", "r")
    odd.parent.mkdir()
    good.rename(odd)
    with serving(store) as served:
        assert quote("séries x") + "/a%20b%23c/" in served.page("/")
        assert served.ask(f"/run/{quote('séries x')}/{quote('a b#c')}/")[0] == 200
        assert served.ask(f"/run/{quote('séries x')}/{quote('a b#c')}/case.json")[0] == 200


def test_runs_are_paged(served, monkeypatch):
    monkeypatch.setattr(pages, "PAGE_ROWS", 3)
    first = served.api("runs?name=alpha&sort=-seed")
    assert (first["matching"], first["pages"]) == (4, 2)
    assert [row["run"] for row in first["runs"]] == ["a4", "a3", "a2"]
    assert names(served, "name=alpha&sort=-seed&page=2") == ["a1"]
    assert names(served, "name=alpha&page=3") == []
    assert "There is no page 3" in served.page("/?name=alpha&page=3")


def test_new_runs_appear(store, tmp_path, eager):
    add_run(store, "alpha", "a1")
    with serving(store) as served:
        assert names(served) == ["a1"]
        add_run(store, "alpha", "a2", started="2026-11-21T10:00:00+00:00")
        assert names(served) == ["a2", "a1"]
        (store / "alpha" / "a2" / "run.json").write_text("{")
        assert names(served, "verdict=broken") == ["a2"]
        (store / "alpha" / "a1").rename(tmp_path / "gone")
        assert names(served) == ["a2"]
