"""`harness serve LAKE` shows the same pages as for a store, and more."""

import contextlib
import html
import io
import json
import re
import shutil
import zipfile
from types import SimpleNamespace
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest

from harness.cli import main
from results.lake.log.files import MAIN
from results.lake.log.lake import Lake
from results.lake.transfer.folders import folder_of
from results.lake.verb import main as lake_verb
from results.serve import run_folders
from results.serve.runs import Runs
from tests.results.serve.conftest import serving
from tests.results.serve.stores import LOG, add_run, failing, make_store
from tests.support.object_store import BUCKET, flaky_proxy, free_port, options_for, s3_server
from tests.support.run_folders import ingested
from tests.support.waiting import wait_until

pytestmark = pytest.mark.lake


@pytest.fixture(scope="module")
def both(lake_served):
    with serving(lake_served.store.parent / "store") as of_store:
        yield SimpleNamespace(store=of_store, lake=lake_served)


@pytest.fixture
def open_lake():
    with contextlib.ExitStack() as stack:
        yield lambda uri: stack.enter_context(serving(uri))


def key_of(served, run):
    """Return the key that a run of the store has in the lake."""
    (found,) = [row["key"] for row in served.api("runs")["runs"] if f"/{run}@" in row["key"]]
    return found


def as_in_store(text):
    """Replace the keys in a lake's page by the ids of the runs in the store."""
    return re.sub(r"(@|%40)[0-9a-f]{12}\b", "", text)


def main_of(served, path):
    """Return the content of a page, without the name of the store or lake."""
    return as_in_store(served.page(path)).partition("<main")[2].partition("</main>")[0]


@pytest.mark.parametrize(
    "path",
    [
        "/", "/?q=harness+2&sort=-label", "/matrix?down=bug&across=code&label=v2",
        "/trends?by=code", "/compare?label=v1&label=v2",
    ],
)  # fmt: skip
def test_pages_are_those_of_the_store(both, path):
    assert main_of(both.lake, path) == main_of(both.store, path)


@pytest.mark.parametrize("run", ["a1", "a3", "b3", "b5"])
def test_a_run_is_that_of_the_store(both, run):
    key = key_of(both.lake, run)
    found = both.lake.api(f"run/{quote(key)}")
    expected = both.store.api(f"run/{key.partition('@')[0]}")
    assert found["run"] == {**expected["run"], "key": key, "run": key.partition("/")[2]}
    assert key == expected["run"]["lake_run"]
    assert found["numbers"] == expected["numbers"]
    assert found["checkers"] == [
        # for a valid run, the lake has verdicts and reasons, but no explanations
        check if expected["run"]["outcome"] != "valid" else {**check, "explanation": []}
        for check in expected["checkers"]
    ]
    text = both.lake.page(f"/run/{quote(key)}/")
    assert "faults injected" in text
    assert "<script>alert" not in text


def test_every_trend_link_lists_the_runs_that_it_counts(both):
    text = both.lake.page("/trends?by=day")
    rows = re.findall(r'<tr data-row><th scope="row"[^>]*><a class="open" href="/([^"]*)">', text)
    points = both.lake.api("trends?by=day")
    counts = [row["runs"] for row in (*points["totals"], *points["points"])]
    assert len(rows) == len(counts) > 8
    for href, expected in zip(rows, counts, strict=True):
        assert both.lake.api("runs" + html.unescape(href))["matching"] == expected


def test_files_of_a_failing_run_are_those_that_the_lake_keeps(both):
    key = quote(key_of(both.lake, "b5"))
    assert both.lake.page(f"/run/{key}/logs/m1.log") == LOG
    assert both.lake.page(f"/run/{key}/report.html") == "<h1>kept</h1>"
    with zipfile.ZipFile(io.BytesIO(both.lake.ask(f"/zip/{key}.zip")[2])) as archive:
        names = {name.partition("/")[2] for name in archive.namelist()}
    assert names == {
        "case.json", "run.json", "results.json", "history.parquet", "logs/m1.log", "report.html",
    }  # fmt: skip


