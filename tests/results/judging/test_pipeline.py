"""From a store to tables: what is new is judged, what is known is not, nothing is lost."""

import contextlib
import importlib

import msgspec
import pyarrow.parquet as pq
import pytest

from checkers.linearizable import RegisterLinearizable
from harness.case import Case
from harness.checking import checkers_of, judge
from harness.errors import UsageError
from harness.ops import CheckResult, History, OpType, Verdict
from harness.store import RunFolder, load_run
from harness.store.oplog import OpLog
from results.judging import manifest, units
from results.judging.budgets import Budget, cpu_limit
from results.judging.markers import RESULTS, index
from results.judging.pipeline import check_store
from tests.results.judging.stores import (
    REGISTER,
    foreign_parquet,
    hopeless,
    keyed_history,
    numbered,
    put_run,
    register_ops,
    rows_of,
    verdicts,
)

SMALL = Budget(cpu_s=60.0, steps=20_000, configurations=1_000)


def inline(store, **options):
    return check_store(store, executor="inline", **options)


def plain_store(store, runs=3):
    for n in range(runs):
        put_run(store, "n", f"r{n}", History(register_ops(n, stale=n == 1)), seed=n)
    return store


def test_verdicts_are_those_of_the_checkers(tmp_path):
    checked = inline(plain_store(tmp_path))

    expected = {}
    for info in checked.runs:
        run = load_run(info.folder)
        for result in judge(run.history, run.case, checkers_of(run.case)).results:
            expected[info.key, result.checker, None] = result.verdict.value
    assert verdicts(checked) == expected
    assert verdicts(checked)["n/r1", "linearizable-register", None] == "invalid"
    assert checked.problems == ()
    assert (checked.results_known, checked.results_new) == (0, 3 * (len(REGISTER) + 1))


def test_a_counterexample_comes_with_an_invalid_verdict(tmp_path):
    checked = inline(plain_store(tmp_path))
    (path,) = checked.tables["verdicts"]
    for row in pq.read_table(path).to_pylist():
        assert (row["counterexample"] is not None) == (row["verdict"] == "invalid")
        if row["counterexample"] is not None:
            told = msgspec.json.decode(row["counterexample"])
            assert "777" in " ".join(told["explanation"])
            assert told["operations"] == [24]
            assert told["left_out"] == 0


def test_a_second_report_does_nothing(tmp_path, monkeypatch):
    first = inline(plain_store(tmp_path))

    def refuse(*_, **__):
        raise AssertionError("something was done again")

    monkeypatch.setattr(units, "_do", refuse)
    second = inline(tmp_path)
    assert rows_of(second) == rows_of(first)
    assert (second.units, second.results_known, second.results_new) == (0, 15, 0)


def test_a_third_report_does_what_is_new(tmp_path):
    inline(plain_store(tmp_path))
    put_run(tmp_path, "n", "r9", History(register_ops(9)), seed=9)
    checked = inline(tmp_path)
    assert (checked.units, checked.results_known, checked.results_new) == (1, 15, 5)
    assert {run for run, _, _ in verdicts(checked)} == {"n/r0", "n/r1", "n/r2", "n/r9"}


def test_a_removed_run_is_gone_from_the_tables(tmp_path):
    import shutil

    inline(plain_store(tmp_path))
    shutil.rmtree(tmp_path / "n" / "r0")
    assert {run for run, _, _ in verdicts(inline(tmp_path))} == {"n/r1", "n/r2"}


def test_equal_histories_share_their_verdicts_under_their_own_names(tmp_path):
    history = History(register_ops(1))
    for run in ("a", "b"):
        put_run(tmp_path, "n", run, history)
    checked = inline(tmp_path)
    found = verdicts(checked)
    for checker in REGISTER:
        assert found["n/a", checker, None] == found["n/b", checker, None]
    (path,) = checked.tables["runs"]
    assert sorted(pq.read_table(path).column("run").to_pylist()) == ["n/a", "n/b"]


def test_a_new_checker_version_judges_again_and_only_it(tmp_path, monkeypatch):
    inline(plain_store(tmp_path))
    monkeypatch.setattr(RegisterLinearizable, "CHECKER_VERSION", 2, raising=False)
    assert inline(tmp_path).results_new == 3


