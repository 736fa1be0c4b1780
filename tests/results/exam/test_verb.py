"""`harness exam` as a whole, mostly with scripted results."""

import json
import signal
import subprocess

import msgspec
import pytest

from harness.cli import main
from harness.errors import (
    EXIT_CRASH,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_UNKNOWN,
    EXIT_VALID,
)
from harness.trials.shrink import Shrunk
from results.exam import shrinking, trend, verb
from results.exam.baseline import compare
from results.exam.page import render
from results.exam.progress import ExamProgress
from results.exam.rows import CLEAN, DEFECT, SWITCH
from results.exam.scores import read_scoreboard
from results.exam.sitting import Sitting
from results.exam.trend import commit_here, exam_of, record
from tests.results.exam.made import board, result, results, row

BASE = ("exam", "--target", "kudu", "--part", "switches", "--only", "KUDU-765,NO-LEASE")


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    """Return a function that lets `answer` produce the results of seeds.

    An exception that `answer` returns is raised.
    """
    monkeypatch.chdir(tmp_path)

    def script(answer):
        def run(self, *, jobs, on_result):
            for each in self.rows:
                for seed in each.seeds:
                    self._take(each, result(seed, answer(each, seed)), on_result)

        monkeypatch.setattr(Sitting, "run", run)

    return script


def found_at(seed):
    return lambda row, number: "invalid" if number >= seed and row.kind != CLEAN else "valid"


def test_an_exam_writes_its_files(scripted, tmp_path, capsys):
    scripted(found_at(2))
    assert main([*BASE, "--seeds", "1..4"]) == EXIT_VALID
    content = json.loads((tmp_path / "store/.exam/exam.json").read_text())
    assert [(one["name"], one["hits"], one["seeds"]) for one in content["scores"]] == [
        ("NO-LEASE", 3, 4),
        ("KUDU-765", 3, 4),
    ]
    page = (tmp_path / "store/.exam/exam.html").read_text()
    assert "KUDU-765" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "KUDU-765" in capsys.readouterr().out


def test_json_is_the_file(scripted, tmp_path, capsys):
    scripted(found_at(1))
    assert main([*BASE, "--seeds", "1..2", "--json"]) == EXIT_VALID
    content = json.loads(capsys.readouterr().out)
    assert content == json.loads((tmp_path / "store/.exam/exam.json").read_text())


def test_a_rate_that_left_the_baseline_fails_the_exam(scripted, tmp_path):
    arguments = [*BASE, "--seeds", "1..30"]
    scripted(found_at(1))
    assert main(arguments) == EXIT_VALID
    before = tmp_path / "before.json"
    (tmp_path / "store/.exam/exam.json").rename(before)
    assert main([*arguments, "--baseline", str(before), "--fresh"]) == EXIT_VALID
    scripted(found_at(31))
    assert main([*arguments, "--baseline", str(before), "--fresh"]) == EXIT_INVALID


def test_a_blamed_profile_fails_the_exam(scripted):
    scripted(lambda row, seed: "invalid" if row.name == "hive4 hms-ddl" and seed == 2 else "valid")
    clean = ("exam", "--target", "hive", "--part", "clean", "--clean", "1..2")
    assert main([*clean, "--only", "hive4 hms-ddl,strict hms-ddl"]) == EXIT_INVALID
    assert main([*clean, "--only", "strict hms-ddl"]) == EXIT_VALID


def test_an_interrupt_keeps_finished_work(scripted, tmp_path):
    def answer(row, seed):
        if seed == 3:
            raise KeyboardInterrupt
        return "valid"

    scripted(answer)
    assert main([*BASE, "--seeds", "1..4"]) == EXIT_INTERRUPTED
    lines = (tmp_path / "store/.exam/results.log").read_bytes().splitlines()
    assert sum(bool(line) for line in lines) == 2
    assert not (tmp_path / "store/.exam/exam.json").exists()