def test_a_valid_run_gets_its_page_and_trace_when_asked(both):
    key = quote(key_of(both.lake, "a1"))
    code, headers, body = both.lake.ask(f"/run/{key}/report.html")
    assert (code, b"<html" in body.lower()) == (200, True)
    assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
    assert len(json.loads(both.lake.page(f"/run/{key}/trace.json"))["traceEvents"]) > 20
    assert not list((both.lake.store / "folders").rglob("a1@*"))  # the lake is unchanged


def test_how_to_have_a_run_again(both):
    kept, other = (html.unescape(both.lake.page(f"/run/{quote(key_of(both.lake, run))}/"))
                   for run in ("b5", "a1"))  # fmt: skip
    assert f"{folder_of(key_of(both.lake, 'b5'))}/case.json" in kept
    command = f"harness lake export {both.lake.store} --store again --run"
    assert command in other
    assert command not in kept


def test_links_in_a_kept_folder_are_not_followed(tmp_path, open_lake):
    lake = ingested(make_store(tmp_path / "store"), tmp_path / "lake")
    (tmp_path / "secret").write_text("SECRET")
    served = open_lake(lake)
    key = key_of(served, "b5")
    kept = lake / folder_of(key)
    (kept / "link.txt").symlink_to(tmp_path / "secret")
    other = lake / folder_of(key_of(served, "b2"))
    shutil.copytree(other, tmp_path / "moved")
    (tmp_path / "moved" / "secret.txt").write_text("SECRET")
    shutil.rmtree(other)
    other.symlink_to(tmp_path / "moved")
    files = [file["path"] for file in served.api(f"run/{quote(key)}")["files"]]
    assert "logs/m1.log" in files
    assert "link.txt" not in files
    again = quote(key_of(served, "b2"))
    assert "secret.txt" not in [file["path"] for file in served.api(f"run/{again}")["files"]]


def test_columns_of_newer_releases_are_absent_in_old_lakes(tmp_path, open_lake):
    lake = ingested(make_store(tmp_path / "store"), tmp_path / "lake")
    (path, *others) = (lake / MAIN).glob("*.parquet")
    for file in (path, *others):
        table = pq.read_table(file, partitioning=None)
        pq.write_table(table.drop_columns(["simulated_s", "versions", "signature"]), file)
    served = open_lake(lake)
    runs = served.api("runs")
    assert {run["signature"] for run in runs["runs"]} == {""}
    assert {run["code"] for run in runs["runs"]} == {""}
    assert (runs["total"], runs["signatures"]) == (11, [])
    assert served.page("/trends?by=code")


def test_news_are_shown_and_a_compaction_changes_nothing(tmp_path, open_lake, eager):
    store = make_store(tmp_path / "store")
    lake = ingested(store, tmp_path / "lake")
    served = open_lake(lake)
    before = served.api("runs")
    add_run(store, "gamma", "new", seed=77, label="v1")
    ingested(store, lake)
    found = served.api("runs")["runs"]
    (new,) = [row for row in found if row["name"] == "gamma"]
    assert (found.index(new), [row for row in found if row != new]) == (10, before["runs"])
    lake_verb(["compact", str(lake)])
    lake_verb(["vacuum", str(lake), "--grace-hours", "0"])
    assert len(list((lake / MAIN).glob("c-*.parquet"))) == 1
    assert served.api("runs")["runs"] == found
    assert served.api(f"run/{quote(new['key'])}")["numbers"]["total"]["ok"] == 10


def test_only_new_files_are_read(tmp_path, open_lake, monkeypatch, eager):
    store = make_store(tmp_path / "store")
    served, read = open_lake(ingested(store, tmp_path / "lake")), []
    source = Runs._source
    monkeypatch.setattr(Runs, "_source", lambda *given: read.extend(given[3]) or source(*given))
    assert served.api("runs")["total"] == 11
    assert read == []
    add_run(store, "gamma", "new", seed=77)
    ingested(store, tmp_path / "lake")
    assert served.api("runs")["total"] == 12
    assert [file.rows for file in read] == [1]


