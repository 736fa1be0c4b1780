"""Outcomes of attempts, told apart and put together again."""

import pytest

from results.lake.tables.attempt_outcomes import outcome_of, said_of

SAID = ["ok", "E: x", "E: y", "E", "E: ", ": x", "", ": ", "E: x: y", "E: : x"]


@pytest.mark.parametrize("said", SAID)
def test_nothing_is_lost(said):
    for error in (None, *SAID):
        code, text = outcome_of(said, error)
        assert said_of(code, text, error) == said, error


def test_what_the_operation_says_is_not_said_again():
    assert outcome_of("E: x", "E: x") == ("E", None)
    assert outcome_of("E: x", "E: y") == ("E", "x")
    assert outcome_of("ok", None) == ("ok", None)
    assert outcome_of("E", "E: y") == ("E", "")
