"""Histories in which no read was answered are not valid, since nothing can contradict them."""

import pytest

from harness.ops import History, Verdict
from tests.support.histories import judged_by, written

READ = [["r", "x", None]]


def judged(kind, *lines):
    return judged_by(kind, History(written(*lines), foreign=True), independent=False)[0]


@pytest.mark.parametrize(("kind", "f"), [("list-append", "append"), ("rw-register", "w")])
def test_writes_alone_are_not_valid(kind, f):
    # the transactions run one after the other
    writes = [(f"0{end}", "txn", [[f, "x", value]]) for value in (1, 2) for end in "!+"]
    result = judged(kind, *writes)
    assert (result.verdict, result.details["rule"]) == (Verdict.UNKNOWN, "nothing-observed")
    for end in "-?":
        lost = ("1!", "txn", READ), (f"1{end}", "txn", READ)
        assert judged(kind, *writes, *lost).verdict is Verdict.UNKNOWN
    answer = [["r", "x", [1, 2] if kind == "list-append" else 2]]
    good = judged(kind, *writes, ("1!", "txn", READ), ("1+", "txn", answer))
    assert good.verdict is Verdict.VALID
    bad = judged(kind, *writes, ("1!", "txn", READ), ("1+", "txn", READ))
    assert bad.verdict is Verdict.INVALID