def test_another_budget_judges_again_but_extracts_no_facts(tmp_path):
    inline(plain_store(tmp_path))
    assert inline(tmp_path, budget=SMALL).results_new == 3 * len(REGISTER)


def test_a_changed_history_is_judged_anew(tmp_path):
    plain_store(tmp_path, runs=1)
    inline(tmp_path)
    folder = tmp_path / "n" / "r0"
    from harness.store import write_parquet

    write_parquet(folder / "history.parquet", History(register_ops(0, stale=True)))
    assert verdicts(inline(tmp_path))["n/r0", "linearizable-register", None] == "invalid"


def test_damaged_results_are_made_again(tmp_path):
    first = inline(plain_store(tmp_path))
    rows = rows_of(first)
    import shutil

    shutil.rmtree(tmp_path / RESULTS / "tables")
    for path in sorted(index(tmp_path / RESULTS).values())[:4]:
        path.write_bytes(path.read_bytes()[:50])
    assert rows_of(inline(tmp_path)) == rows


def test_only_a_label(tmp_path):
    put_run(tmp_path, "n", "a", History(register_ops(1)), label="old")
    put_run(tmp_path, "n", "b", History(register_ops(2)), label="new")
    assert [info.key for info in inline(tmp_path, label="new").runs] == ["n/b"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executor": "fast"}, "one of auto"),
        ({"executor": "pool", "jobs": 0}, "at least 1"),
        ({"executor": "inline", "spark_master": "local[2]"}, "means nothing"),
        ({"spark_master": "somewhere"}, "spark-master is 'somewhere'"),
    ],
)
def test_bad_options_are_refused(options, words, tmp_path):
    plain_store(tmp_path, runs=1)
    with pytest.raises(UsageError, match=words):
        check_store(tmp_path, **options)


def test_an_empty_store_gives_empty_tables(tmp_path):
    checked = inline(tmp_path)
    assert all(rows == [] for rows in rows_of(checked).values())


def test_progress_reaches_its_end(tmp_path):
    seen = []
    inline(plain_store(tmp_path), progress=seen.append)
    steps = [step for step in seen if step.stage == "check"]
    assert [step.done for step in steps] == [0, 1, 2, 3]
    assert steps[-1].cost_done == steps[-1].cost > 0
    assert seen[-1].stage == "gather"
    assert seen[-1].kept > steps[0].kept == 0


# --- poison -----------------------------------------------------------------------------------


class Crashes:
    """Raises where somebody reads 13, spins where somebody reads 14, takes too much for 15."""

    api_version = 1
    name = "crash"
    doc = "a checker that dies of what it sees"

    def check(self, history, case, *, time_limit_s):
        seen = {op.value.get("value") for op in history if op.type is OpType.OK}
        if 113 in seen:
            raise RuntimeError("thirteen!")
        while 114 in seen:
            with contextlib.suppress(Exception):  # as careless as they come
                sum(range(1000))
        if 115 in seen:
            raise MemoryError
        return CheckResult("crash", Verdict.VALID, "alive")


def reading(value):
    ops = register_ops(1)
    last = msgspec.structs.replace(ops[-1], value={"value": value})
    return History([*ops[:-1], last])


@pytest.fixture
def poisoned(tmp_path, monkeypatch):
    """A store with every poison, and a checker that three of its histories kill."""
    for module in (manifest, units):
        real = module.load_plugin
        monkeypatch.setattr(
            module,
            "load_plugin",
            lambda group, name, real=real: (
                Crashes() if (group, name) == ("checkers", "crash") else real(group, name)
            ),
        )
    put_run(tmp_path, "n", "good", History(register_ops(1)))
    torn = put_run(tmp_path, "n", "torn", History(register_ops(2))) / "history.parquet"
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    rotten = put_run(tmp_path, "n", "rotten", History(register_ops(3, count=9))) / "history.parquet"
    chunk = pq.ParquetFile(rotten).metadata.row_group(0).column(1)
    content = bytearray(rotten.read_bytes())
    begin = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
    content[begin + chunk.total_compressed_size - 1] ^= 1
    rotten.write_bytes(content)
    foreign_parquet(put_run(tmp_path, "n", "foreign", History(register_ops(4))) / "history.parquet")
    put_run(tmp_path, "n", "raises", reading(113))
    put_run(tmp_path, "n", "spins", reading(114))
    put_run(tmp_path, "n", "eats", reading(115))
    put_run(tmp_path, "n", "hard", numbered(hopeless(None, 40, process=0)))
    put_run(tmp_path, "n", "strange", History(register_ops(5)), workload="nonsense")
    keys = keyed_history(["a", "b", "c"], stale=("b",), giant="g", giant_ops=40)
    put_run(tmp_path, "n", "keys", keys, buckets=2)
    folder = RunFolder(tmp_path, "n", "cut")
    folder.write_case(Case(seed=1, workload="register"))
    log = OpLog(folder.path / "ops.log")
    for op in register_ops(6):
        log.append(op)
    log.close()
    with (folder.path / "ops.log").open("ab") as file:
        file.write(b"torn")
    return tmp_path


