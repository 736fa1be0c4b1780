"""Random schedules: no promise of Raft is broken, and a broken core is noticed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from targets.kudu.raft.core import RaftCore
from tests.raft import mutants
from tests.raft.schedule import Schedule

STEPS = 1500


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), nodes=st.sampled_from([1, 2, 3, 3, 5]))
def test_no_schedule_breaks_a_promise(seed: int, nodes: int) -> None:
    schedule = Schedule(seed, nodes=nodes)

    schedule.run(STEPS)
    schedule.settle()


def test_the_schedules_are_not_vacuous() -> None:
    schedules = [Schedule(seed, nodes=3 + 2 * (seed % 2)) for seed in range(100)]

    for schedule in schedules:
        schedule.run(STEPS)

    assert sum(schedule.elections for schedule in schedules) > 150
    assert sum(len(schedule.committed) for schedule in schedules) > 150
    assert sum(schedule.reads_done for schedule in schedules) > 20
    assert sum(schedule.snapshots_installed for schedule in schedules) > 0


def breaks(make: type[RaftCore], seed: int) -> bool:
    schedule = Schedule(seed, nodes=3 + 2 * (seed % 2), make=make)
    try:
        schedule.run(STEPS)
        schedule.settle()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(
    "make",
    [
        mutants.VotesBlindly,
        mutants.AcksBeforeSync,
        mutants.SkipsLogMatching,
        mutants.CommitsBeyondMatch,
        mutants.ReadsUnconfirmed,
        mutants.ForgetsVote,
    ],
)
def test_a_core_that_forgets_a_rule_is_noticed(make: type[RaftCore]) -> None:
    assert any(breaks(make, seed) for seed in range(300))
