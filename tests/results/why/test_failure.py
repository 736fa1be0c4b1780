"""The moment at which a failure shows. It depends on the operations in the failure's signature."""

from types import SimpleNamespace

from harness.ops import HARNESS, CheckResult, OpType, Verdict
from results.run.page.summary import Results
from results.why.search import failure_of
from tests.support.histories import MS, Writer


def shown_ms(named):
    """Return the time at which a failure with these ops shows.

    The history has three operations of 1 ms, at 0, 2 and 4 ms, and then two ops of the harness.
    """
    writer = Writer()
    for _ in range(3):
        writer.ok(0, "get")
    for _ in range(2):
        writer.add(HARNESS, OpType.INFO, "phase", "final")
    result = CheckResult("c", Verdict.INVALID, "broken", operations=tuple(named))
    run = SimpleNamespace(history=writer.history, folder="f")
    return failure_of(run, Results(checkers=(result,))).shown_ns / MS


def test_the_first_two_operations_of_clients_decide():
    assert shown_ms([0, 2, 4]) == 3
    assert shown_ms([0, 1, 2, 4]) == 3  # an operation that is named twice counts once
    assert shown_ms([7, 6, 0]) == 1
    assert shown_ms([3]) == 3


def test_ops_of_the_harness_decide_without_a_client():
    assert shown_ms([6]) == 6


def test_the_end_counts_if_no_operation_is_named():
    assert shown_ms([]) == 7