def test_an_interrupt_while_it_shrinks_keeps_the_scoreboard(scripted, tmp_path, monkeypatch):
    asked = []

    def shrink(trials, case, kind):
        asked.append(case)
        if len(asked) == 2:
            signal.raise_signal(signal.SIGTERM)
        return Shrunk(
            case=case, kind=kind, result=result(1, "invalid"), start=case, operations=3,
            steps=(), runs=1, cpu_s=1.0, exhausted=False,
        )  # fmt: skip

    scripted(found_at(1))
    monkeypatch.setattr(shrinking, "shrink", shrink)
    assert main([*BASE, "--seeds", "1..2", "--shrink"]) == EXIT_INTERRUPTED
    said = read_scoreboard(tmp_path / "store/.exam/exam.json", "--baseline")
    assert [one.hits for one in said.scores] == [2, 2]
    assert [one.shrunk is not None for one in said.scores] == [True, False]
    assert "1 detection not shrunk" in said.cut
    assert "not shrunk" in (tmp_path / "store/.exam/exam.html").read_text()
    assert main([*BASE, "--seeds", "1..2", "--shrink"]) == EXIT_VALID
    said = read_scoreboard(tmp_path / "store/.exam/exam.json", "--baseline")
    assert all(one.shrunk is not None for one in said.scores)
    assert not said.cut


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (board((row(kind=CLEAN), results("valid", "permitted"))), EXIT_VALID),
        (board((row(kind=SWITCH), results("crash", "valid"))), EXIT_VALID),
        (board((row(kind=CLEAN), results("crash", "valid"))), EXIT_CRASH),
        (board((row(kind=CLEAN), results("crash", "invalid"))), EXIT_INVALID),
        (board((row(kind=SWITCH), results("valid")), cut="incomplete"), EXIT_UNKNOWN),
    ],
)
def test_exit_codes(made, code):
    assert verb.exit_code_of(made, None) == code


def test_the_trend_has_one_line_per_commit(tmp_path):
    path = tmp_path / "history.jsonl"
    record(path, board((row(kind=SWITCH), results("valid")), commit="a"))
    record(path, board((row(kind=SWITCH), results("invalid")), commit="b"))
    with path.open("ab") as file:
        file.write(b"torn")
    exams = record(path, board((row(kind=SWITCH), results("invalid")), commit="a"))
    assert [(exam.commit, exam.switches.detected) for exam in exams] == [("b", 1), ("a", 1)]
    assert trend.read_history(path) == exams


def test_a_commit_is_known_where_there_is_a_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert commit_here() == trend.UNKNOWN
    for words in (["init", "-q"], ["add", "f"], ["commit", "-qm", "x"]):
        (tmp_path / "f").write_text("1")
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *words], check=True)
    clean = commit_here()
    assert len(clean) == trend.COMMIT_CHARACTERS
    (tmp_path / "f").write_text("2")
    assert commit_here() == f"{clean}+"


def test_the_page_escapes_output_of_targets():
    made = board((row("<x>", SWITCH, title="a & b"), results("invalid")))
    page = render(made, None, [exam_of(made)])
    assert "&lt;x&gt;" in page
    assert "a &amp; b" in page
    assert "<x>" not in page


def test_the_page_shows_trends_changes_and_missing_data():
    before = board((row("a", SWITCH), results(*["invalid"] * 30)), commit="old")
    now = board(
        (row("a", SWITCH), results(*["valid"] * 30)),
        (row("m", DEFECT, reason="equivalent"), results("valid")),
        (row("p q", CLEAN), results("valid")),
        commit="new",
    )
    page = render(now, compare(now, before), [exam_of(before), exam_of(now)])
    for part in ('id="trend"', 'id="baseline"', 'id="missed"', 'id="clean"', "equivalent", "old"):
        assert part in page
    assert 'class="worse"' in page


def test_progress_counts_only_rows_that_are_sought():
    rows = [row("a", SWITCH, first=True, seeds=range(1, 11)), row("p", CLEAN, seeds=range(1, 16))]
    progress = ExamProgress(rows)
    for seed in range(1, 10):
        progress.take(rows[1], result(seed), tried=seed)
    progress.take(rows[0], result(1, "invalid"), tried=1)
    line = progress.line(10.0)
    assert "10 runs" in line
    assert "1 of 1 switches found" in line
    assert "0 blamed" in line
    assert "6 s" in line  # the clean row has six seeds left, at one second each


@pytest.mark.slow
def test_defects_are_planted_in_workers(tmp_path, capsys):
    arguments = (
        *("exam", "--part", "defects", "--defects", "tests.results.exam.made"),
        *("--seeds", "1..2", "--store", str(tmp_path), "--json", "--jobs", "2"),
    )
    assert main(list(arguments)) == EXIT_VALID
    made = msgspec.json.decode(capsys.readouterr().out)
    found = {one["name"]: one["verdicts"] for one in made["scores"]}
    assert found["harmless"] == {"valid": 2}
    assert "valid" not in found["no-leader"]
