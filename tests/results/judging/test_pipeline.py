"""A report judges every new run of a store, loses none, and makes no verdict better than it is."""

import contextlib

import msgspec
import pytest

from checkers.registers.linearizable import RegisterLinearizable
from harness.case import Case
from harness.errors import UsageError
from harness.ops import CheckResult, History, OpType, Verdict
from harness.plugins import Checker
from harness.store import load_run
from harness.verdict import judge as checking
from harness.verdict.judge import checkers_of, judge, load_checker
from harness.verdict.limits import cpu_limit
from results.facts import extraction
from results.judging import result_ids, verdict_rows
from results.judging.budgets import Budget
from tests.results.judging.stores import (
    REGISTER,
    hopeless,
    judge_store,
    numbered,
    plain_store,
    put_run,
    register_ops,
)
from tests.support.run_folders import keep_torn

pytestmark = pytest.mark.lake

LINEAR = "linearizable-register"
SMALL = Budget(cpu_s=60.0, steps=20_000, configurations=1_000)
TINY = Budget(cpu_s=300.0, steps=500, configurations=200)


def test_verdicts_are_those_of_the_checkers(tmp_path):
    found = judge_store(plain_store(tmp_path))

    expected = {}
    for folder in sorted((tmp_path / "n").glob("r*")):
        run = load_run(folder)
        for result in judge(run.history, run.case, checkers_of(run.case)).results:
            expected[f"n/{folder.name}", result.checker, None] = result.verdict.value
    assert found.verdicts() == expected
    assert found.verdicts()["n/r1", LINEAR, None] == "invalid"
    assert found.checked.problems == ()
    assert (found.checked.results_known, found.checked.results_new) == (0, 3 * (len(REGISTER) + 1))


def test_a_counterexample_comes_with_an_invalid_verdict(tmp_path):
    for row in judge_store(plain_store(tmp_path)).tables["verdicts"].to_pylist():
        assert (row["counterexample"] is not None) == (row["verdict"] == "invalid")
        if row["counterexample"] is not None:
            content = msgspec.json.decode(row["counterexample"])
            assert "777" in " ".join(content["explanation"])
            assert content["operations"] == [24]
            assert content["left_out"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"executor": "fast"}, "one of auto"),
        ({"executor": "pool", "jobs": 0}, "at least 1"),
    ],
)
def test_bad_options_are_refused(options, words, tmp_path):
    plain_store(tmp_path, runs=1)
    with pytest.raises(UsageError, match=words):
        judge_store(tmp_path, **options)


def test_an_empty_store_gives_empty_tables(tmp_path):
    assert all(rows == [] for rows in judge_store(tmp_path).rows().values())


def test_progress_reaches_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("results.judging.report_runs.UNIT_RUNS_MAX", 1)
    seen = []
    judge_store(plain_store(tmp_path), progress=seen.append)
    steps = [step for step in seen if step.stage == "check"]
    assert [step.done for step in steps if step.done == round(step.done)][-1] == 3
    assert steps[-1].cost_done == steps[-1].cost > 0
    assert seen[-1].stage == "gather"
    assert seen[-1].kept > steps[0].kept == 0


# --- runs that break checkers -----------------------------------------------------------------


class Crashes(Checker):
    """A checker that fails on some values: raises at 113, loops at 114, lacks memory at 115."""

    api_version = 1
    name = "crash"
    doc = "a checker that dies of what it sees"

    def check(self, history, case, *, time_limit_s):
        seen = {op.value.get("value") for op in history if op.type is OpType.OK}
        if 113 in seen:
            raise RuntimeError("thirteen!")
        while 114 in seen:
            # ignore every exception, as a careless checker does
            with contextlib.suppress(Exception):
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
    """Build a store with all kinds of bad runs; three of them break the checker."""
    for module, lookup in ((result_ids, "load_checker"), (verdict_rows, "checker_named")):
        monkeypatch.setattr(
            module, lookup, lambda name: Crashes() if name == "crash" else load_checker(name)
        )
    put_run(tmp_path, "n", "good", History(register_ops(1)))
    put_run(tmp_path, "n", "raises", reading(113))
    put_run(tmp_path, "n", "spins", reading(114))
    put_run(tmp_path, "n", "eats", reading(115))
    put_run(tmp_path, "n", "hard", numbered(hopeless(40)))
    put_run(tmp_path, "n", "strange", History(register_ops(5)), workload="nonsense")
    case = Case(seed=1, workload="register")
    keep_torn(tmp_path, "n", "cut", case, register_ops(6), tail=b"torn")
    return tmp_path


