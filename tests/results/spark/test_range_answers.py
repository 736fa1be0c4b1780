"""Answers of tasks about ranges of runs add up to those of a single machine (without Spark)."""

import contextlib
import itertools
import shutil
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.judging.required_results import wants_of
from results.judging.result_ids import Registry
from results.judging.result_lake import ResultLake
from results.lake.log.files import FileRef
from results.questions.aggregate import aggregate
from results.questions.engines import DuckEngine, Extent
from results.spark import range_answers, ranges
from results.spark.ranges import Asking, Files
from tests.results.spark.test_report import BUDGETS, MOST, on_duckdb, opened, problems_of
from tests.tiers import examples

pytestmark = pytest.mark.lake


@pytest.fixture(scope="module")
def judged(lake, tmp_path_factory):
    """Build a completely judged lake, and the answers of one machine about it."""
    there = shutil.copytree(lake, tmp_path_factory.mktemp("asked") / "lake")
    on_duckdb(there)
    return there, on_duckdb(there)


def asked(uri, **fields):
    """Return the input that is common to all tasks of a report."""
    snapshot = opened(uri).snapshot()
    rows = snapshot.dataset("runs").to_table(["workload", "case"]).to_pylist()
    found = ResultLake.beside(str(uri), {}).snapshot()
    kinds = {one.kind for one in kinds_of(Asking(Files.of(snapshot), Files.of(found), **BLANK))}
    assert {kind.workload for kind in kinds} == {row["workload"] for row in rows}
    wants = {kind: wants_of(kind, Registry(), BUDGETS) for kind in kinds}
    given = {**BLANK, "wants": wants, "extent": Extent(MOST), **fields}
    return Asking(Files.of(snapshot), Files.of(found), **given)


BLANK = {
    "options": {}, "budgets": BUDGETS, "wants": {}, "label": None, "since": "",
    "extent": Extent(),
}  # fmt: skip


def in_parts(what, *starts):
    """Split a lake into ranges that begin at these keys; return the tasks and common input."""
    starts = ("", *starts)
    rows = pa.RecordBatch.from_pydict({"id": range(len(starts))})
    ranges = tuple(zip(starts, [*starts[1:], None], strict=True))
    return [rows.slice(n, 1) for n in range(len(starts))], what._replace(ranges=ranges)


def kinds_of(what, *starts):
    rows, what = in_parts(what, *starts)
    texts = [
        text
        for batch in range_answers.kinds_of_parts(rows, asking=what)
        for text in batch["kinds"].to_pylist()
    ]
    return range_answers.kinds_in(texts)


def told(what, *starts):
    """Return the answers and the summary of a report in several ranges."""
    rows, what = in_parts(what, *starts)
    parts = [*range_answers.tell_parts(rows, asking=what)]
    return range_answers.told_in(pa.Table.from_batches([*range_answers.add_up(parts, asking=what)]))


@pytest.fixture(scope="module")
def runs(judged):
    return sorted(row["run"] for row in judged[1][1]["runs"])


def test_a_range_has_the_same_runs_in_sql_and_in_arrow(judged, runs):
    whole = opened(judged[0]).snapshot()
    middle = (runs[1], runs[-2])
    for first, end in (("", middle[0]), middle, (middle[1], None)):
        part = whole.cut(first, end)
        found = part.dataset("runs").to_table(["run"], filter=part.in_range())
        own = [run for run in runs if first <= run and (end is None or run < end)]
        assert sorted(found["run"].to_pylist()) == own
        with contextlib.closing(DuckEngine()) as engine:
            engine.take("runs", whole.dataset("runs").to_table(["run"]))
            rows = engine.sql(f"SELECT run FROM runs WHERE {part.within('run')} ORDER BY run")
            assert rows["run"].to_pylist() == own
    assert whole.in_range() is None


