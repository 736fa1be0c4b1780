"""Trials run variants of a case in workers, cache the results, and keep a limit of CPU time."""

import msgspec
import pytest

from harness.case import Case
from harness.soak.result import SeedResult
from harness.trials.memory import Memory
from harness.trials.trials import Kind, Trials

CASE = Case(seed=1, time_limit_s=3.0, nemeses=("none",))
BROKEN = Case(seed=1, time_limit_s=20.0, nemeses=("partition-leader",), bugs=("NO-LEASE",))


def seeds(*numbers, case=CASE):
    return [msgspec.structs.replace(case, seed=number) for number in numbers]


@pytest.mark.slow
def test_trials_come_in_the_order_of_their_cases(tmp_path):
    with Trials(jobs=2, cpu_s_max=60.0, memory=tmp_path / "trials") as trials:
        first = list(trials.in_order(seeds(3, 1, 2, 1)))
    assert [trial.case.seed for trial in first] == [3, 1, 2, 1]
    assert trials.runs == 3
    with Trials(jobs=1, cpu_s_max=60.0, memory=tmp_path / "trials") as again:
        assert list(again.in_order(seeds(3, 1, 2, 1))) == first
    assert again.cpu_s == pytest.approx(trials.cpu_s)  # CPU times are summed in another order


@pytest.mark.slow
def test_a_case_that_is_in_flight_is_not_run_again(tmp_path):
    memory = tmp_path / "trials"
    with Trials(jobs=2, cpu_s_max=60.0, memory=memory) as trials:
        first, second = trials.in_order(seeds(1, 1))
    assert first == second
    assert len(memory.read_text().strip().splitlines()) == 1


def test_a_damaged_line_of_the_memory_only_costs_its_trial(tmp_path):
    path = tmp_path / "trials"
    results = {
        key: SeedResult(seed=1, verdict=verdict, reason="")
        for key, verdict in (("a", "valid"), ("b", "invalid"))
    }
    for key, result in results.items():
        Memory(path).add(key, result)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for damaged in (whole[:place], whole[:place] + b"7" + whole[place + 1 :]):
            path.write_bytes(damaged)
            Memory(path).add("c", results["b"])
            again = Memory(path)
            assert all(again.get(key) in (None, result) for key, result in results.items())
            assert again.get("c") == results["b"]


@pytest.mark.slow
def test_the_limit_of_cpu_time_ends_a_search():
    with Trials(jobs=1, cpu_s_max=0.01) as trials:
        assert len(list(trials.run(seeds(*range(1, 50))))) == 1
        assert trials.exhausted
        assert list(trials.run(seeds(1))) == []


@pytest.mark.slow
def test_a_failure_has_a_kind():
    with Trials(jobs=1, cpu_s_max=60.0) as trials:
        (trial,) = trials.run([BROKEN])
    assert trial.kinds[0].checker == "linearizable-catalog"
    assert all(isinstance(kind, Kind) and kind.rule for kind in trial.kinds)