@pytest.fixture
def little_cpu(monkeypatch):
    """Set a small CPU limit that stops looping checkers; searches end by their step limit."""
    monkeypatch.setattr(checking, "cpu_limit", lambda cpu_s: cpu_limit(cpu_s / 600))


@pytest.mark.slow
@pytest.mark.usefixtures("little_cpu")
def test_a_poisoned_store_names_each_and_loses_nothing_else_and_costs_little_again(poisoned):
    found = judge_store(poisoned, budget=SMALL, second_pass=False)

    assert found.problems() == {("n/strange", "checker"), ("n/cut", "unfinished")}
    rows = found.verdict_rows()
    runs = {"n/good", "n/raises", "n/spins", "n/eats", "n/hard", "n/cut"}
    assert {run for run, _, _ in rows} == runs
    for run in runs:
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
    hard = rows["n/hard", LINEAR, None]
    assert hard["verdict"] == "unknown"
    assert "limit of" in hard["reason"]
    assert {*found.tables["runs"]["run"].to_pylist()} == runs | {"n/strange"}

    second = judge_store(poisoned, budget=SMALL, second_pass=False)
    assert second.rows() == found.rows()
    assert second.problems() == found.problems()
    assert second.checked.units == 0


# --- budgets ----------------------------------------------------------------------------------


def test_a_larger_budget_is_tried_once_on_undecided_results(tmp_path):
    put_run(tmp_path, "n", "easy", History(register_ops(1)))
    put_run(tmp_path, "n", "hard", numbered(hopeless(40)))
    steps = []
    found = judge_store(tmp_path, budget=TINY, progress=steps.append)
    assert list(dict.fromkeys(step.stage for step in steps)) == ["check", "again", "gather"]
    retry = next(step for step in steps if step.stage == "again")
    (left,) = retry.left
    assert left.startswith("n/hard@")
    assert left.endswith(f", {LINEAR}, retry with a larger budget (1500 s of CPU)")
    assert found.verdicts()["n/hard", LINEAR, None] == "unknown"
    again = judge_store(tmp_path, budget=TINY)
    assert again.checked.units == 0
    assert again.rows() == found.rows()


def test_the_larger_budget_decides_more_results(tmp_path):
    put_run(tmp_path, "n", "hard", numbered(hopeless(12, values=2)))
    tiny = Budget(cpu_s=300.0, steps=100, configurations=30)
    one = judge_store(tmp_path, budget=tiny, second_pass=False)
    assert one.verdicts()["n/hard", LINEAR, None] == "unknown"
    two = judge_store(tmp_path, budget=tiny)
    assert two.verdicts()["n/hard", LINEAR, None] == "valid"


@pytest.mark.slow
@pytest.mark.parametrize("mishap", [MemoryError(), RuntimeError("no room on the disk")])
def test_results_left_unknown_by_a_machine_stay_until_requested_again(
    tmp_path, monkeypatch, mishap
):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    names = {"checkers": (LINEAR, "stats")}

    def trip(*_, **__):
        raise mishap

    def linear(found):
        return {verdict for (_, name, _), verdict in found.verdicts().items() if name == LINEAR}

    with monkeypatch.context() as poor:
        poor.setattr(RegisterLinearizable, "check", trip)
        first = judge_store(tmp_path, **names)
    assert linear(first) == {"unknown"}
    assert first.checked.results_unsettled == 1

    second = judge_store(tmp_path, **names)  # the second report does no work and changes nothing
    assert (second.checked.units, second.verdicts()) == (0, first.verdicts())
    third = judge_store(tmp_path, again=True, **names)
    assert linear(third) == {"valid"}
    assert (third.checked.results_new, third.checked.results_unsettled) == (1, 0)
    fourth = judge_store(tmp_path, again=True, **names)  # settled results stay
    assert (fourth.checked.units, fourth.rows()) == (0, third.rows())


