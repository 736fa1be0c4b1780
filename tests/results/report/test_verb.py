"""`harness report` on good and bad stores, and wrong calls of it."""

import json
import shutil

import msgspec
import pyarrow.parquet as pq
import pytest

from harness.case import Case
from harness.cli import main
from harness.ops import CheckResult, Verdict
from harness.store import load_run
from results.facts.schema import COLUMNS
from results.lake.log.lake import Lake
from results.questions.engines import query_names
from tests.results.judging.stores import judge_store
from tests.results.report.histories import Script
from tests.results.report.stores import Spec, add_run
from tests.support.run_folders import keep_run


def quick_history(kind="ok"):
    """Build the history of a register, which is quick to judge."""
    script = Script()
    script.fact(0, "leader", node="m1", term=1)
    script.phase(1, "chaos")
    script.inject(5, "kill", "k1")
    for number in range(12):
        process = script.invoke(10 + number * 10, f="write")
        script.ops[-1] = msgspec.structs.replace(script.ops[-1], value={"value": number})
        script.end(13 + number * 10, process, kind, f="write", value={"value": number}, node="m1")
    script.heal(200, "kill", "k1")
    script.do(210, 212, f="read", value={"value": 11 if kind == "ok" else None})
    script.phase(300, "final")
    script.fact(310, "snapshot")
    return script.history()


def add_quick(store, name, run, *, seed=1, stale=False, label=None, nemeses=("kill",), bugs=()):
    """Write a run folder by hand; in a stale run, a read returns an overwritten value."""
    case = Case(seed=seed, workload="register", nemeses=nemeses, bugs=bugs, rate=5.0)
    history = quick_history()
    if stale:
        ops = [
            msgspec.structs.replace(op, value={"value": 3})
            if op.f == "read" and op.type.value == "ok"
            else op
            for op in history
        ]
        history = type(history)(ops)
    return keep_run(
        store, name, run, case, history, [CheckResult("stats", Verdict.VALID, "by hand")],
        label=label, wall_s=0.1, simulated_s=0.31,
    )  # fmt: skip


@pytest.fixture(scope="module")
def made_small(tmp_path_factory):
    """Build two stale runs with a bug, and three runs that lack liveness, so they are at best
    `unknown`.
    """
    store = tmp_path_factory.mktemp("small")
    for seed in (1, 2):
        add_quick(store, "reg", f"bad-{seed}", seed=seed, stale=True, label="a", bugs=("B1",))
    for seed in (3, 4, 5):
        add_quick(store, "reg", f"good-{seed}", seed=seed, label="b")
    return store


@pytest.fixture(scope="module")
def judged_small(made_small, tmp_path_factory):
    store = shutil.copytree(made_small, tmp_path_factory.mktemp("judged") / "store", symlinks=True)
    assert judge_store(store).checked.results_new == 25
    return store


@pytest.fixture
def small(made_small, tmp_path):
    return shutil.copytree(made_small, tmp_path, symlinks=True, dirs_exist_ok=True)


@pytest.fixture
def judged(judged_small, tmp_path):
    return shutil.copytree(judged_small, tmp_path, symlinks=True, dirs_exist_ok=True)


