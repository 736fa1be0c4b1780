"""Conditions that a declaration puts on the answer to a leader probe."""

import pytest

from harness.errors import UsageError
from targets.declared.probes import condition, number

ANSWER = {"state": "lead", "id": 7, "leader": 7, "ok": True, "no": False, "deep": [{"x": "1"}]}


@pytest.mark.parametrize(
    ("text", "answer", "holds"),
    [
        ('state == "lead"', ANSWER, True),
        ('state == "follow"', ANSWER, False),
        ("leader == id", ANSWER, True),
        ("leader==8", ANSWER, False),
        ("ok", ANSWER, True),
        ("no", ANSWER, False),
        ("ok == true", ANSWER, True),
        ('deep.0.x == "1"', ANSWER, True),
        ("/role:master/", "# Replication\r\nrole:master\r\n", True),
        ("/^role:slave/", "role:master", False),
        ('/"state": "lead"/', ANSWER, True),
    ],
)  # fmt: skip
def test_a_condition_holds_or_not(text, answer, holds):
    assert condition(text)(answer) is holds


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("leader == id", {"id": 7}),
        ("ok", {}),
        ("ok", {"ok": 1}),
        ("deep.1", ANSWER),
        ("state.x", ANSWER),
        ("state", None),
    ],
)
def test_an_answer_without_the_path_is_an_error_and_never_no(text, answer):
    with pytest.raises(ValueError, match=r"answer|not true or false"):
        condition(text)(answer)


@pytest.mark.parametrize("text", ["", "//", "/(/", "== 1", "a == b c", "a b", "a === b"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UsageError):
        condition(text)


def test_a_term_is_a_number_in_the_answer():
    assert number("id")(ANSWER) == 7
    assert number("deep.0.x")(ANSWER) == 1
    assert number(r"/epoch:(\d+)/")("epoch:12") == 12
    with pytest.raises(UsageError, match="no group"):
        number("/epoch/")
    with pytest.raises(ValueError, match="matches nothing"):
        number(r"/epoch:(\d+)/")("none")