def test_again_leaves_the_runs_of_other_labels_alone(tmp_path):
    hard = numbered(hopeless(40))
    for run, label in (("a", "old"), ("b", "new")):
        put_run(tmp_path, "n", run, hard, label=label, seed=len(label) + ord(run))
    given = {"budget": TINY, "checkers": (LINEAR,)}
    judge_store(tmp_path, **given)
    one = judge_store(tmp_path, label="new", again=True, **given).checked
    assert (one.results_known, one.results_new, one.results_unsettled) == (1, 1, 1)
    both = judge_store(tmp_path, **given).checked
    assert (both.units, both.results_unsettled) == (0, 2)


# --- runs without facts, checkers or plug-ins -------------------------------------------------


def test_facts_that_cannot_be_extracted_are_named(tmp_path, monkeypatch):
    def fail(run, history):
        raise RuntimeError(f"no facts of {run.run}")

    real = extraction.extract
    monkeypatch.setattr(
        "results.judging.unit_judge.extract",
        lambda run, history: fail(run, history) if run.run == "r1" else real(run, history),
    )
    found = judge_store(plain_store(tmp_path))
    (problem,) = found.checked.problems
    assert found.problems() == {("n/r1", "facts")}
    assert "no facts of r1" in problem.text
    rows = {row["run"]: row for row in found.tables["runs"].to_pylist()}
    assert set(rows) == {"n/r0", "n/r1", "n/r2"}  # every run's verdict needs a row
    assert {row["run"] for row in found.tables["ops"].to_pylist()} == {"n/r0", "n/r2"}


@pytest.mark.parametrize("lost", [LINEAR, "crash"])
def test_a_run_without_the_verdict_of_one_checker_is_not_valid(tmp_path, monkeypatch, lost):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    names = (LINEAR, "crash")
    real = verdict_rows.table_of

    def table_of(rows, run, result_id):
        if rows and rows[0].checker == lost:
            raise OSError("no room on the disk")
        return real(rows, run, result_id)

    with monkeypatch.context() as broken:
        broken.setattr("results.judging.unit_judge.table_of", table_of)
        found = judge_store(tmp_path, checkers=names, facts=False)
    assert found.verdicts().get(("n/r", lost, None)) != "valid"
    assert {kind for _, kind in found.problems()} == {"lost"}
    again = judge_store(tmp_path, checkers=names, facts=False)
    assert {*again.verdicts().values()} == {"valid"}


def test_a_checker_that_cannot_be_loaded_costs_its_verdicts_only(tmp_path):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    found = judge_store(tmp_path, checkers=(LINEAR, "gone"))
    assert found.problems() == {("n/r", "checker")}
    verdicts = found.verdicts()
    assert verdicts.pop(("n/r", "gone", None)) == "unknown"
    assert {*verdicts.values()} == {"valid"}
    assert len(verdicts) == 1


def test_a_missing_plug_in_of_a_worker_is_no_result(tmp_path, monkeypatch):
    put_run(tmp_path, "n", "r", History(register_ops(1)))

    def load(name):
        raise UsageError(f"{name} is not installed here")

    with monkeypatch.context() as worker:
        worker.setattr("results.judging.unit_judge.checker_named", load)
        found = judge_store(tmp_path, checkers=(LINEAR,))
    (row,) = found.tables["verdicts"].to_pylist()
    assert (row["verdict"], "could not be judged" in row["reason"]) == ("unknown", True)
    assert {kind for _, kind in found.problems()} == {"checker"}
    again = judge_store(tmp_path, checkers=(LINEAR,))
    assert {*again.verdicts().values()} == {"valid"}
    assert again.checked.problems == ()


class Talks(Checker):
    """A checker whose result cannot be serialized completely."""

    name = "talks"
    api_version = 1

    def __init__(self, verdict):
        self.verdict = verdict

    def check(self, history, case, *, time_limit_s):
        return CheckResult("talks", self.verdict, None)


@pytest.mark.parametrize("said", Verdict)
def test_a_checker_that_breaks_off_does_not_make_a_run_valid(tmp_path, monkeypatch, said):
    put_run(tmp_path, "n", "r", History(register_ops(1)))
    monkeypatch.setattr(verdict_rows, "checker_named", lambda _: Talks(said))
    expected = "invalid" if said is Verdict.INVALID else "unknown"
    found = judge_store(tmp_path, checkers=(LINEAR,), facts=False)
    assert {*found.verdicts().values()} == {expected}
