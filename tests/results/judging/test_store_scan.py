"""A store is scanned by footers, and whatever cannot be a run is named."""

import errno
import os
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.ops import History
from harness.store import OpLog, RunFolder
from results.judging import problems as store_scan
from results.judging.problems import PROBLEMS_MAX, Problem, Problems, scan_store
from tests.results.judging.stores import (
    foreign_parquet,
    keyed_history,
    put_run,
    register_ops,
)

HISTORY = History(register_ops(1))


def test_a_run_is_known_by_its_footer_and_small_files(tmp_path):
    put_run(tmp_path, "n", "r1", HISTORY, seed=5, label="v1")
    put_run(tmp_path, "n", "r2", keyed_history(["a", "b", "c"]), buckets=2)
    scan = scan_store(tmp_path)

    first, second = scan.runs
    assert (first.key, first.case.seed, first.label, first.keyed) == ("n/r1", 5, "v1", False)
    assert (first.n_ops, [footer.n_keys for footer in first.footers]) == (len(HISTORY), [1])
    assert first.footers[0].digest == HISTORY.digest()
    assert (second.key, second.keyed) == ("n/r2", True)
    assert sum(footer.n_keys for footer in second.footers) == 3
    assert second.files == ("history/bucket-00.parquet", "history/bucket-01.parquet")
    assert scan.problems.total == 0


def test_no_op_is_read(tmp_path, monkeypatch):
    put_run(tmp_path, "n", "r1", HISTORY)

    def refuse(*_):
        raise AssertionError("an op was read")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read", refuse)
    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read_row_group", refuse)
    assert len(scan_store(tmp_path).runs) == 1


def test_links_and_dots_are_no_runs(tmp_path):
    put_run(tmp_path, "n", "r1", HISTORY)
    (tmp_path / ".results" / "ab").mkdir(parents=True)
    (tmp_path / "n" / ".soak").mkdir()
    (tmp_path / "other").symlink_to("n")
    assert (tmp_path / "n" / "latest").is_symlink()
    scan = scan_store(tmp_path)
    assert [info.key for info in scan.runs] == ["n/r1"]
    assert scan.problems.kept == ()


def test_the_folder_of_one_name_is_a_store_too(tmp_path):
    put_run(tmp_path, "n", "r1", HISTORY)
    assert [info.key for info in scan_store(tmp_path / "n").runs] == ["n/r1"]


def problem_of(store):
    (problem,) = scan_store(store).problems.kept
    return problem.run, problem.kind, problem.text


def test_a_torn_file_is_named(tmp_path):
    put_run(tmp_path, "n", "good", HISTORY)
    path = put_run(tmp_path, "n", "torn", HISTORY) / "history.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    run, kind, text = problem_of(tmp_path)
    assert (run, kind) == ("n/torn", "history")
    assert "Parquet" in text
    assert [info.key for info in scan_store(tmp_path).runs] == ["n/good"]


def test_a_foreign_file_is_named(tmp_path):
    foreign_parquet(put_run(tmp_path, "n", "r", HISTORY) / "history.parquet")
    assert problem_of(tmp_path)[:2] == ("n/r", "history")


@pytest.mark.parametrize("content", ["{", '{"seed": -1}', '{"seed": 1, "more": 2}'])
def test_a_bad_case_is_named(content, tmp_path):
    (put_run(tmp_path, "n", "r", HISTORY) / "case.json").write_text(content)
    assert problem_of(tmp_path)[:2] == ("n/r", "case")


def test_a_folder_without_a_case_is_named(tmp_path):
    (tmp_path / "n" / "r").mkdir(parents=True)
    assert problem_of(tmp_path)[:2] == ("n/r", "case")


def test_a_bad_record_is_named_and_its_run_is_there(tmp_path):
    (put_run(tmp_path, "n", "r", HISTORY) / "run.json").write_text("[]")
    assert problem_of(tmp_path)[:2] == ("n/r", "record")
    (info,) = scan_store(tmp_path).runs
    assert info.record is None


def test_a_run_cut_short_is_named_and_there(tmp_path):
    folder = RunFolder(tmp_path, "n", "r")
    from harness.case import Case

    folder.write_case(Case(seed=1, workload="register"))
    log = OpLog(folder.path / "ops.log")
    for op in HISTORY:
        log.append(op)
    log.close()
    assert problem_of(tmp_path)[:2] == ("n/r", "unfinished")
    (info,) = scan_store(tmp_path).runs
    assert info.source == "ops.log"
    before = info.digest
    with (folder.path / "ops.log").open("ab") as file:
        file.write(b"x")
    assert scan_store(tmp_path).runs[0].digest != before


def test_a_missing_bucket_is_named(tmp_path):
    path = put_run(tmp_path, "n", "r", keyed_history(["a", "b", "c"]), buckets=2)
    (path / "history" / "bucket-00.parquet").unlink()
    run, _, text = problem_of(tmp_path)
    assert run == "n/r"
    assert "buckets [1] of 2" in text


def test_a_run_without_any_history_is_named(tmp_path):
    (put_run(tmp_path, "n", "r", HISTORY) / "history.parquet").unlink()
    assert "neither" in problem_of(tmp_path)[2]


def test_an_unreadable_folder_is_named(tmp_path, monkeypatch):
    put_run(tmp_path, "n", "r", HISTORY)
    scandir = os.scandir

    def refuses(path):
        if Path(path) == tmp_path / "n":  # as the system does, but to root as well
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuses)
    assert problem_of(tmp_path)[0] == "n"


def test_no_store_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="--store"):
        scan_store(tmp_path / "nowhere")


def test_problems_are_bounded_and_counted():
    problems = Problems()
    for n in range(PROBLEMS_MAX + 5):
        problems.add(Problem(f"n/{n}", "history", "x" * 10_000))
        problems.add(Problem("n/0", "history", "x" * 10_000))  # the same one again
    assert problems.total == PROBLEMS_MAX + 5
    assert len(problems.kept) == PROBLEMS_MAX
    assert len(problems.kept[0].text) < store_scan.TEXT_CHARS_MAX + 100


def test_a_history_that_is_not_the_one_of_its_record_is_named(tmp_path):
    from harness.store import write_parquet

    folder = put_run(tmp_path, "n", "r", History(register_ops(1)))
    assert scan_store(tmp_path).problems.kept == ()
    write_parquet(folder / "history.parquet", History(register_ops(2)))
    (problem,) = scan_store(tmp_path).problems.kept
    assert (problem.run, problem.kind) == ("n/r", "record")
    assert "history.parquet" in problem.text
    assert len(scan_store(tmp_path).runs) == 1
