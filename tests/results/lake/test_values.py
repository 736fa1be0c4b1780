"""Values and outcomes of attempts are split into columns (`results.lake.tables.values`)."""

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.lake.tables.values import (
    ANSWERS,
    ASKS,
    EVENTS,
    Shredder,
    joined_outcome,
    outcome_of,
)
from tests.results.lake.histories import VALUES

encode = msgspec.json.Encoder(order="sorted").encode


def shredded(shredder, values):
    texts = [encode(value).decode() for value in values]
    arrays = shredder.shred(pa.array(texts, pa.string()))
    return pa.table(arrays, names=shredder.names)


@given(st.sampled_from([ASKS, ANSWERS, EVENTS]), st.lists(VALUES, max_size=6))
def test_values_are_the_same_after_they_were_columns(shredder, values):
    found = shredder.join(shredded(shredder, values))

    assert [encode(value) for value in found] == [encode(value) for value in values]


SHREDDER = Shredder("x", {"n": ("int64", ""), "s": ("string", ""), "d": ("double", "")}, ["raw"])


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        ({"n": 1, "s": "a"}, (1, "a", None, None)),
        ({}, (None, None, None, None)),
        (None, (None, None, None, "null")),
        ([1, 2], (None, None, None, "[1,2]")),
        ({"n": 1, "raw": [3]}, (1, None, None, '{"raw":[3]}')),
        ({"n": 1, "other": "é"}, (1, None, None, '{"other":"é"}')),
        ({"n": "1", "s": "a"}, (None, "a", None, '{"n":"1"}')),
        ({"n": None}, (None, None, None, '{"n":null}')),
        ({"n": True}, (None, None, None, '{"n":true}')),
        ({"n": 1.0}, (None, None, None, '{"n":1.0}')),
        ({"n": 1 << 63}, (None, None, None, '{"n":9223372036854775808}')),
        ({"d": 1}, (None, None, None, '{"d":1}')),
        ({"d": 1.5}, (None, None, 1.5, None)),
    ],
)
def test_a_field_has_its_column_only_where_that_gives_it_back(value, columns):
    usual = {"n": 7, "s": "usual"}

    table = shredded(SHREDDER, [usual, value, usual])

    assert tuple(table.to_pylist()[1].values()) == columns
    assert SHREDDER.join(table) == [usual, value, usual]


OUTCOMES = ["ok", "E: x", "E: y", "E", "E: ", ": x", "", ": ", "E: x: y", "E: : x"]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcomes_of_attempts_come_back(outcome):
    for error in (None, *OUTCOMES):
        code, text = outcome_of(outcome, error)
        assert joined_outcome(code, text, error) == outcome, error


def test_an_outcome_does_not_repeat_the_error_of_its_operation():
    assert outcome_of("E: x", "E: x") == ("E", None)
    assert outcome_of("E: x", "E: y") == ("E", "x")
    assert outcome_of("ok", None) == ("ok", None)
    assert outcome_of("E", "E: y") == ("E", "")
