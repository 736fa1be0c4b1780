"""`harness report LAKE` for a lake that does not belong to a store."""

import json
import shutil

import pytest

from harness.cli import main
from results.lake.transfer.ingest_verb import main as ingest_verb
from results.report.addresses import Addresses
from results.report.report import chosen_engine
from tests.results.report.stores import MIXED, Spec, add_run, make_store
from tests.results.report.test_verb import add_quick
from tests.support.spark_session import spark_test

pytestmark = pytest.mark.lake

SPECS = tuple(
    spec
    for number, spec in enumerate(MIXED)
    if number in {0, 3, 5, 8, 11, 13, 16, 17, 19, 22, 23, 24}
)
"""Some of the runs: different labels, nemeses, bugs and workloads, and a power cut."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    root = tmp_path_factory.mktemp("both")
    store = make_store(root / "store", SPECS)
    assert ingest_verb([str(store), "--lake", str(root / "lake")]) == 0
    return root / "lake"


@pytest.fixture(scope="module")
def told(lake):
    """Return the exit code and the JSON output of a report on the lake."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(["report", str(lake), "--executor", "inline", "--json"])
    assert not (lake / ".report" / "tables").exists()  # the tables are in the lake itself
    return code, json.loads(out.getvalue())


def test_only_lists_of_runs_are_truncated(lake, told, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("results.report.report.ROWS_OF_RUNS_MAX", 2)
    output = str(tmp_path / "cut")
    assert main(["report", str(lake), "--json", "--output", output]) == told[0] == 1
    cut, whole = json.loads(capsys.readouterr().out), told[1]
    assert (cut["results_new"], whole["problems_total"]) == (0, 0)
    lists = {name: len(whole["answers"][name]) for name in ("judged", "failing_runs")}
    left_out = {name: n for name, n in cut["rows_not_shown"].items() if name in lists}
    assert left_out == {name: n - 2 for name, n in lists.items() if n > 2}
    assert lists["judged"] == len(SPECS)
    others = [each["rows_not_shown"].keys() - lists for each in (cut, whole)]
    # the other tables that the JSON cuts: their rows have no fixed order, so they are not compared
    assert others[0] == others[1]
    for name, rows in whole["answers"].items():
        lists = name in {"judged", "failing_runs", "changed_verdicts"}
        if name != "latency_by_run" and name not in others[0]:
            assert cut["answers"][name] == (rows[:2] if lists else rows), name
    longest = sorted(whole["answers"]["latency_by_run"], key=lambda row: -row["max_ns"])[:2]
    by_run = cut["answers"]["latency_by_run"]
    assert [row["max_ns"] for row in sorted(by_run, key=lambda row: -row["max_ns"])] == [
        row["max_ns"] for row in longest
    ]
    assert all(row in whole["answers"]["latency_by_run"] for row in by_run)
    page = (tmp_path / "cut" / "report.html").read_text()
    assert "2 longest operations" in page


def test_a_report_says_which_engine_answers_and_hints_at_spark(told):
    _, summary = told
    assert summary["engine"] == "duckdb"
    assert summary["engine_why"] == ""
    assert chosen_engine(5, "duckdb", None)[0] == "duckdb"
    assert chosen_engine(5, "spark", None)[0] == "spark"
    assert chosen_engine(5, None, "local[2]") == ("spark", "")
    assert chosen_engine(10**7, None, None)[0] == "duckdb"
    assert "--spark-master" in chosen_engine(10**7, None, None)[1]


@spark_test
@pytest.mark.nightly
@pytest.mark.parametrize(
    "options", [["--spark-master", "local[2]"], ["--executor", "spark", "--engine", "duckdb"]]
)
def test_spark_judges_and_answers_or_only_judges(lake, told, options, tmp_path, capsys):
    output = str(tmp_path / "report")
    assert main(["report", str(lake), "--output", output, "--json", *options]) == told[0]
    content = json.loads(capsys.readouterr().out)
    assert content["engine"] == ("duckdb" if "duckdb" in options else "spark")
    assert content["executor"] == "spark"
    assert content["results_new"] == 0
    assert content["answers"] == told[1]["answers"]


def test_findings_link_to_the_folder_that_the_lake_keeps(tmp_path, capsys):
    store, lake = tmp_path / "store", tmp_path / "lake"
    add_quick(store, "reg", "good", seed=1)
    folder = add_quick(store, "reg", "bad", seed=2, stale=True)
    record = json.loads((folder / "run.json").read_bytes())
    failure = {"checker": "linearizable-register", "reason": "stale", "signature": "s"}
    record |= {"verdict": "invalid", "failure": failure}
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "report.html").write_text("its page")
    assert ingest_verb([str(store), "--lake", str(lake)]) == 0
    assert main(["report", str(lake), "--executor", "inline"]) == 1
    capsys.readouterr()
    page = (lake / ".report" / "report.html").read_text()
    (kept,) = (lake / "folders" / "reg").iterdir()
    assert f'href="../folders/reg/{kept.name}/report.html"' in page
    assert f"{kept}/case.json" in page

    from results.lake.log.lake import Lake

    snapshot = Lake.open(str(lake)).snapshot()
    far = Addresses("s3://team/lake", snapshot, tmp_path)
    assert far.link(f"reg/{kept.name}") == f"s3://team/lake/folders/reg/{kept.name}/report.html"
    good = next(run for run in snapshot.known() if "good" in run)
    assert far.link(good) == Addresses(str(lake), snapshot, tmp_path).link(good) == ""
    assert "lake export s3://team/lake" in far.replay(good, "sim")


@pytest.mark.parametrize(
    ("table", "harm"),
    [("runs", "lost"), ("results/runs", "torn"), ("results/verdicts", "lost")],
)
@pytest.mark.usefixtures("told")
def test_a_file_that_cannot_be_read_is_one_clear_line(lake, tmp_path, capsys, table, harm):
    there = shutil.copytree(lake, tmp_path / "lake")
    file = min((there / table).glob("*.parquet"))
    if harm == "lost":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-9])

    assert main(["report", str(there), "--executor", "inline"]) == 255

    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("harness: InfrastructureError: a file of the lake")
    assert file.name in line


@pytest.mark.parametrize("known", [False, True])
def test_a_run_without_any_result_counts_in_the_headline(tmp_path, capsys, known):
    import deltalake

    store, lake = tmp_path / "store", tmp_path / "lake"
    for seed in (1, 2):
        add_run(store, "ok", Spec(seed=seed, time_limit_s=6.0))
    assert main(["ingest", str(store), "--lake", str(lake)]) == 0
    (run, _) = deltalake.DeltaTable(str(lake / "runs")).to_pyarrow_table()["run"].to_pylist()
    deltalake.DeltaTable(str(lake / "operations")).delete(f"run = '{run}' AND process = 1")
    for _ in range(1 + known):
        capsys.readouterr()
        assert main(["report", str(lake)]) == 2
    out = capsys.readouterr().out
    verdict = "UNKNOWN  2 runs: 1 valid, 0 permitted, 0 unknown, 0 invalid, 1 not judged; page: "
    assert out.splitlines()[-1].startswith(verdict)
    assert "not judged" in (lake / ".report" / "report.html").read_text()