def report(capsys, *arguments):
    code = main(["report", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.slow
def test_a_report_is_a_page_tables_sql_and_answers(small, capsys):
    code, out, _ = report(capsys, small)

    assert code == 1
    counts = "0 valid, 0 permitted, 3 unknown, 2 invalid"
    bugs = "2 of 2 runs with B1 found it (expected)"
    assert f"\nUNKNOWN  5 runs: {counts}; {bugs}; page: " in out
    assert "B1: found in 2 of 2 runs, 100 % (34.2 % … 100 %); first in run 1, after 310 ms" in out
    assert "reg/bad-1" in out
    folder = small / ".report"
    assert f"page: {folder / 'report.html'}" in out
    assert {path.stem for path in (folder / "tables").iterdir()} == set(COLUMNS)
    assert {path.stem for path in (folder / "sql").iterdir()} == set(query_names())
    answers = {path.stem for path in (folder / "answers").iterdir()}
    assert answers == {
        *({*query_names()} - {"slowest", "baseline_runs"}),
        *("detection_rates", "clean_rates", "signatures", "detectability", "detection_curves"),
        *("uplift_ratios", "uplift_by_role", "uplift_stratified"),
        *("survival", "trend_by_day", "trend_by_code", "costs"),
    }
    assert pq.read_table(folder / "tables" / "runs.parquet").num_rows == 5


@pytest.mark.slow
def test_a_second_report_judges_only_new_runs(small, capsys):
    report(capsys, small)
    first = (small / ".report" / "report.html").read_text()
    code, out, _ = report(capsys, small)

    assert code == 1
    assert "results of checks: 0 new, 25 known" in out
    second = (small / ".report" / "report.html").read_text()
    assert first.split('<section id="made">')[0] == second.split('<section id="made">')[0]

    add_quick(small, "reg", "good-9", seed=9)
    _, out, _ = report(capsys, small)
    assert "results of checks: 5 new, 25 known" in out


@pytest.mark.slow
def test_json_is_one_object_that_lists_its_omissions(judged, capsys, monkeypatch):
    code, out, _ = report(capsys, judged, "--json")
    content = json.loads(out)

    assert content["exit_code"] == code == 1
    assert content["verdicts"] == {"valid": 0, "permitted": 0, "unknown": 3, "invalid": 2}
    assert [row["detected"] for row in content["answers"]["detection_rates"]] == [2]
    assert content["rows_not_shown"] == {}

    monkeypatch.setattr("results.report.verb.JSON_ROWS_MAX", 3)
    content = json.loads(report(capsys, judged, "--json")[1])
    assert (len(content["answers"]["judged"]), content["rows_not_shown"]["judged"]) == (3, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("fails", "code"), [("true", 1), ("false", 2)])
def test_a_known_failure_is_marked_and_excused_if_asked(judged, tmp_path, capsys, fails, code):
    known = tmp_path / "known.toml"
    entry = "[[known]]\nsignature = '{}'\nticket = '{}'\nfails = {}\n"
    signature = "linearizable-register"
    known.write_text(entry.format(signature, "T-1", fails) + entry.format("other", "T-2", fails))

    got, out, _ = report(capsys, judged, "--known", known, "--json")
    content = json.loads(out)

    assert got == content["exit_code"] == code
    assert [row["known"] for row in content["answers"]["signatures"]] == ["T-1", None]
    assert content["gone"] == ["other (T-2)"]
    assert content["excused"] == (0 if code == 1 else 2)
    assert "[known: T-1]" in (judged / ".report" / "report.html").read_text()


@pytest.mark.slow
def test_labels_without_a_common_setting_are_not_compared(judged, capsys):
    _, out, _ = report(capsys, judged, "--baseline", "a", "--label", "b")

    assert "'b' against 'a': nothing can be compared; they differ in bugs (B1 against none)" in out
    assert "0 of 0" not in out.split("nothing can be compared")[1]
    page = (judged / ".report" / "report.html").read_text()
    assert "The labels differ in bugs (B1 against none)." in page
    assert out.count("; --ignore bugs also compares runs that differ in nothing else") == 1


@pytest.mark.parametrize(
    ("ignored", "words"),
    [(["--ignore", "bugs"], "give --baseline"), (["--baseline", "a", "--ignore", "bug"], "bugs?")],
)
def test_a_comparison_names_exactly_the_ignored_settings(made_small, capsys, ignored, words):
    code, _, err = report(capsys, made_small, *ignored)

    assert (code, words in err) == (254, True)


@pytest.mark.slow
def test_labels_are_compared_without_their_bugs(judged, capsys):
    _, out, _ = report(
        capsys, judged, "--baseline", "a", "--label", "b", "--ignore", "bugs", "--json"
    )
    lines = json.loads(out)["answers"]["regressions"]

    (invalid,) = (line for line in lines if line["metric"] == "invalid")
    assert (invalid["baseline_runs"], invalid["label_runs"]) == (2, 3)
    assert (invalid["baseline_value"], invalid["label_value"]) == (1.0, 0.0)
    assert "; ignored here: bugs" in (judged / ".report" / "report.html").read_text()


def test_output_elsewhere_leaves_the_store_alone(judged, tmp_path, capsys):
    elsewhere = tmp_path / "out" / "deep"
    code, _, _ = report(capsys, judged, "--output", elsewhere)

    assert code == 1
    assert (elsewhere / "report.html").is_file()
    assert not (judged / ".report").exists()


@pytest.mark.slow
def test_an_answer_of_an_earlier_report_does_not_stay(judged, capsys):
    report(capsys, judged, "--baseline", "a", "--label", "b")
    assert (judged / ".report" / "answers" / "regressions.parquet").is_file()
    of_another_version = [
        judged / ".report" / "tables" / "old.parquet",
        judged / ".report/sql/old.sql",
    ]
    kept = ["notes.sql", "sql/mine.sql", "answers/notes.txt", "../notes.parquet"]
    for path in (*of_another_version, *(judged / ".report" / name for name in kept)):
        path.write_bytes(b"")
    listed = judged / ".report" / ".report-files.json"
    # Listed files are ignored if they are not files that a report writes.
    names = ["tables/old.parquet", "sql/old.sql", "sql/gone.sql", "answers/notes.txt"]
    names += ["notes.sql", "../notes.parquet", "tables/../../notes.parquet"]
    listed.write_text(json.dumps([*json.loads(listed.read_text()), *names]))
    report(capsys, judged)

    assert not (judged / ".report" / "answers" / "regressions.parquet").exists()
    assert not any(path.exists() for path in of_another_version)
    assert all((judged / ".report" / name).exists() for name in kept)
    written = {
        str(path.relative_to(judged / ".report"))
        for path in (judged / ".report").rglob("*")
        if path.is_file()
    }
    ours = set(json.loads(listed.read_text()))
    assert written - ours == {".report-files.json", *kept} - {"../notes.parquet"}
    assert ours <= written


@pytest.mark.parametrize("there", ["sql/mine.sql", "report.html", "tables/t.parquet"])
def test_a_foreign_folder_is_refused_before_any_work(small, tmp_path, capsys, there):
    own = tmp_path / "project" / there
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    code, _, err = report(capsys, small, "--output", tmp_path / "project")

    assert code == 254
    assert f"holds {there.split('/')[0]!r}, which no report wrote there" in err
    assert own.read_text() == "mine"
    assert not (small / ".lake").exists()

    assert report(capsys, small, "--output", own)[0] == 254  # a file, not a folder


@pytest.mark.slow
def test_an_empty_folder_and_those_of_reports_killed_or_whole_are_written_to(
    judged, tmp_path, capsys
):
    def dies(*_, **__):
        raise KeyboardInterrupt

    (tmp_path / "out").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("results.report.files._write_text", dies)
        report(capsys, judged, "--output", tmp_path / "out")
    assert not (tmp_path / "out" / "report.html").exists()
    assert any((tmp_path / "out" / "tables").iterdir())
    for _ in range(2):
        assert report(capsys, judged, "--output", tmp_path / "out")[0] == 1


@pytest.mark.slow
def test_only_the_runs_of_a_label(small, capsys):
    code, out, _ = report(capsys, small, "--label", "b")

    assert code == 2
    assert "\nUNKNOWN  3 runs: 0 valid, 0 permitted, 3 unknown, 0 invalid; page: " in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--baseline", "x"],
            "--baseline is 'x', which no run here has; the labels here: 'a', 'b' (label",
        ),
        (
            ["--baseline", "a", "--label", "x"],
            "--label is 'x'; choose the label to compare with",
        ),
        (["--baseline", "a", "--label", "a"], "--baseline and --label are both 'a'"),
        (["--label", "x"], "--label is 'x', which no run here has; the labels here: 'a', 'b'"),
        (["--jobs", "0"], "--jobs is 0; it must be in 1 .. 512"),
        (["--check-time-limit", "0"], "--check-time-limit is 0.0; it must be positive"),
        (["--engine", "sqlite"], "--engine is 'sqlite'; one of: duckdb, spark"),
        (
            ["--engine", "duckdb", "--executor", "pool", "--spark-master", "local[2]"],
            "--spark-master has no effect with --engine duckdb and --executor pool",
        ),
    ],
)
def test_bad_use_is_one_clear_line(small, capsys, arguments, message):
    code, out, err = report(capsys, small, *arguments)

    assert code == 254
    assert out == ""
    *progress, line = err.strip().splitlines()
    assert message in line
    assert all("runs read" in each for each in progress)  # a slow machine prints progress
    assert not (small / ".lake" / "results").exists()  # refused before any work


