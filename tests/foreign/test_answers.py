"""Completions of changes whose value is an answer such as "OK", not the request."""

import pytest

from harness.ops import History, Verdict
from tests.support.histories import judged_by, written

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


def did(f, value, answer):
    return [("0!", f, value), ("0+", f, answer)]


def keyed(lines):
    return [(word, f, [7, value]) for word, f, value in lines]


def judged(model, lines, **settings):
    return judged_by(model, History(written(*lines), foreign=True), **settings)[0]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("model", "change", "read", "verdict"),
    [
        ("cas-register", did("write", 5, "OK"), did("read", None, 5), UNKNOWN),
        ("cas-register", did("write", 5, "OK"), did("read", None, 6), INVALID),
        ("cas-register", did("write", 5, None), did("read", None, 6), INVALID),
        # as in Knossos, the value of the completion overrides the request
        ("cas-register", did("write", 5, 6), did("read", None, 6), VALID),
        ("cas-register", did("write", 5, 6), did("read", None, 5), INVALID),
        ("cas-register", did("cas", [0, 5], [0, 6]), did("read", None, 5), INVALID),
        ("cas-register", did("cas", [0, 5], [0, ":ok"]), did("read", None, 5), UNKNOWN),
        ("cas-register", did("write", 5, 1) + did("write", 6, 1), did("read", None, 6), UNKNOWN),
        ("cas-register", did("write", 5, 6) + did("write", 6, 5), did("read", None, 6), INVALID),
        ("cas-register", did("write", "a", "OK"), did("read", None, "a"), INVALID),
        ("cas-register", did("write", "a", ":ok"), did("read", None, "a"), UNKNOWN),
        ("set", did("add", 5, 1), did("read", None, [5]), UNKNOWN),
        ("set", did("add", 5, 1), did("read", None, []), INVALID),
        ("set-full", did("add", 5, 1), did("read", None, [5]), UNKNOWN),
        ("counter", did("add", 5, 5) + did("add", 5, 10), did("read", None, 10), UNKNOWN),
        ("counter", did("add", 5, 5) + did("add", 5, 10), did("read", None, 9), INVALID),
        ("total-queue", did("enqueue", "a", 0), did("drain", None, ["a"]), UNKNOWN),
        ("total-queue", did("enqueue", "a", 0), did("drain", None, ["b"]), INVALID),
        ("queue", did("enqueue", "a", 0), did("dequeue", None, "a"), UNKNOWN),
        ("queue", did("enqueue", "a", "a"), did("dequeue", None, "b"), INVALID),
    ],
)
def test_an_answer_to_a_change_convicts_nothing(model, change, read, verdict, apart):
    lines = change + read
    result = judged(model, keyed(lines) if apart else lines, independent=apart)
    assert result.verdict is verdict
    if verdict is UNKNOWN:
        assert "repeat the requests in the completions" in result.reason
