"""The models taken from Jepsen, on histories in the harness's own vocabularies."""

import pytest

from harness.errors import HistoryError
from harness.ops import OpType, Verdict
from harness.registry import load_plugin
from tests.support.cases import case_of
from tests.support.histories import Writer

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


def judged(workload, writer, **options):
    plugin = load_plugin("workloads", workload)
    checker = load_plugin("checkers", plugin.checkers[0])
    return checker.check(writer.history, case_of(plugin, **options), time_limit_s=30)


def phase(writer, name):
    writer.fact("phase", {"phase": name})


def test_a_set_reads_both_forms():
    h = Writer()
    h.ok(0, "add", {"value": 1})
    h.ok(1, "read", {}, {"value": [1]})
    assert judged("set", h).verdict is VALID
    h.ok(1, "read", {}, {"value": []})
    result = judged("set", h)
    assert (result.verdict, result.details["rule"]) == (INVALID, "lost")
    assert result.operations == (0, 4)


def test_an_ok_that_is_a_refusal_did_not_happen():
    h = Writer()
    h.ok(0, "add", {"value": 1}, {"result": "full"})
    h.ok(0, "add", {"value": 2})
    h.ok(1, "read", {}, {"value": [2]})
    assert judged("set", h).verdict is VALID
    h.ok(1, "read", {}, {"value": [1, 2]})
    assert judged("set", h).details["rule"] == "unexpected"


@pytest.mark.parametrize("stale_reads", [False, True])
def test_stale_reads_count_unless_the_workload_allows_them(stale_reads):
    h = Writer()
    h.ok(0, "add", {"value": 1})
    h.ok(1, "read", {}, {"value": []})
    h.ok(1, "read", {}, {"value": [1]})
    result = judged("set", h, stale_reads=stale_reads)
    assert result.verdict is (VALID if stale_reads else INVALID)
    assert result.details["stale"] == 1


def test_every_vocabulary_is_read():
    h = Writer()
    h.ok(0, "add", {"amount": 2})
    h.ok(0, "read", {}, {"value": 3})
    assert judged("counter", h).details["rule"] == "above"
    h = Writer()
    h.ok(0, "enqueue", {"value": 2})
    h.ok(0, "dequeue", {}, {"value": 2})
    h.ok(0, "dequeue", {}, {"value": 2})
    assert judged("queue", h).details["rule"] == "duplicated"
    assert judged("queue", h, duplicates=True).verdict is UNKNOWN  # the queue was not drained
    assert judged("fifo-queue", h).verdict is INVALID
    h.ok(0, "drain", {}, {"value": []})
    assert judged("queue", h, duplicates=True).verdict is VALID
    h = Writer()
    h.ok(0, "generate", {}, {"value": "a"})
    h.ok(0, "generate", {}, {"value": "a"})
    assert judged("unique-ids", h).details["rule"] == "duplicate-id"
    h = Writer()
    h.ok(0, "insert", {"key": 1, "table": "a", "id": 1})
    h.ok(0, "insert", {"key": 1, "table": "b", "id": 2})
    assert judged("g2", h).details["rule"] == "g2"
    h = Writer()
    h.ok(0, "add", {"value": 1})
    h.ok(0, "add", {"value": 2})
    h.ok(0, "read", {}, {"value": [2]})
    assert judged("causal-reverse", h).details["rule"] == "missing"


def bank(*reads, transfers=1):
    h = Writer()
    for _ in range(transfers):
        h.ok(0, "transfer", {"from": 0, "to": 1, "amount": 5})
    for read in reads:
        h.ok(1, "read", {}, {"value": read})
    return h


def test_a_bank_has_its_total_and_accounts_from_the_options():
    options = {"accounts": 2, "balance": 10}
    good, less, more = {"0": 5, "1": 15}, {"0": 5, "1": 10}, [[0, 5], [1, 20]]
    assert judged("bank", bank(good, good), **options).verdict is VALID
    assert judged("bank", bank(good, less), **options).details["rule"] == "wrong-total"
    assert judged("bank", bank(less, more), **options).verdict is INVALID
    # all reads agree, so perhaps the set-up differed from the options
    result = judged("bank", bank(less, less), **options)
    assert (result.verdict, result.details["rule"]) == (UNKNOWN, "set-up")
    result = judged("bank", bank({**good, "2": 0}), **options)
    assert (result.verdict, result.details["rule"]) == (UNKNOWN, "set-up")
    result = judged("bank", bank(good, {**good, "2": 0}), **options)
    assert (result.verdict, result.details["rule"]) == (INVALID, "unexpected-account")
    owing = {"0": -1, "1": 21}
    assert judged("bank", bank(good, owing), **options).details["rule"] == "negative-balance"
    assert judged("bank", bank(good, owing), overdraft=True, **options).verdict is VALID


def test_a_lock_may_be_released_when_its_client_is_closed():
    h = Writer()
    h.ok(0, "acquire")
    phase(h, "heal-core")
    h.ok(7, "acquire")
    h.fail(7, "release", {}, "gone")
    h.ok(8, "acquire")
    assert judged("lock", h).verdict is VALID
    h.ok(9, "acquire")  # client 8 never calls again, so it may have been closed
    assert judged("lock", h).verdict is VALID


