"""A large table while masters die: the bench with few points, and its eyes."""

import itertools

import pytest

from bench.large_table import Size, count_of, half_there, run

SMALL = Size(tablets=60, replicas=1, seed=3)


@pytest.mark.slow
def test_a_table_is_whole_or_absent_wherever_its_leader_is_killed(capsys):
    assert run(SMALL, 6) == 0
    printed = capsys.readouterr().out
    assert "absent" in printed
    assert "whole" in printed


def dump(*bounds: str, named: bool = True) -> dict:
    tablets = [
        {"state": "RUNNING", "start": start, "end": end}
        for start, end in itertools.pairwise(bounds)
    ]
    return {"tables": [{"name": "large"}] if named else [], "tablets": tablets}


SIZE = Size(tablets=3, replicas=1, seed=1)


@pytest.mark.parametrize(
    "bad",
    [
        dump("", "01", ""),
        dump("", "01", "02", "03"),
        dump("01", "02", "03", ""),
        dump("", "01", "02", "", named=False),
        {**dump(), "tablets": [*dump("", "1")["tablets"], *dump("2", "3", "")["tablets"]]},
    ],
)
def test_half_a_table_is_seen(bad):
    assert half_there(bad, SIZE)
    with pytest.raises(AssertionError):
        count_of(bad, SIZE)


def test_whole_and_absent_are_told_apart():
    assert count_of(dump("", "01", "02", ""), SIZE) == 3
    assert count_of(dump(named=False), SIZE) is None
