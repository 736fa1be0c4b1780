"""Random schedules break no guarantee of Raft, and reveal broken cores."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.consensus import member_schedule, mutants
from tests.consensus.member_schedule import MemberSchedule
from tests.consensus.schedule import Schedule
from tests.tiers import examples

STEPS = 1500


@settings(max_examples=examples(200), deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), nodes=st.sampled_from([1, 2, 3, 3, 5]))
def test_no_schedule_breaks_a_promise(seed, nodes):
    schedule = Schedule(seed, nodes=nodes)

    schedule.run(STEPS)
    schedule.settle()


def test_the_schedules_are_not_vacuous():
    schedules = [Schedule(seed, nodes=3 + 2 * (seed % 2)) for seed in range(100)]

    for schedule in schedules:
        schedule.run(STEPS)

    assert sum(schedule.elections for schedule in schedules) > 150
    assert sum(len(schedule.committed) for schedule in schedules) > 150
    assert sum(schedule.reads_done for schedule in schedules) > 20
    assert sum(schedule.snapshots_installed for schedule in schedules) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        *range(0, 500, 100),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in range(500, 3000, 100)),
    ],
)
def test_no_change_of_membership_breaks_a_promise(first):
    totals: Counter[str] = Counter()

    for seed in range(first, first + 100):
        schedule = MemberSchedule(seed)
        schedule.run(member_schedule.STEPS)
        schedule.settle()
        totals.update(schedule.totals())

    assert {name for name, count in totals.items() if count < 5} == set()
    assert totals["elections won"] > 300
    assert totals[member_schedule.COMMITTED] > 50


def breaks(schedule: Schedule) -> bool:
    try:
        schedule.run(STEPS)
        schedule.settle()
    except Exception:  # noqa: BLE001  a broken core breaks in any way
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
def test_a_core_that_forgets_a_rule_is_noticed(make):
    assert any(breaks(Schedule(seed, nodes=3 + 2 * (seed % 2), make=make)) for seed in range(300))


FIRST_NOTICED = {
    mutants.CommitsOldTerms: 156,
    mutants.ReadsUnconfirmed: 108,
    mutants.ForgetsGivenUpLog: 134,
    mutants.ChangesBeforeItsTerm: 182,
}
"""Seeds that reveal each mutant quickly. Choose others if the draws of a schedule change."""


@pytest.mark.parametrize("make", mutants.MUTANTS)
def test_a_core_that_forgets_a_rule_is_noticed_where_members_change(make):
    first = FIRST_NOTICED.get(make, 0)

    assert any(breaks(MemberSchedule(seed, make=make)) for seed in range(first, first + 2000))
