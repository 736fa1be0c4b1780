"""A lake is judged completely and only once, even if several reports judge it."""

import contextlib
import gc
import shutil

import msgspec
import pytest

from checkers.registers.linearizable import RegisterLinearizable
from harness.case import Case
from harness.errors import InfrastructureError, InternalError, UsageError
from harness.ops import History
from results.judging import report_runs, unit_judge
from results.judging import result_lake as judged
from results.judging.budgets import Budget
from results.judging.pipeline import check
from results.judging.report_runs import ReportRuns
from results.judging.result_lake import ResultLake
from results.judging.verdict_rows import CRASHED
from results.lake.log.lake import Lake
from results.lake.tables.schema import schemas
from results.lake.upkeep.compaction import compact
from results.lake.verb import main as lake_verb
from tests.results.judging.stores import (
    TIMES,
    Found,
    hopeless,
    judge_lake,
    numbered,
    put_run,
    register_ops,
    store_with_a_killer,
    tables_of,
)
from tests.support import run_folders
from tests.support.run_folders import keep_torn

pytestmark = pytest.mark.lake

SMALL = Budget(cpu_s=300.0, steps=20_000, configurations=1_000)
OTHER = Budget(cpu_s=299.0, steps=20_000, configurations=1_000)


def mixed_store(store):
    for n in range(4):
        label = "v1" if n % 2 else None
        history = History(register_ops(n, stale=n == 1))
        put_run(store, "n", f"r{n}", history, seed=n, label=label, bugs=("B1",) * (n == 1))
    put_run(store, "m", "ha", numbered(hopeless(40)), nemeses=("a", "b"))
    keep_torn(store, "m", "cu", Case(seed=1, workload="register"), register_ops(6))
    return store


def ingested(store, uri):
    return run_folders.ingested(store, uri, "--unfinished")


def plain_lake(tmp_path, runs=3):
    for n in range(runs):
        put_run(tmp_path / "store", "n", f"r{n}", History(register_ops(n)), seed=n)
    return ingested(tmp_path / "store", tmp_path / "lake")


@contextlib.contextmanager
def opened(uri, *, second_pass=False, budget=SMALL, **given):
    lake = Lake.open(str(uri))
    budgets = (budget, budget.larger()) if second_pass else (budget,)
    with contextlib.closing(ReportRuns(lake.snapshot(), budgets=budgets, **given)) as source:
        yield source


def report(uri, *, budget=SMALL, second_pass=False, **given):
    found = judge_lake(uri, budget=budget, second_pass=second_pass, **given)
    return found.checked, found.rows()


def test_tables_stay_the_same_after_a_compaction(tmp_path):
    store = tmp_path / "store"
    for n in range(5):  # separate appends put each run into a file of its own
        put_run(store, "n", f"r{n}", History(register_ops(n, stale=n == 1)), seed=n)
        ingested(store, tmp_path / "lake")
    _, before = report(tmp_path / "lake")
    with opened(tmp_path / "lake") as source:
        assert source.runs == 5
    for action in (["compact"], ["vacuum", "--grace-hours", "0"], ["check"]):
        assert lake_verb([*action, str(tmp_path / "lake")]) == 0
    lake = Lake.open(str(tmp_path / "lake"))
    results = ResultLake.beside(lake.place.uri, {})
    assert len(lake.files("operations")) == len(results.files("verdicts")) == 1
    checked, after = report(tmp_path / "lake")
    assert (checked.units, after) == (0, before)
    anew, _ = report(tmp_path / "lake", budget=Budget(cpu_s=299.0))
    assert anew.results_new == 5 * 4


def test_only_new_runs_are_judged(tmp_path, monkeypatch):
    uri = plain_lake(tmp_path)
    report(uri)
    put_run(tmp_path / "store", "n", "r9", History(register_ops(9)), seed=9)
    ingested(tmp_path / "store", uri)
    assert report(uri)[0].results_new == 5
    monkeypatch.setattr(RegisterLinearizable, "version", "2")
    checked, rows = report(uri)
    assert checked.results_new == 4
    assert len(rows["verdicts"]) == 16


def test_a_run_that_came_again_with_another_case_is_judged_anew(tmp_path):
    import deltalake

    uri = plain_lake(tmp_path, runs=2)
    report(uri)
    for table in schemas():
        deltalake.DeltaTable(str(uri / table)).delete("run LIKE 'n/r0@%'")
    folder = tmp_path / "store" / "n" / "r0"
    case = msgspec.json.decode((folder / "case.json").read_bytes(), type=Case)
    changed = msgspec.structs.replace(case, profile="legacy")
    (folder / "case.json").write_bytes(msgspec.json.encode(changed))
    ingested(tmp_path / "store", uri)
    assert report(uri)[0].results_new == 5


def counted(uri, **given):
    with opened(uri, **given) as source:
        checked = check(source, executor="inline")
        rows = Found(checked, tables_of(checked)).rows(without=(*TIMES, "result_id"))
        return rows, {*checked.counting.values()} <= {"true"}


@pytest.mark.parametrize("compacted", [False, True])
def test_results_of_another_budget_or_label_and_of_two_reports_change_no_table(tmp_path, compacted):
    store = mixed_store(tmp_path / "store")
    put_run(store, "n", "odd", History(register_ops(7)), checkers=("nobody",))
    uri = ingested(store, tmp_path / "lake")
    copy = shutil.copytree(uri, tmp_path / "copy")
    alone, _ = counted(copy)
    assert any("nobody" in row for row in alone["verdicts"])
    of_label, _ = counted(copy, label="v1")
    assert 0 < len(of_label["runs"]) < len(alone["runs"])

    counted(uri, budget=OTHER)
    with opened(uri) as one, opened(uri) as two:
        for source, plan in [(source, source.plan()) for source in (one, two)]:
            list(unit_judge.do_units(plan.units, config=source.begin(limit_memory=False)))
    if compacted:
        compact(ResultLake.beside(str(uri), {}))
    assert counted(uri) == (alone, False)
    assert counted(uri, label="v1") == (of_label, False)
    assert counted(uri, budget=OTHER)[0] == alone