def test_no_store_and_an_empty_one(tmp_path, capsys):
    assert report(capsys, tmp_path / "none")[0] == 254
    Lake.open(str(tmp_path / "empty"), create=True)
    (tmp_path / "store").mkdir()
    for name in ("store", "empty"):
        code, _, err = report(capsys, tmp_path / name)
        assert (code, "no run" in err) == (254, True)


# --- a poisoned store ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_poisoned_store_is_reported_and_each_poison_named(small, capsys):
    torn = add_quick(small, "poison", "torn")
    data = (torn / "history.parquet").read_bytes()
    (torn / "history.parquet").write_bytes(data[: len(data) // 2])
    foreign = add_quick(small, "poison", "foreign")
    shutil.copy(small / "poison" / "torn" / "case.json", foreign / "case.json")
    table = pq.read_table(small / "reg" / "good-3" / "history.parquet").select(["index", "f"])
    pq.write_table(table, foreign / "history.parquet")
    crashed = small / "poison" / "crashed"
    crashed.mkdir()
    shutil.copy(torn / "case.json", crashed / "case.json")
    strange = add_quick(small, "poison", "strange")
    (strange / "case.json").write_text('{"seed": "<script>alert(1)</script>"}')
    code, _, err = report(capsys, small, "--label", "x")
    assert (code, "the labels here: 'a', 'b'" in err) == (254, True)
    assert not (small / ".lake" / "results").exists()
    code, out, _ = report(capsys, small, "--json")
    content = json.loads(out)

    assert code == 1  # the stale runs make the store invalid, which outweighs everything else
    # some foreign files are only noticed when they are read
    assert content["runs"] == 5 or content["runs"] == 6
    assert content["verdicts"]["invalid"] == 2
    assert content["crashed"] == 1
    # torn, foreign and malformed runs are not counted
    assert content["runs"] + content["not_judged"] == 8
    named = {run for run, _, _ in content["problems"]}
    assert {"poison/torn", "poison/foreign", "poison/crashed", "poison/strange"} <= named
    page = (small / ".report" / "report.html").read_text()
    for run in named:
        assert run in page
    assert "<script" not in page


@pytest.mark.slow
def test_unjudged_runs_are_never_green(tmp_path, capsys):
    path = add_run(tmp_path, "ok", Spec(seed=1, time_limit_s=6.0))
    assert load_run(path).record.verdict is Verdict.VALID
    assert report(capsys, tmp_path)[0] == 0

    folder = tmp_path / "ok" / "torn"
    shutil.copytree(path, folder)
    (folder / "history.parquet").write_bytes(b"PAR1")
    code, out, _ = report(capsys, tmp_path)
    assert code == 2
    assert "UNKNOWN  2 runs: 1 valid, 0 permitted, 0 unknown, 0 invalid, 1 not judged" in out
    assert "problems\n  ok/torn (history)" in out
    assert "<b>2</b> runs of" in (tmp_path / ".report" / "report.html").read_text()

    (folder / "history.parquet").unlink()
    code, out, _ = report(capsys, tmp_path)
    assert code == 255
    assert "\nCRASH  1 run: 1 valid, 0 permitted, 0 unknown, 0 invalid, 1 crashed" in out


# --- a report on one run -------------------------------------------------------------------------


def test_a_run_folder_gets_the_page_of_the_run(small, capsys):
    folder = small / "reg" / "bad-1"
    code, out, _ = report(capsys, folder)

    assert code == 0  # the recorded verdict, because this run was never judged
    assert out == f"page    {folder / 'report.html'}\n"
    assert (folder / "report.html").is_file()


def test_flags_of_a_store_mean_nothing_to_a_run(small, capsys):
    for flag in (["--baseline", "a"], ["--again"], ["--json"]):
        code, _, err = report(capsys, small / "reg" / "bad-1", *flag)

        assert code == 254
        assert f"{flag[0]} has no effect for a single run" in err


@pytest.mark.slow
def test_runs_that_repeat_another_are_no_trials_of_their_own(tmp_path, capsys):
    def told():
        out = report(capsys, tmp_path)[1]
        return [out, (tmp_path / ".report" / "report.html").read_text()]

    add_quick(tmp_path, "n", "other", stale=True)
    add_quick(tmp_path, "n", "r1")
    assert not any("the history of another" in text for text in told())
    for run in ("r2", "r3"):
        add_quick(tmp_path, "n", run)
    repeats = "2 runs repeat the history of another run, operation by operation"
    assert all(repeats in text for text in told())


@pytest.mark.slow
def test_unsettled_results_are_counted_and_judged_again_on_demand(tmp_path, capsys, monkeypatch):
    from checkers.registers.linearizable import RegisterLinearizable

    add_quick(tmp_path, "n", "r")

    def trip(*_, **__):
        raise MemoryError

    with monkeypatch.context() as poor:
        poor.setattr(RegisterLinearizable, "check", trip)
        _, out, _ = report(capsys, tmp_path)
    told = "1 of them unknown for lack of time, memory or a worker: --again"
    assert told in out
    assert told in report(capsys, tmp_path)[1]
    assert "<code>--again</code>" in (tmp_path / ".report" / "report.html").read_text()

    content = json.loads(report(capsys, tmp_path, "--json", "--again")[1])
    assert (content["results_unsettled"], content["results_new"]) == (0, 1)
    verdicts = {row["checker"]: row["valid"] for row in content["answers"]["checkers"]}
    assert verdicts["linearizable-register"] == 1


@pytest.mark.slow
def test_runs_of_unknown_verdict_are_no_proof_that_nothing_is_wrong(tmp_path, capsys):
    for number in range(5):
        add_quick(tmp_path, "n", f"r{number}", seed=number)
    code, out, _ = report(capsys, tmp_path, "--executor", "inline")
    assert code == 2
    assert "\nUNKNOWN  5 runs: 0 valid, 0 permitted, 5 unknown, 0 invalid; page: " in out
    rates = pq.read_table(tmp_path / ".report" / "answers" / "clean_rates.parquet").to_pylist()
    assert rates
    for row in rates:
        assert (row["runs"], row["unknown"], row["rate"]) == (5, 5, None)
        assert (row["low"], row["high"], row["below"]) == (0.0, 1.0, 1.0)
    assert "0 of 0 invalid (and 5 unknown): the rate is below 100 %" in out