@pytest.fixture
def little_cpu(monkeypatch):
    """What spins is stopped soon; searches end by the steps that they count."""
    monkeypatch.setattr(units, "cpu_limit", lambda cpu_s: cpu_limit(cpu_s / 600))


@pytest.mark.slow
@pytest.mark.usefixtures("little_cpu")
def test_a_poisoned_store_names_each_and_loses_nothing_else_and_costs_little_again(poisoned):
    checked = inline(poisoned, budget=SMALL, second_pass=False)
    found = rows_of(checked)

    named = {(problem.run, problem.kind) for problem in checked.problems}
    assert named == {
        ("n/torn", "history"),
        ("n/rotten", "history"),
        ("n/foreign", "history"),
        ("n/strange", "checker"),
        ("n/cut", "unfinished"),
    }
    (path,) = checked.tables["verdicts"]
    rows = {
        (row["run"], row["checker"], row["key"]): row for row in pq.read_table(path).to_pylist()
    }
    runs = {"n/good", "n/raises", "n/spins", "n/eats", "n/hard", "n/keys", "n/cut"}
    assert {run for run, _, _ in rows} == runs
    for run in runs - {"n/keys"}:
        assert {checker for found, checker, _ in rows if found == run} == set(REGISTER)

    def crash(run):
        row = rows[run, "crash", None]
        return row["verdict"], row["reason"]

    assert crash("n/good") == ("valid", "alive")
    assert crash("n/raises")[1] == "the checker crashed: RuntimeError('thirteen!')"
    assert "thirteen!" in rows["n/raises", "crash", None]["error"]
    assert "hit a limit: stopped after 60 s of CPU, with 12 operations" in crash("n/spins")[1]
    assert "MiB of memory" in crash("n/eats")[1]
    assert {crash(f"n/{run}")[0] for run in ("raises", "spins", "eats")} == {"unknown"}
    hard = rows["n/hard", "linearizable-register", None]
    assert hard["verdict"] == "unknown"
    assert "limit of" in hard["reason"]
    by_key = {
        key: row["verdict"]
        for (run, checker, key), row in rows.items()
        if run == "n/keys" and checker == "linearizable-register"
    }
    assert by_key == {'"a"': "valid", '"b"': "invalid", '"c"': "valid", '"g"': "unknown"}
    (path,) = checked.tables["runs"]
    assert set(pq.read_table(path).column("run").to_pylist()) == runs | {"n/strange"}

    second = inline(poisoned, budget=SMALL, second_pass=False)
    assert rows_of(second) == found
    assert set(second.problems) == set(checked.problems)
    assert second.units == 1  # the rotten file: nobody knows what is in it


def test_a_larger_budget_is_tried_once_on_what_a_budget_left_unknown(tmp_path):
    put_run(tmp_path, "n", "easy", History(register_ops(1)))
    put_run(tmp_path, "n", "hard", numbered(hopeless(None, 40, process=0)))
    steps = []
    tiny = Budget(cpu_s=300.0, steps=500, configurations=200)
    checked = inline(tmp_path, budget=tiny, progress=steps.append)
    assert list(dict.fromkeys(step.stage for step in steps)) == ["check", "again", "gather"]
    retry = next(step for step in steps if step.stage == "again")
    assert retry.left == (
        "n/hard, linearizable-register, retry with a larger budget (1500 s of CPU)",
    )
    assert verdicts(checked)["n/hard", "linearizable-register", None] == "unknown"
    again = inline(tmp_path, budget=tiny)
    assert again.units == 0
    assert rows_of(again) == rows_of(checked)


