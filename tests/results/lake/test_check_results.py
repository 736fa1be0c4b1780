"""`harness lake check` also checks the results of reports in `LAKE/results`."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import InfrastructureError
from harness.ops import HARNESS, History, Op, OpType
from results.judging.budgets import Budget
from results.judging.result_lake import ResultLake
from results.lake.log.files import RESULTS
from results.lake.log.lake import Lake
from results.lake.log.row_files import write_parts
from results.lake.verb import main as lake_verb
from tests.results.judging.stores import put_run
from tests.results.judging.test_judging_lakes import ingested, plain_lake, report

pytestmark = pytest.mark.lake

TABLES = {"runs", "verdicts"}


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Build a lake of three runs with two reports. The reports have different budgets."""
    root = tmp_path_factory.mktemp("judged")
    uri = plain_lake(root)
    report(uri)
    report(uri, budget=Budget(cpu_s=299.0))
    return uri


@pytest.fixture
def lake(judged, tmp_path):
    return shutil.copytree(judged, tmp_path / "lake")


def checked(lake, capsys):
    code = lake_verb(["check", str(lake)])
    own, _, found = capsys.readouterr().out.partition("results of reports")
    return code, own, found


def results_of(lake):
    return ResultLake.beside(str(lake), {})


def test_runs_that_were_judged_again_and_again_are_sound(lake, capsys):
    code, own, found = checked(lake, capsys)
    assert (code, own.splitlines()) == (0, ["sound  3 runs"])
    assert found.splitlines()[-1] == "sound  6 rows"
    lake_verb(["compact", str(lake)])
    capsys.readouterr()
    assert checked(lake, capsys)[0] == 0


@pytest.mark.parametrize("table", sorted(TABLES))
def test_a_file_of_the_results_that_is_gone_is_damage(lake, capsys, table):
    name = results_of(lake).files(table)[0].name
    (lake / RESULTS / table / name).unlink()
    code, own, found = checked(lake, capsys)
    assert (code, "sound" in own, "1 file lost" in found) == (1, True, True)
    assert found.splitlines()[-1].startswith("damaged")


def test_a_file_of_the_results_that_was_changed_is_damage(lake, capsys):
    file = results_of(lake).files("verdicts")[0]
    path = lake / RESULTS / "verdicts" / file.name
    pq.write_table(pq.read_table(path, partitioning=None).slice(1), path)
    code, _, found = checked(lake, capsys)
    assert (code, "1 file of another size than written" in found) == (1, True)


def test_results_about_runs_that_the_lake_lacks_are_left_over(judged, lake, capsys, tmp_path):
    other = plain_lake(tmp_path / "other")  # another lake has the same runs in other batches
    shutil.copytree(lake / RESULTS, other / RESULTS)
    code, _, found = checked(other, capsys)
    assert code == 0
    assert "left over  runs: results about 3 runs that the lake does not have" in found
    again = Lake.open(str(judged))
    assert len(again.known()) == 3


def test_results_without_their_table_of_runs(lake, capsys):
    shutil.rmtree(lake / RESULTS / "runs")
    code, own, found = checked(lake, capsys)
    assert (code, "sound" in own) == (1, True)
    assert "damaged   verdicts: has rows, but the table `runs` is missing" in found
    shutil.rmtree(lake / RESULTS)
    ResultLake.beside(str(lake), {}, create=True)
    shutil.rmtree(lake / RESULTS / "runs")
    code, _, found = checked(lake, capsys)
    assert code == 0
    assert "left over  verdicts: left behind by an interrupted creation" in found
    for action in ("compact", "vacuum"):
        assert lake_verb([action, str(lake)]) == 0


def lose_rows(lake, table, lost):
    """Remove rows of the results, which no release does; files and log still match."""
    results = results_of(lake)
    log = results.logs[table]
    for file in [*log.refresh().files.values()]:
        rows = pq.read_table(lake / RESULTS / table / file.name, partitioning=None)
        kept = rows.filter(pa.array([not lost(row) for row in rows.to_pylist()]))
        new = (results.place, table, f"b-{file.batch}-9.parquet", results.schemas[table])
        add = [write_parts(*new, iter([kept]), file.partition)] if len(kept) else []
        log.refresh()
        log.commit(results.schemas[table], add=add, remove=[file], exact=True)
        (lake / RESULTS / table / file.name).unlink()


def of_one_run(row):
    return row["run"].startswith("n/r1@")


@pytest.mark.parametrize(
    ("lost", "many"),
    [
        (lambda row: of_one_run(row) and row["checker"] == "stats", "1 verdict"),
        (lambda _: True, "12 verdicts"),
    ],
)
def test_a_report_stops_where_verdicts_lost_their_rows(lake, lost, many):
    _, before = report(lake)
    lose_rows(lake, "verdicts", lost)
    with pytest.raises(
        InfrastructureError, match=f"{many} in .*/results lost .* remove this folder"
    ):
        report(lake)
    shutil.rmtree(lake / RESULTS)
    _, rows = report(lake)
    assert rows["verdicts"] == before["verdicts"]


def test_a_run_without_operations_has_facts_without_rows(tmp_path, capsys):
    note = Op(0, 0, HARNESS, OpType.INFO, "phase", {"phase": "chaos"})
    put_run(tmp_path / "store", "n", "r", History([note]))
    uri = ingested(tmp_path / "store", tmp_path / "lake")
    assert report(uri)[0].results_new > 0
    assert checked(uri, capsys)[0] == 0
    assert report(uri)[0].results_new == 0