def test_rows_that_make_no_history_are_said_and_the_rest_is_shown(tmp_path, open_lake):
    lake = ingested(make_store(tmp_path / "store"), tmp_path / "lake")
    for path in (lake / "operations").glob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.slice(0, len(table) - 1), path)
    served = open_lake(lake)
    found = [served.api(f"run/{quote(row['key'])}") for row in served.api("runs")["runs"]]
    spoiled = [one for one in found if one["numbers"] is None]
    assert 0 < len(spoiled) < len(found)
    assert "some rows are missing, or were changed" in " ".join(spoiled[0]["notes"])
    key = spoiled[0]["run"]["key"]
    assert "some rows are missing" in served.page(f"/run/{quote(key)}/")
    for address in (f"/run/{quote(key)}/report.html", f"/zip/{quote(key)}.zip"):
        code, _, body = served.ask(address)
        assert (code, b"some rows are missing" in body) == (422, True)


def test_names_that_no_harness_gives_and_runs_beyond_measure(
    store, tmp_path, monkeypatch, open_lake
):
    add_run(store, "n", "r", seed=1)
    (store / "n").rename(store / "séries x")
    (store / "séries x" / "r").rename(store / "séries x" / "a b#c")
    served = open_lake(ingested(store, tmp_path / "lake"))
    (row,) = served.api("runs")["runs"]
    key = quote(row["key"])
    assert row["name"] == "séries x"
    assert served.api(f"run/{key}")["numbers"]["total"]["ok"] == 10
    assert served.ask(f"/run/{key}/report.html")[0] == 200

    monkeypatch.setattr(run_folders, "LINES_MAX", 5)
    served.server.application.library.folders._folders.clear()
    assert "a page shows at most 5" in served.page(f"/run/{key}/")


def test_folders_are_made_anew_when_too_many_were_asked_for(tmp_path, monkeypatch, open_lake):
    monkeypatch.setattr(run_folders, "FOLDERS_KEPT", 2)
    served = open_lake(ingested(make_store(tmp_path / "store"), tmp_path / "lake"))
    library = served.server.application.library
    keys = [quote(row["key"]) for row in served.api("runs")["runs"]]
    for _ in range(2):
        for key in keys:
            assert json.loads(served.page(f"/run/{key}/case.json"))
            assert len([path for path in library._scratch.iterdir() if path.name.isdigit()]) <= 2
    library.close()
    assert not library._scratch.exists()


def test_a_lake_that_vanishes_is_said_and_the_list_stays(tmp_path, open_lake, eager):
    lake = ingested(make_store(tmp_path / "store"), tmp_path / "lake")
    served = open_lake(lake)
    (seen, unseen) = (key_of(served, run) for run in ("a1", "a3"))
    assert served.page(f"/run/{quote(seen)}/")
    lake.rename(tmp_path / "elsewhere")
    found = served.api("runs")
    assert (found["total"], "no longer has a table of runs" in found["notes"][0]) == (11, True)
    assert "no longer has a table of runs" in served.page("/trends")
    assert served.page(f"/run/{quote(seen)}/")
    code, _, body = served.ask(f"/run/{quote(unseen)}/")
    assert (code, b"Traceback" in body) == (422, False)
    assert len(re.findall(r'<p class="failure">[^<]+</p>', body.decode())) == 1
    (tmp_path / "elsewhere").rename(lake)
    assert served.api("runs")["notes"] == []
    assert served.page(f"/run/{quote(unseen)}/")


def empty_lake(path):
    Lake.open(str(path), create=True)
    return path


def test_an_empty_lake_and_the_word_for_it(tmp_path, open_lake):
    served = open_lake(empty_lake(tmp_path / "lake"))
    assert "The lake holds no runs yet" in served.page("/")
    assert f"--lake {tmp_path / 'lake'}" in served.page("/")
    for path in ("/matrix", "/trends", "/api/runs", "/?sort=-ops&q=x"):
        assert served.ask(path)[0] == 200
    assert served.ask("/compare?label=a&label=b")[0] == 400