def test_the_larger_budget_decides_what_it_can(tmp_path):
    put_run(tmp_path, "n", "hard", numbered(hopeless(None, 12, process=0, values=2)))
    tiny = Budget(cpu_s=300.0, steps=100, configurations=30)
    one = inline(tmp_path, budget=tiny, second_pass=False)
    assert verdicts(one)["n/hard", "linearizable-register", None] == "unknown"
    two = inline(tmp_path, budget=tiny)
    assert verdicts(two)["n/hard", "linearizable-register", None] == "valid"


def linear(checked):
    """What the search for an order said, of every run and key."""
    found = verdicts(checked)
    return {found[row] for row in found if row[1] == "linearizable-register"}


@pytest.mark.slow
@pytest.mark.parametrize("mishap", [MemoryError(), RuntimeError("no room on the disk")])
@pytest.mark.parametrize("buckets", [0, 2])
def test_what_a_machine_left_unknown_stays_until_it_is_asked_for_again(
    tmp_path, monkeypatch, mishap, buckets
):
    history = keyed_history("abc") if buckets else History(register_ops(1))
    put_run(tmp_path, "n", "r", history, buckets=buckets)
    names = {"checkers": ("linearizable-register", "stats")}

    def trip(*_, **__):
        raise mishap

    with monkeypatch.context() as poor:
        poor.setattr(RegisterLinearizable, "check", trip)
        poor.setattr(RegisterLinearizable, "check_columns", trip)
        first = inline(tmp_path, **names)
    assert linear(first) == {"unknown"}
    assert first.results_unsettled == (2 if buckets else 1)

    second = inline(tmp_path, **names)  # costs nothing, and changes nothing
    assert (second.units, verdicts(second)) == (0, verdicts(first))
    third = inline(tmp_path, again=True, **names)
    assert linear(third) == {"valid"}
    assert (third.results_new, third.results_unsettled) == (first.results_unsettled, 0)
    fourth = inline(tmp_path, again=True, **names)  # what is settled stays
    assert (fourth.units, rows_of(fourth)) == (0, rows_of(third))


def test_again_leaves_the_runs_of_other_labels_alone(tmp_path):
    hard = numbered(hopeless(None, 40, process=0))
    for run, label in (("a", "old"), ("b", "new")):
        put_run(tmp_path, "n", run, hard, label=label, seed=len(label) + ord(run))
    tiny = Budget(cpu_s=300.0, steps=500, configurations=200)
    names = ("linearizable-register",)
    inline(tmp_path, budget=tiny, checkers=names)
    one = inline(tmp_path, budget=tiny, checkers=names, label="new", again=True)
    assert (one.results_known, one.results_new, one.results_unsettled) == (1, 1, 1)
    both = inline(tmp_path, budget=tiny, checkers=names)
    assert (both.units, both.results_unsettled) == (0, 2)


def test_facts_that_cannot_be_had_are_named(tmp_path, monkeypatch):
    def fail(run, history):
        raise RuntimeError("no facts of r1") if run.run == "r1" else AssertionError

    real = importlib.import_module("results.facts.extraction").extract
    monkeypatch.setattr(
        "results.facts.extraction.extract",
        lambda run, history: fail(run, history) if run.run == "r1" else real(run, history),
    )
    checked = inline(plain_store(tmp_path))
    (problem,) = checked.problems
    assert (problem.run, problem.kind) == ("n/r1", "facts")
    assert "no facts of r1" in problem.text
    (path,) = checked.tables["runs"]
    rows = {row["run"]: row for row in pq.read_table(path).to_pylist()}
    assert set(rows) == {"n/r0", "n/r1", "n/r2"}  # its verdict needs a place
    assert (rows["n/r1"]["ops"], rows["n/r1"]["length_ns"]) == (0, 0)
    assert rows["n/r0"]["ops"] > 0
    assert ("n/r1", "stats", None) in verdicts(checked)
