"""`harness shrink` turns a failed run into a shrunk run with its page, and refuses wrong calls."""

import json
from pathlib import Path

import msgspec
import pytest

from harness.case import Case, load_case
from harness.cli import main
from harness.cli.shrink.progress import ShrinkProgress
from harness.cli.shrink.story import LINES_MAX, WIDTH
from harness.errors import EXIT_INVALID, EXIT_USAGE, EXIT_VALID
from harness.store import load_run
from harness.trials.shrink import Step

BROKEN = Case(
    seed=2, time_limit_s=4.0, interval_s=4.0, duration_s=4.0, bugs=("NO-LEASE",),
    nemeses=("partition-leader",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "quoted"),
    [
        (["no-such-file"], "'no-such-file'"),
        (["case.json", "--cpu", "0"], "--cpu is 0"),
        (["case.json", "--jobs", "0"], "--jobs is 0"),
        (["case.json", "--seeds", "x"], "--seeds is 'x'"),
        (["."], "'.'"),
    ],
)
def test_wrong_calls_are_refused(words, quoted, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.json").write_bytes(BROKEN.encode())
    assert main(["shrink", *words]) == EXIT_USAGE
    assert quoted in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_before_the_search(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.json").write_bytes(BROKEN.encode())
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    assert main(["shrink", "case.json"]) == EXIT_USAGE
    assert "shrunk.case.json" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--env", "process"], ["--lake", "lake"]])
def test_a_soak_only_shrinks_runs_of_the_simulation_in_its_store(flags, capsys):
    assert main(["soak", "--seeds", "1", "--shrink", *flags]) == EXIT_USAGE
    assert flags[0] in capsys.readouterr().err


def test_progress_has_the_size_and_the_cpu_time():
    class Counts:
        runs, cpu_s = 7, 3.2

    progress = ShrinkProgress(60.0)
    progress.follow(Counts())
    progress.on_step(Step("fewer operations", 7, 3.2), Case(seed=1, faults=(), ops=()))
    for part in ("0 faults", "0 operations", "7 trials", "3 of 60 CPU s"):
        assert part in progress.line()


@pytest.mark.slow
def test_a_run_shrinks_to_a_run_whose_page_is_linked(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "case.json").write_bytes(BROKEN.encode())
    run = ["run", "--env", "sim", "--case", "case.json", "--name", "broken", "--quiet"]
    assert main(run) == EXIT_INVALID
    latest = tmp_path / "store" / "broken" / "latest"
    first = latest.resolve()
    capsys.readouterr()
    shrink = ["shrink", str(latest), "--cpu", "3", "--seeds", "2", "--jobs", "1"]
    assert main([*shrink, "--json"]) == EXIT_VALID
    content = json.loads(capsys.readouterr().out)
    assert (content["checker"], content["rule"]) == ("linearizable-catalog", "stale-read")
    assert content["faults"] <= 1
    assert len(content["story"]) <= LINES_MAX
    shortened = content["story"][:-3]
    assert max(map(len, shortened)) <= WIDTH
    assert latest.resolve() == first, "the link still names the run that was shrunk"
    shrunk = first.with_name(f"{first.name}-shrunk")
    assert str(shrunk) == content["run"]
    case = load_case(first / "shrunk.case.json")
    assert case == load_run(shrunk).case
    assert case.bugs == BROKEN.bugs
    assert f"../{shrunk.name}/report.html" in (first / "report.html").read_text()
    assert f"../{first.name}/report.html" in (shrunk / "report.html").read_text()
    assert main(["run", "--env", "sim", "--case", content["case"], "--quiet"]) == EXIT_INVALID


@pytest.mark.slow
def test_a_run_without_a_failure_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = msgspec.structs.replace(BROKEN, bugs=(), nemeses=("none",), time_limit_s=1.0)
    (tmp_path / "case.json").write_bytes(case.encode())
    main(["run", "--env", "sim", "--case", "case.json", "--name", "fine", "--quiet"])
    capsys.readouterr()
    assert main(["shrink", "store/fine/latest"]) == EXIT_USAGE
    assert "no proven failure" in capsys.readouterr().err