@pytest.mark.parametrize("cuts", [0, 1, 3, 99])
def test_ranges_add_up_to_the_whole(judged, runs, cuts):
    uri, (checked, _, answers) = judged
    starts = runs[1 :: max(1, len(runs) // cuts)][:cuts] if cuts else []
    engine, account = told(asked(uri), *starts)
    found = aggregate(engine, baseline=None, label=None, most=MOST)
    assert found.tables == answers
    assert account.unsettled == checked.results_unsettled
    assert account.lost_total == len(account.lost) == 0


def test_a_label_has_its_runs_only(judged, runs):
    engine, _ = told(asked(judged[0], label="new"), *runs[::4])
    assert {*engine.answer("run_cells", Extent())["label"].to_pylist()} == {"new"}


def test_kinds_count_all_runs_and_name_the_first(judged, runs):
    uri, _ = judged
    for starts in ([], runs[::2]):
        found = kinds_of(asked(uri), *starts)
        assert sum(one.runs for one in found) == len(runs)
        assert sum(one.unfinished for one in found) == 1
        assert sorted(run for one in found for run in one.first) == runs
        assert all(sorted(one.first) == [*one.first] for one in found)
        assert ["odd" in run for one in found for run in one.first_unfinished] == [True]


def test_where_something_is_left_to_do_nothing_is_answered_unless_that_is_asked(lake, tmp_path):
    there = shutil.copytree(lake, tmp_path / "lake")
    ResultLake.beside(str(there), {}, create=True)
    what = asked(there)
    engine, account = told(what._replace(settled=True))
    assert account.left > 0
    assert engine.answer("judged", Extent()) is None
    engine, again = told(what)
    assert again.left == account.left
    assert {row["verdict"] for row in engine.answer("judged", Extent()).to_pylist()} <= {"unknown"}
    on_duckdb(there)
    engine, account = told(asked(there, settled=True))
    assert account.left == 0
    assert engine.answer("judged", Extent()).num_rows == MOST


def test_the_first_few_unreadable_runs_are_reported(lake, tmp_path, monkeypatch):
    there = shutil.copytree(lake, tmp_path / "lake")
    one = on_duckdb(there)[0]
    what = asked(there)
    other = {kind: found._replace(facts="0" * 32) for kind, found in what.wants.items()}
    _, account = told(what._replace(wants=other))
    assert account.lost_total > 1
    assert [problem.kind for problem in account.lost] == ["lost"] * account.lost_total
    assert "facts" in account.lost[0].text
    monkeypatch.setattr(range_answers, "PROBLEMS_MAX", 1)
    _, few = told(what._replace(wants=other))
    assert (few.lost, few.lost_total) == (account.lost[:1], account.lost_total)
    assert problems_of(one)[1] > 0


def ref(first, last, rows):
    return FileRef("ops", f"{first}.parquet", "", 1, rows, (None, None, None), first, last, 0)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9), st.integers(1, 50)), min_size=1),
    st.integers(1, 8),
)
def test_ranges_cover_all_runs_once_and_are_about_as_large(drawn, slots):
    files = [ref(f"{a:03}", f"{a + b:03}", rows) for a, b, rows in drawn]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "ROWS_MIN", 10)
        patch.setattr(ranges, "ROWS_MAX", 100)
        patch.setattr(ranges, "_starts", lambda _, file, rows: [(file.first_run, file.rows)])
        found = ranges.cut(SimpleNamespace(tables={"ops": files, "runs": files[:1]}), slots=slots)
    assert (found[0][0], found[-1][1]) == ("", None)
    assert all(end == first for (_, end), (first, _) in itertools.pairwise(found))
    assert all(end is None or first < end for first, end in found)
    total = sum(file.rows for file in files)
    wanted = max(-(-total // 100), min(slots, total // 10), 1)
    assert len(found) <= wanted
    sizes = [
        sum(f.rows for f in files if first <= f.first_run and (end is None or f.first_run < end))
        for first, end in found
    ]
    same = max(sum(f.rows for f in files if f.first_run == file.first_run) for file in files)
    assert max(sizes) <= 2 * (total // wanted) + same + 50


def test_a_large_file_is_cut_at_its_groups_of_rows(judged):
    uri, _ = judged
    snapshot = ResultLake.beside(str(uri), {}).snapshot()
    file = max(snapshot.files("ops"), key=lambda file: file.rows)
    assert [*ranges._starts(snapshot, file, 1)] == [(file.first_run, file.rows)]