def test_a_report_of_many_appends_leaves_few_files(tmp_path, monkeypatch):
    monkeypatch.setattr(report_runs, "UNIT_RUNS_MAX", 1)
    monkeypatch.setattr(judged, "SMALL_FILES_MAX", 2)
    uri = plain_lake(tmp_path)
    before = counted(uri)
    results = ResultLake.beside(str(uri), {})
    assert {len(results.files(name)) for name in results.schemas} <= {0, 1}
    assert counted(uri) == before

    monkeypatch.setattr(judged, "SMALL_FILES_MAX", 0)
    state = {name: results.files(name) for name in results.schemas}
    counted(uri)  # this report has nothing to append, so it writes nothing
    assert {name: results.files(name) for name in results.schemas} == state


@pytest.mark.parametrize("error", [InfrastructureError, InternalError, UsageError])
def test_a_report_goes_on_where_files_cannot_be_merged(tmp_path, monkeypatch, error):
    def refuse(*_, **__):
        raise error("of what cannot be merged")

    uri = plain_lake(tmp_path)
    monkeypatch.setattr(judged, "SMALL_FILES_MAX", 0)
    monkeypatch.setattr("results.judging.result_lake.compact", refuse)
    checked, rows = report(uri)
    assert (checked.problems, len(rows["runs"])) == ((), 3)


def test_a_repetition_within_the_round_judges_nothing(tmp_path):
    uri = plain_lake(tmp_path)
    results = ResultLake.beside(str(uri), {}, create=True)
    with opened(uri) as source:
        units = source.plan().units
        config = source.begin(limit_memory=False)
        elsewhere = msgspec.structs.replace(config, elsewhere=True)

        def do(later_s=0.0):
            given = msgspec.structs.replace(elsewhere, since_s=config.since_s + later_s)
            done = [one for one in unit_judge.do_units(units, config=given) if one.part == 1.0]
            assert [one.problems for one in done] == [()] * len(units)
            return len(results.dataset("runs").to_table()), any(one.limited for one in done)

        assert do() == (3, False)
        assert do() == (3, True)
        assert do(later_s=600.0) == (6, False)
        assert do(later_s=2 * unit_judge.CLOCKS_APART_S) == (9, False)


def test_garbage_is_looked_for_seldom_and_as_before_after_it(tmp_path):
    uri = plain_lake(tmp_path, runs=1)
    before = gc.get_threshold()
    with opened(uri) as source:
        work = unit_judge.do_units(source.plan().units, config=source.begin(limit_memory=False))
        next(work)
        assert gc.get_threshold() == unit_judge.COLLECTIONS != before
        work.close()
    assert gc.get_threshold() == before


def test_rows_that_make_another_history_are_named_and_no_verdict_is_given(tmp_path):
    import deltalake

    uri = plain_lake(tmp_path, runs=2)
    deltalake.DeltaTable(str(uri / "operations")).delete("run LIKE 'n/r0@%' AND process = 1")
    checked, rows = report(uri)
    assert [(item.run.partition("@")[0], item.kind) for item in checked.problems] == [
        ("n/r0", "history")
    ]
    assert "digest" in checked.problems[0].text
    assert not any("n/r0" in row for row in rows["verdicts"])
    assert len(rows["runs"]) == 1


def test_an_interrupted_report_loses_only_work_in_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(report_runs, "UNIT_RUNS_MAX", 1)
    uri = plain_lake(tmp_path)
    with opened(uri) as source:
        plan = source.plan()
        assert len(plan.units) == 3
        work = unit_judge.do_units(plan.units, config=source.begin(limit_memory=False))
        while next(work).part < 1.0:
            pass
        work.close()  # killed during the second unit
    checked, _ = report(uri)
    assert (checked.results_known, checked.results_new) == (5, 10)


@pytest.mark.slow
@pytest.mark.process
def test_a_run_that_kills_its_worker_is_named_and_nothing_else_is_lost(
    tmp_path, deadly, monkeypatch
):
    store = store_with_a_killer(tmp_path / "store")
    uri = ingested(store, tmp_path / "lake")
    names = ("linearizable-register", "deadly", "stats")
    monkeypatch.setattr(unit_judge, "SAY_EVERY_S", 0.0)
    with opened(uri, checkers=names) as source:
        checked = check(source, executor="pool", jobs=2)
        found = tables_of(checked)["verdicts"].to_pylist()
    rows = {(row["run"], row["checker"]): row for row in found}
    assert len(rows) == len(found) == 4 * 3
    for (run, name), row in rows.items():
        crashed = (run, name) == ("n/killer", "deadly")
        assert (row["reason"] == CRASHED) == crashed
        if name != "stats":
            assert row["verdict"] == ("unknown" if crashed else "valid")
    assert checked.problems == ()

    again, _ = report(uri, executor="pool", jobs=2, checkers=names)
    assert (again.units, again.results_unsettled) == (0, 1)
    monkeypatch.setenv("DEADLY_CURED", "1")
    cured, rows = report(uri, executor="pool", jobs=2, checkers=names, again=True)
    assert (cured.results_new, cured.results_unsettled) == (1, 0)
    assert not any(CRASHED in row for row in rows["verdicts"])