def test_places_that_are_neither_store_nor_lake(tmp_path, capsys, monkeypatch):
    import deltalake
    import pyarrow as pa

    monkeypatch.chdir(tmp_path)
    table = tmp_path / "table"
    deltalake.write_deltalake(str(table), pa.table({"run": ["x"]}))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("x")
    foreign = empty_lake(tmp_path / "foreign")
    shutil.rmtree(foreign / "runs")
    deltalake.write_deltalake(str(foreign / "runs"), pa.table({"run": ["x"]}))
    for place, words in (
        ("table", "neither runs nor the tables of a lake"),
        ("files", "holds notes.txt and neither"),
        ("foreign", "does not belong to a harness lake"),
        ("s3:///x", "names no place"),
        ("file:///nowhere/at/all", "there is no lake"),
        ("none", "is not a folder"),
    ):
        assert main(["serve", place, "--port", "0"]) == 254, place
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line


def test_a_comparison_of_labels_needs_two_that_there_are(both):
    for query, text in (
        ("label=v1", "two labels"),
        ("label=v1&label=v1", "two labels"),
        ("label=v1&label=none-such", "no finished run here has the label"),
        ("label=v1&label=v2&day=2001-01-01", "no finished run here has the label"),
    ):
        code, _, body = both.lake.ask(f"/compare?{query}")
        assert (code, text in html.unescape(body.decode())) == (400, True)


@pytest.mark.s3
@pytest.mark.slow
@pytest.mark.process
def test_a_lake_in_a_bucket(tmp_path, monkeypatch, open_lake, eager, capsys):
    store = make_store(tmp_path / "store")
    uri = f"s3://{BUCKET}/serve/lake"
    with s3_server() as endpoint:
        for name, value in options_for(endpoint).items():
            monkeypatch.setenv(name, value)
        ingested(store, uri)
        served = open_lake(uri)
        with serving(store) as of_store:
            expected = json.loads(as_in_store(of_store.page("/api/runs")))["runs"]
        assert json.loads(as_in_store(served.page("/api/runs")))["runs"] == expected
        key = quote(key_of(served, "b5"))
        assert served.page(f"/run/{key}/logs/m1.log") == LOG
        assert served.api(f"run/{key}")["numbers"]["total"]["ok"] == 10
        assert "harness lake export s3://" in html.unescape(served.page(f"/run/{key}/"))
        code, _, body = served.ask("/report/")
        assert (code, b"in the folder where" in body) == (404, True)
        add_run(store, "gamma", "new", seed=77)
        ingested(store, uri)
        wait_until(lambda: served.api("runs")["total"] == 12, 60.0)
        with flaky_proxy(endpoint, chance=1.0, code="InvalidAccessKeyId") as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy)
            assert main(["serve", uri, "--port", "0"]) == 254
            assert "check the credentials" in capsys.readouterr().err
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    found = served.api("runs")
    assert (found["total"], "the lake cannot be read" in found["notes"][0]) == (12, True)


def test_labels_differ_where_there_is_evidence(store, tmp_path, open_lake):
    for seed in range(12):
        add_run(store, "n", f"o{seed}", seed=seed, label="old")
        more = failing("lin · stale-read") if seed < 10 else {}
        add_run(store, "n", f"n{seed}", seed=seed, label="new", **more)
        more = failing("lin · stale-read") if seed < 10 else {}
        add_run(store, "b", f"n{seed}", seed=seed, label="new", bugs=("BUG",), **more)
        add_run(store, "b", f"o{seed}", seed=seed, label="old", bugs=("BUG",))
    add_run(store, "other", "r", label="new", workload="register", **failing("crash · exit"))
    served = open_lake(ingested(store, tmp_path / "lake"))
    found = served.api("compare?label=old&label=new")
    comparison = found["comparison"]
    assert {line["metric"]: line["verdict"] for line in comparison["lines"]} == {
        "invalid": "worse", "detected": "better", "unknown": "no evidence",
    }  # fmt: skip
    assert (comparison["baseline_runs_left_out"], comparison["label_runs_left_out"]) == (0, 1)
    lines = {(row["signature"], row["bugs"]): row for row in found["changes"]}
    hits = {key: (row["change"], row["label_hits"], row["says"]) for key, row in lines.items()}
    assert hits["lin · stale-read", ""] == ("new", 10, "more than chance")
    # no run with this setting has the label `old`
    assert hits["crash · exit", ""][:2] == ("new", 0)
    back = served.api("compare?label=new&label=old")["comparison"]
    assert {line["metric"]: line["verdict"] for line in back["lines"]} == {
        "invalid": "better", "detected": "worse", "unknown": "no evidence",
    }  # fmt: skip
    text = served.page("/compare?label=old&label=new")
    for href, number in re.findall(r'<a href="(/\?[^"]*)"><span[^>]*>\w+</span> (\d+)</a>', text):
        assert served.api("runs" + html.unescape(href)[1:])["matching"] == int(number)


