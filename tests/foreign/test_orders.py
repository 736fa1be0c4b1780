"""Files whose ops are not in the order of their times, such as one client after the other."""

import pytest
from msgspec.structs import replace

from checkers.foreign.readings import UNDECIDED_ORDER, in_order_of_time
from harness.ops import History, Verdict
from tests.support.histories import judged_by, written

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN
ORDERED = [
    (f"{0 if f == 'write' else 1}{end}", f, value if end == "+" or f == "write" else None)
    for value in range(1, 6)
    for f in ("write", "read")
    for end in "!+"
]


def timed(lines, times):
    ops = written(*lines)
    return History(
        (replace(op, time=time) for op, time in zip(ops, times, strict=True)), foreign=True
    )


def by_client(lines):
    """Return the lines and their times, with all ops of one client after those of another."""
    numbered = sorted(enumerate(lines), key=lambda item: item[1][0][0])
    return timed([line for _, line in numbered], [time for time, _ in numbered])


def judged(model, history, **settings):
    return judged_by(model, history, **settings)[0]


def test_ops_in_the_order_of_clients_convict_no_system():
    assert judged("cas-register", written(*ORDERED)).verdict is VALID
    result = judged("cas-register", by_client(ORDERED))
    assert (result.verdict, result.details["rule"]) == (UNKNOWN, UNDECIDED_ORDER)
    assert "sort the ops by time" in result.reason


def test_a_violation_in_both_orders_convicts():
    wrong = [*ORDERED, ("1!", "read", None), ("1+", "read", 99)]
    assert judged("cas-register", by_client(wrong)).verdict is INVALID


def test_a_violation_that_only_the_times_show_is_not_accepted():
    late = [*ORDERED, ("1!", "read", None), ("1+", "read", 1)]
    times = [*range(len(ORDERED)), 4, 5]
    assert judged("cas-register", timed(late, range(len(late)))).verdict is INVALID
    stale = [("0!", "write", 1), ("0+", "write", 1), ("1!", "read", None), ("1+", "read", 1)]
    stale += [("0!", "write", 2), ("0+", "write", 2)]
    assert judged("cas-register", timed(stale, range(6))).verdict is VALID
    assert judged("cas-register", timed(stale, [0, 1, 4, 5, 2, 3])).verdict is UNKNOWN
    assert in_order_of_time(timed(late, times)) is None  # only two ops are late


def test_transactions_are_judged_in_both_orders():
    lines = [
        (word, "txn", [["append" if f == "write" else "r", "x", None]]) for word, f, _ in ORDERED
    ]
    for number, (_, f, value) in enumerate(ORDERED):
        lines[number][2][0][2] = value if f == "write" else value and list(range(1, value + 1))
    assert judged("list-append", written(*lines)).verdict is VALID
    assert judged("list-append", by_client(lines)).verdict is UNKNOWN
    serializable = {"consistency_models": ("serializable",)}
    assert judged("list-append", by_client(lines), **serializable).verdict is VALID


@pytest.mark.parametrize(
    "times",
    [
        range(len(ORDERED)),
        [0] * len(ORDERED),
        [time // 4 for time in range(len(ORDERED))],
        [1, 0, *range(2, len(ORDERED))],
        range(len(ORDERED), 0, -1),  # answers before their requests: the clocks differ
    ],
)
def test_the_order_of_ops_counts_otherwise(times):
    assert in_order_of_time(timed(ORDERED, times)) is None
    assert judged("cas-register", timed(ORDERED, times)).verdict is VALID
