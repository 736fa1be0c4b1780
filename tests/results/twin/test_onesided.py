"""The test of rows that only one side shows: its p-values are exact, and chance raises no alarm."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.plugins import KnownDifference
from results.twin.answer import Material, compare
from results.twin.onesided import Bursts, same_rate, sided_names
from results.twin.rows import Mark, Row, Shown
from results.twin.verb import exit_code_of
from tests.results.twin.made import OK, run

SEEDS = (1, 2)
LOST = ("failed", "X/Y")


def brute(strata, part):
    """Return the probabilities of at least and of at most as many bursts on the left, by trying
    every placement of all bursts.
    """
    parts = [part(each.parts) for each in strata for _ in range(each.left + each.right)]
    total = sum(each.left for each in strata)
    least = most = 0.0
    for places in itertools.product((0, 1), repeat=len(parts)):
        p = 1.0
        for on_left, share in zip(places, parts, strict=True):
            p *= share if on_left else 1 - share
        least += p if sum(places) >= total else 0
        most += p if sum(places) <= total else 0
    return least, most


PARTS = st.tuples(*[st.integers(1, 9).map(lambda tenths: tenths / 10)] * 2)
STRATA = st.lists(
    st.builds(Bursts, st.integers(0, 3), st.integers(0, 3), PARTS), min_size=1, max_size=3
).filter(lambda strata: sum(each.left + each.right for each in strata) <= 10)


@given(STRATA)
def test_p_is_the_share_of_all_placements_that_are_as_extreme(strata):
    least, most = brute(strata, max)[0], brute(strata, min)[1]
    assert same_rate(strata) == pytest.approx(min(1.0, 2 * least, 2 * most))


@given(STRATA)
def test_sides_may_be_swapped(strata):
    swapped = [
        Bursts(each.right, each.left, (1 - each.parts[0], 1 - each.parts[1])) for each in strata
    ]
    assert same_rate(swapped) == pytest.approx(same_rate(strata))


def test_a_case_of_which_one_side_had_more_proves_nothing():
    """All bursts are on the left in the first case, but 90 % of that case ran on the left."""
    mostly_left, mostly_right = Bursts(12, 0, (0.9, 0.9)), Bursts(0, 0, (0.1, 0.1))
    assert same_rate([mostly_left, mostly_right]) > 0.5
    assert same_rate([Bursts(12, 0, (0.5, 0.5))]) < 1e-3


def test_more_operations_in_the_same_time_prove_nothing():
    assert same_rate([Bursts(8, 0, (0.5, 0.8))]) > 0.1
    assert same_rate([Bursts(8, 0, (0.5, 0.5))]) < 0.01


def test_equal_sides_rarely_differ():
    rng = random.Random(3)

    def bursts():
        total, part = rng.randrange(8), rng.choice((0.3, 0.5))
        left = sum(rng.random() < part for _ in range(total))
        return Bursts(left, total - left, (part, part))

    alarms = sum(same_rate([bursts() for _ in range(4)]) < 0.05 for _ in range(200))
    assert alarms <= 10


def cases(answers, count, known=()):
    """Compare `count` equal cases in which only the right side gives `answers`."""
    left, right = (
        tuple(run(each, seed=seed) for seed in SEEDS) for each in (lambda _: OK, answers)
    )
    materials = [
        Material(case=f"c{number}", about="by hand", left=left, right=right)
        for number in range(count)
    ]
    return compare(("kudu", "apache-kudu"), materials, known)


def once_in_two_blocks(number):
    return LOST if number in {30, 150} else OK  # hits two of the four blocks of 240 operations


def test_a_code_that_is_too_rare_in_each_case_is_one_sided_in_many():
    names = {"message/create/X/Y", "outcome/create/failed"}
    few, many = cases(once_in_two_blocks, 1), cases(once_in_two_blocks, 5)
    assert {row.name for _, row in few.rows(Mark.RARE)} == names
    assert not few.rows(Mark.ONE_SIDED)
    assert exit_code_of(few) == 0
    assert {row.name for _, row in many.rows(Mark.ONE_SIDED)} == names
    assert len(many.rows(Mark.ONE_SIDED)) == 10
    assert not many.rows(Mark.DIFFERS)
    assert exit_code_of(many) == 1


def test_a_known_difference_explains_one_sided_rows_of_its_side_and_cases_only():
    def known(**limits):
        return KnownDifference(
            name="lost", original="apache-kudu", rows=("*X/Y", "*/failed"), why="", **limits
        )

    def unexplained(**limits):
        return len(cases(once_in_two_blocks, 5, [known(**limits)]).unexplained)

    assert unexplained() == unexplained(more="original") == 0
    assert unexplained(more="re-creation") == 10
    assert unexplained(cases=("c[0-2]",)) == 4


def test_p_values_are_corrected_for_all_names_that_are_one_sided():
    left, right = Shown(hits=6, of=40, blocks=12, bursts=6), Shown(hits=0, of=40, blocks=12)
    rows = [Row(name=name, left=left, right=right) for name in ("message/a/X", "message/b/X")]
    alone = sided_names([rows[:1]])
    assert alone == {"message/a/X": pytest.approx(2 * 0.5**6)}
    both = sided_names([rows[:1], rows[1:]])
    assert both == {row.name: pytest.approx(4 * 0.5**6) for row in rows}


def test_neighbouring_blocks_are_one_burst():
    """One outage of four blocks is one event, whatever the number of operations that it fails."""
    made = cases(lambda number: LOST if number % 20 == 0 else OK, 1)
    (row,) = [row for row in made.cases[0].rows if row.name == "message/create/X/Y"]
    assert (row.right.bursts, row.right.blocks, row.left.bursts) == (2, 8, 0)
    apart = cases(once_in_two_blocks, 1)
    (row,) = [row for row in apart.cases[0].rows if row.name == "message/create/X/Y"]
    assert row.right.bursts == 4


def test_a_row_that_is_too_rare_names_the_case_in_which_the_other_side_shows_it():
    plain, lost = ((run(each),) for each in (lambda _: OK, once_in_two_blocks))
    sides = {"here": (lost, plain), "there": (plain, lost), "nowhere": (plain, plain)}
    made = compare(
        ("kudu", "apache-kudu"),
        [
            Material(case=case, about="", left=left, right=right)
            for case, (left, right) in sides.items()
        ],
    )
    assert {(case, row.elsewhere) for case, row in made.rows(Mark.RARE)} == {
        ("here", "there"),
        ("there", "here"),
    }
    alone = cases(once_in_two_blocks, 1)
    assert {row.elsewhere for _, row in alone.rows(Mark.RARE)} == {""}