def test_a_lock_is_held_as_long_as_its_client_lives():
    h = Writer()
    h.ok(0, "acquire")
    h.ok(1, "acquire")
    h.ok(0, "release")
    h.ok(1, "release")
    phase(h, "heal-core")
    assert judged("lock", h).verdict is INVALID
    h = Writer()
    h.ok(0, "acquire")
    h.ok(1, "acquire")  # the workload's clients live until the workload ends
    phase(h, "heal-core")
    assert judged("lock", h).verdict is INVALID
    h = Writer()
    h.ok(0, "acquire")
    phase(h, "chaos")
    h.ok(1, "acquire")
    assert judged("lock", h).verdict is INVALID
    h = Writer()
    h.ok(0, "acquire")
    phase(h, "heal-core")
    h.ok(7, "acquire")
    h.ok(8, "acquire")
    h.ok(7, "release")  # client 7 still releases, so it was not closed before
    assert judged("lock", h).verdict is INVALID


def lock_at_rest(*before, settled=True):
    h = Writer()
    h.ok(0, "acquire")
    for process, f, kind in before:
        h.call(process, f, {})
        h.ret(process, kind, {"result": "ok"} if kind is OpType.OK else {"result": "refused"})
    phase(h, "heal-core")
    h.fact("converged", {"ok": settled})
    h.fail(9, "acquire", {}, "refused")
    result = judged("lock", h)
    assert (result.details.get("rule") == "stuck") is (result.verdict is INVALID)
    return result


def test_a_lock_that_stays_held_after_its_release_is_stuck():
    released = (0, "release", OpType.OK)
    result = lock_at_rest(released)
    assert result.verdict is INVALID
    assert result.operations == (2, 6)
    assert lock_at_rest(released, (1, "acquire", OpType.FAIL)).verdict is INVALID
    assert lock_at_rest((0, "release", OpType.FAIL), released).verdict is INVALID


def test_a_lock_that_a_client_may_hold_is_not_stuck():
    released = (0, "release", OpType.OK)
    for before in (
        (),
        ((0, "release", OpType.FAIL),),
        ((0, "release", OpType.INFO),),
        (released, (1, "acquire", OpType.INFO)),
        (released, (1, "acquire", OpType.OK)),
        (released, (1, "acquire", OpType.OK), (1, "release", OpType.INFO)),
    ):
        assert lock_at_rest(*before).verdict is VALID
    assert lock_at_rest(released, settled=False).verdict is VALID


def test_registers_are_judged_key_by_key_and_null_counts():
    h = Writer()
    h.ok(0, "read", {"key": "x"}, {"value": None})
    h.ok(0, "write", {"key": "x", "value": 1})
    h.ok(1, "write", {"key": "y", "value": 2})
    h.ok(0, "cas", {"key": "x", "old": 1, "new": 3})
    h.fail(0, "cas", {"key": "x", "old": 1, "new": 4}, "mismatch")
    h.lost(4, "write", {"key": "y", "value": 9})
    h.ok(0, "read", {"key": "x"}, {"value": 3})
    h.ok(1, "read", {"key": "y"}, {"value": 9})
    assert judged("registers", h).verdict is VALID
    index = h.ok(1, "read", {"key": "x"}, {"value": None})
    result = judged("registers", h)
    assert result.verdict is INVALID
    assert index in result.operations
    assert "'x'" in result.reason
    assert result.checker == "linearizable-registers"


@pytest.mark.parametrize("default", [0, ""])
def test_registers_may_begin_with_the_default_value_of_the_system(default):
    h = Writer()
    h.ok(0, "read", {}, {"value": default})
    h.ok(0, "write", {"value": 1})
    h.ok(0, "read", {}, {"value": 1})
    result = judged("register", h)
    assert result.verdict is VALID
    assert f"{default!r} taken as the initial value" in result.reason
    h.ok(0, "read", {}, {"value": default})
    assert judged("register", h).verdict is INVALID


def test_all_registers_of_a_run_begin_alike():
    h = Writer()
    h.ok(0, "read", {"key": "x"}, {"value": 0})
    h.ok(0, "write", {"key": "x", "value": 1})
    h.ok(0, "read", {"key": "y"}, {"value": 0})
    assert judged("registers", h).verdict is VALID
    h.ok(0, "read", {"key": "z"}, {"value": None})
    assert judged("registers", h).verdict is INVALID


@pytest.mark.parametrize("other", [7, -1, False, "0", 0.0])
def test_a_register_begins_with_no_other_value(other):
    h = Writer()
    h.ok(0, "read", {}, {"value": other})
    h.ok(0, "write", {"value": 1})
    assert judged("register", h).verdict is INVALID


def test_a_value_that_was_written_is_no_default():
    h = Writer()
    h.ok(0, "read", {}, {"value": 0})
    h.ok(0, "write", {"value": 0})
    assert judged("register", h).verdict is INVALID


def test_a_mismatch_of_a_register_is_an_observation():
    h = Writer()
    h.ok(0, "write", {"key": "x", "value": 1})
    h.fail(0, "cas", {"key": "x", "old": 1, "new": 4}, "mismatch")
    assert judged("registers", h).verdict is INVALID


@pytest.mark.parametrize(
    ("workload", "f", "value", "answer"),
    [
        ("registers", "read", {}, {"value": 1}),
        ("registers", "drop", {"key": "x"}, {}),
        ("set", "read", {}, {}),
        ("counter", "read", {}, {"value": "x"}),
        ("queue", "peek", {}, {"value": 1}),
    ],
)
def test_other_operations_are_refused(workload, f, value, answer):
    h = Writer()
    h.call(0, f, value)
    h.ret(0, OpType.OK, answer)
    with pytest.raises(HistoryError, match=r"^op \d"):
        judged(workload, h)
