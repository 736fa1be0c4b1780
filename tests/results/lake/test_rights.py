"""A user without rights gets one clear line and exit code 254, and loses nothing."""

import shutil

import pytest

from harness.errors import counted
from harness.ops import History
from results.judging.result_lake import ResultLake
from results.lake.log.lake import Lake
from tests.results.judging.stores import put_run, register_ops
from tests.results.judging.test_judging_lakes import plain_lake, report
from tests.support.unprivileged import Shell, refusing

pytestmark = pytest.mark.lake

UNREADABLE, READ_ONLY = 0, 0o555


@pytest.fixture(scope="module")
def shell():
    """Return a function that runs commands as a user without root's rights."""
    shell = Shell()
    yield shell
    shell.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Build a store of three runs, their judged lake, and a store of another run."""
    root = tmp_path_factory.mktemp("made")
    report(plain_lake(root))
    put_run(root / "other", "n", "r9", History(register_ops(9)), seed=9)
    (root / "closed").mkdir()
    return root


@pytest.fixture
def place(made, tmp_path):
    return shutil.copytree(made, tmp_path / "made", symlinks=True)


def refused(said):
    """Return the single error line of a refused command, without progress lines."""
    lines = [line for line in said.lines if line.startswith("harness: ")]
    assert (said.code, len(lines), said.out) == (254, 1, ""), said
    return lines[0]


def runs_of(lake):
    return Lake.open(str(lake)).known()


@pytest.mark.parametrize("part", ["runs", "runs/_delta_log", "operations", "operations/_delta_log"])
def test_a_lake_without_the_right_to_write(shell, place, part):
    before = runs_of(place / "lake")
    words = ("ingest", place / "other", "--lake", place / "lake")
    with refusing(place / "lake" / part, READ_ONLY):
        assert "check the folder's rights" in refused(shell.harness(*words))
    assert runs_of(place / "lake") == before
    output = shell.harness(*words)
    assert (output.code, output.out) == (0, "1 run appended, 0 known\n")
    assert runs_of(place / "lake") > before


def test_a_lake_where_none_may_be_made(shell, place):
    with refusing(place / "closed", READ_ONLY):
        output = shell.harness("ingest", place / "store", "--lake", place / "closed" / "lake")
        assert "check the folder's rights" in refused(output)
        output = shell.harness("lake", "export", place / "lake", "--store", place / "closed" / "s")
        assert "choose another --store" in refused(output)
    assert list((place / "closed").iterdir()) == []


@pytest.mark.parametrize("part", [".", "runs", "operations", "operations/_delta_log"])
def test_a_lake_without_the_right_to_read(shell, place, part):
    lake = place / "lake"
    with refusing(lake / part, UNREADABLE):
        for words in (
            ("report", lake, "--output", place / "out"),
            ("serve", lake, "--port", "0"),
            ("lake", "check", lake),
            ("lake", "compact", lake),
            ("lake", "export", lake, "--store", place / "out"),
            ("ingest", place / "other", "--lake", lake),
        ):
            if words[0] != "serve" or part in {".", "runs"}:  # `serve` reads no operations
                assert "check the folder's rights" in refused(shell.harness(*words))
    assert not (place / "out").exists()
    assert shell.harness("lake", "check", lake).code == 0


@pytest.mark.parametrize("table", ["runs", "operations"])
def test_a_file_of_a_lake_that_we_may_not_read_is_no_damage(shell, place, table):
    lake = place / "lake"
    shutil.rmtree(lake / "results")
    (file,) = (lake / table).glob("*.parquet")
    with refusing(file, UNREADABLE):
        for words in (
            ("report", lake, "--output", place / "out"),
            ("lake", "check", lake),
            ("lake", "export", lake, "--store", place / "again"),
        ):
            assert "check the folder's rights" in refused(shell.harness(*words))
    assert not (place / "out").exists()
    assert shell.harness("lake", "check", lake).code == 0


@pytest.mark.parametrize("mode", [UNREADABLE, 0o111])
def test_a_store_without_the_right_to_read(shell, place, mode):
    store = place / "store"
    with refusing(store, mode):
        for words in (
            ("report", store, "--output", place / "out"),
            ("ingest", store, "--lake", place / "new"),
            # with other rights, `serve` would start and wait
            *([("serve", store, "--port", "0")] if mode == UNREADABLE else []),
        ):
            line = refused(shell.harness(*words))
            assert str(store) in line
            assert "Permission denied" in line
    assert not (place / "out").exists()


@pytest.mark.parametrize("part", ["n", "n/r1"])
def test_a_part_of_a_store_that_we_may_not_read_is_named_and_the_rest_judged(shell, place, part):
    put_run(place / "store", "m", "r4", History(register_ops(4)), seed=4)
    left = 1 if part == "n" else 3
    with refusing(place / "store" / part, UNREADABLE):
        said = shell.harness("report", place / "store", "--output", place / "out")
        assert said.code == 2
        assert f"{left} unknown, 0 invalid{', 1 not judged' * (left == 3)}; page: " in said.out
        assert f"  {part} (" in said.out
        said = shell.harness("ingest", place / "store", "--lake", place / "new")
        assert (said.code, len(said.lines)) == (2, 1)
        assert said.out == f"{counted(left, 'run')} appended, 0 known, 1 left out, see above\n"


@pytest.mark.parametrize("executor", ["inline", "pool"])
@pytest.mark.parametrize("part", ["runs", "runs/_delta_log", "verdicts"])
def test_results_of_a_lake_that_may_not_be_written(shell, place, part, executor):
    lake = place / "lake"
    words = ("report", lake, "--executor", executor, "--jobs", "2")
    with refusing(lake / "results" / part, READ_ONLY):
        assert "check the folder's rights" in refused(shell.harness(*words))
    assert not (lake / ".report").exists()
    assert len(ResultLake.beside(str(lake), {}).known()) == 3
    known, _ = report(lake)
    assert known.results_new == 0


def test_a_lake_without_results_that_may_not_get_any(shell, place):
    shutil.rmtree(place / "lake" / "results")
    with refusing(place / "lake", READ_ONLY):
        said = shell.harness("report", place / "lake", "--output", place / "out")
        assert "check the folder's rights" in refused(said)


@pytest.mark.parametrize("part", [".report", ".report/answers"])
@pytest.mark.parametrize("mode", [READ_ONLY, UNREADABLE])
def test_a_report_that_may_not_be_written(shell, place, part, mode):
    store = place / "store"
    (store / part).mkdir(parents=True)
    with refusing(store / part, mode):
        assert "choose another --output" in refused(shell.harness("report", store))
    assert shell.harness("report", store).code == 2
    assert (store / ".report" / "report.html").is_file()


def test_a_folder_for_reports_that_is_closed(shell, place):
    words = ("report", place / "lake", "--output", place / "closed" / "x")
    with refusing(place / "closed", READ_ONLY):
        assert "choose another --output" in refused(shell.harness(*words))
    with refusing(place / "closed", UNREADABLE):
        assert "give another" in refused(shell.harness(*words))


def test_the_page_of_a_run_that_is_not_ours(shell, place):
    run = place / "store" / "n" / "r1"
    for mode in (READ_ONLY, UNREADABLE):
        with refusing(run, mode):
            assert "Permission denied" in refused(shell.harness("report", run))
    assert not (run / "report.html").exists()