def test_labels_that_differ_in_bugs_are_compared_on_request(store, tmp_path, open_lake):
    for seed in range(12):
        add_run(store, "n", f"o{seed}", seed=seed, label="old")
        more = failing("lin · stale-read") if seed < 10 else {}
        add_run(store, "n", f"n{seed}", seed=seed, label="new", bugs=("BUG",), **more)
    served = open_lake(ingested(store, tmp_path / "lake"))
    found = served.api("compare?label=old&label=new")
    assert (found["comparison"]["lines"], found["comparison"]["ignorable"]) == ([], ["bugs"])
    text = served.page("/compare?label=old&label=new")
    (link,) = re.findall(r'href="/compare([^"]*ignore=bugs)"', text)
    found = served.api(f"compare{html.unescape(link)}")
    assert found["ignored"] == ["bugs"]
    verdicts = {line["metric"]: line["verdict"] for line in found["comparison"]["lines"]}
    assert verdicts == {"invalid": "worse", "unknown": "no evidence"}
    (change,) = found["changes"]
    assert (change["change"], change["label_hits"], change["bugs"]) == ("new", 10, "any")
    assert 'href="/compare?label=old&amp;label=new"' in served.page(
        f"/compare{html.unescape(link)}"
    )
    code, _, body = served.ask("/compare?label=old&label=new&ignore=bug")
    assert (code, "bugs" in body.decode()) == (400, True)


@pytest.mark.slow
def test_the_same_question_on_both_pages_has_the_same_answer(tmp_path, open_lake, capsys):
    soak = ("soak", "--workload", "ddl", "--time-limit", "4", "--store", str(tmp_path / "store"))
    bug = ("--bug", "NO-LEASE", "--nemesis", "partition-leader")
    for label, seeds, more in (("old", "1..4", ()), ("old", "1..6", bug), ("new", "3..9", bug)):
        main([*soak, "--seeds", seeds, "--label", label, *more])
    lake = ingested(tmp_path / "store", tmp_path / "lake")
    main(["report", str(lake), "--executor", "inline", "--baseline", "old", "--label", "new"])
    capsys.readouterr()

    def answer(name):
        return pq.read_table(lake / ".report" / "answers" / f"{name}.parquet").to_pylist()

    def chosen(rows, *names):
        return sorted(([row[name] for name in names] for row in rows), key=repr)

    served = open_lake(lake)
    counts = ("runs", "valid", "invalid", "unknown", "rate", "low", "high", "ok_per_s")
    found = served.api("trends?by=code")["points"]
    assert chosen(found, *counts) == chosen(answer("trend_by_code"), *counts)
    assert sum(point["invalid"] for point in found) > 3
    failure = ("verdict", "signature", "target", "bugs", "runs", "first_run", "runs_since")
    expected = chosen(answer("signatures"), *failure)
    assert chosen(served.api("runs")["signatures"], *failure) == expected
    compared = served.api("compare?label=old&label=new")
    change = ("change", "signature", "baseline_hits", "label_hits", "p_value", "p_adjusted", "says")
    expected = [row for row in answer("signature_changes") if row["level"] == "signature"]
    assert chosen(compared["changes"], *change) == chosen(expected, *change)
    line = ("setting", "metric", "baseline_value", "baseline_high", "label_low", "p_value")
    lines = compared["comparison"]["lines"]
    measured = [row for row in answer("regressions") if row["unit"] == "share"]
    assert chosen(lines, *line) == chosen(measured, *line)
    assert len(lines) == 2
