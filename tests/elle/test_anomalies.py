"""One small history per anomaly, in which no other anomaly is found, and its boundary cases."""

from dataclasses import replace

import pytest

from checkers.elle import ElleResult, Transaction, check_list_append, check_rw_register
from harness.ops import OpType, Verdict
from tests.elle.histories import concurrent, mops, placed, sequence

# anomaly[, more words] -> (history, `not`, other anomalies found under strict serializability)
LISTS = {
    "G0": (
        concurrent("a x 1, a y 1", "a x 2, a y 2", "r x [1 2]", "r y [2 1]"),
        "read-uncommitted",
    ),
    "G0, unobserved": (
        concurrent("a x 1, a y 1", "a x 2, a y 2", "a x 3, a y 3", "r x [1 2]", "r y [2]"),
        "read-uncommitted",
        "G-single-item",
    ),
    "G1a": (concurrent("fail:a x 1", "r x [1]"), "read-committed", "empty-transaction-graph"),
    "G1b": (concurrent("a x 1, a x 2", "r x [1]"), "read-committed", "G-single-item"),
    "G1c": (concurrent("a x 1, r y [1]", "a y 1, r x [1]"), "read-committed"),
    "G1c, mixed": (
        concurrent("a x 1, r y [1]", "a x 2, a y 1", "r x [1 2], r y [1]"),
        "read-committed",
    ),
    "G-single-item": (
        concurrent("a x 1, a y 1", "a x 2, r y []", "r x [1 2]"),
        "consistent-view repeatable-read",
    ),
    "G2-item": (concurrent("a x 1, r y []", "a y 1, r x []"), "repeatable-read"),
    "G-nonadjacent-item": (
        concurrent("a x 1", "r x [1], r y []", "a y 1", "r y [1], r x []"),
        "snapshot-isolation repeatable-read",
    ),
    "lost-update": (
        concurrent("a x 0", "r x [0], a x 1", "r x [0], a x 2"),
        "cursor-stability update-atomic",
        "G2-item",
    ),
    "dirty-update": (concurrent("fail:a x 1", "a x 2", "r x [1 2]"), "read-committed", "G1a"),
    "dirty-update, around unknown": (
        concurrent("fail:a x 1", "info:a x 3", "a x 2", "r x [1 3 2]"),
        "read-committed",
        "G1a",
    ),
    "internal": (concurrent("a x 1", "a x 2, r x [1]", "r x [1 2]"), "read-atomic"),
    "internal, alone": (concurrent("a y 1", "r x nil, r x []", "r y [1]"), "read-atomic"),
    "future-read": (concurrent("r x [1], a x 1"), "read-committed", "empty-transaction-graph"),
    "duplicate-elements": (concurrent("a x 1", "r x [1 1]"), "read-uncommitted"),
    "incompatible-order": (concurrent("a x 1", "a x 2", "r x [1]", "r x [2]"), "read-committed"),
    "garbage-read": (concurrent("a y 1", "r y [1], r x [7]"), "read-committed"),
    "G0-realtime": (
        [*sequence("a x 2", "a x 1"), *concurrent("r x [1 2]")],
        "strong-read-uncommitted",
    ),
    "G1c-realtime": (sequence("r x [1]", "a x 1"), "strong-read-committed"),
    "G-single-item-realtime": (sequence("a x 1", "a x 2", "r x [1]"), "strong-snapshot-isolation"),
    "G-single-item-realtime, observed": (
        sequence("a x 1", "a x 2", "r x [1]", "r x [1 2]"),
        "strong-snapshot-isolation",
    ),
    "G-nonadjacent-item-realtime": (
        placed(("a x 1", 0, 5), ("r y []", 10, 15), ("a y 1", 1, 16), ("r y [1], r x []", 2, 17)),
        "strong-snapshot-isolation",
    ),
    "G2-item-realtime": (
        placed(("a x 1", 0, 5), ("r y []", 10, 15), ("a y 1, r x []", 1, 20)),
        "strong-serializable",
    ),
    "empty-transaction-graph": (concurrent("a x 1"), ""),
}

IN_SESSION = {
    "G0-process": (
        sequence("a x 2", "a x 1", "r x [1 2]", processes="001"),
        "strong-session-read-uncommitted",
    ),
    "G1c-process": (sequence("r x [1]", "a x 1", processes="00"), "strong-session-read-committed"),
    "G-single-item-process": (
        sequence("a x 1", "a x 2", "r x [1]", processes="011"),
        "strong-session-snapshot-isolation",
    ),
    "G-single-item-process, observed": (
        sequence("a x 1", "a x 2", "r x [1]", "r x [1 2]", processes="0112"),
        "strong-session-snapshot-isolation",
    ),
    "G-nonadjacent-item-process": (
        sequence("a x 1", "r y []", "a y 1", "r x []", processes="0011"),
        "strong-session-snapshot-isolation",
    ),
    # Two consecutive anti-dependencies form a cycle only through the order in process 0.
    "G2-item-process": (
        sequence("a x 1", "r y []", "a y 1, r x []", processes="001"),
        "strong-session-serializable",
    ),
}

# value of `not` -> a weaker model that still holds
HOLDS_BELOW = {
    "read-committed": "read-uncommitted",
    "consistent-view repeatable-read": "read-committed",
    "repeatable-read": "snapshot-isolation",
    "snapshot-isolation repeatable-read": "cursor-stability",
    "cursor-stability update-atomic": "read-committed",
    "read-atomic": "repeatable-read",
    **dict.fromkeys(
        ("strong-read-uncommitted", "strong-read-committed", "strong-snapshot-isolation",
         "strong-serializable"),
        "serializable",
    ),
}  # fmt: skip


def assert_told(result: ElleResult, name: str, not_: str, *others: str) -> None:
    assert {name.split(",", maxsplit=1)[0], *others} == set(result.anomalies)
    assert set(not_.split()) == set(result.not_)


@pytest.mark.parametrize("name", LISTS)
def test_a_minimal_history_yields_the_anomaly_exactly(name):
    history, not_, *others = LISTS[name]
    weaker = HOLDS_BELOW.get(not_)
    result = check_list_append(history)

    assert_told(result, name, not_, *others)
    expected = Verdict.INVALID if not_ else Verdict.UNKNOWN
    assert expected is result.verdict
    if weaker is not None:
        below = check_list_append(history, consistency_models=(weaker,))
        assert below.verdict is not Verdict.INVALID
        assert not set(below.anomalies) - {"empty-transaction-graph"}


@pytest.mark.parametrize("name", IN_SESSION)
def test_order_within_processes_counts_for_sessions_only(name):
    history, not_ = IN_SESSION[name]
    result = check_list_append(history, consistency_models=("strong-session-serializable",))

    assert_told(result, name, not_)
    below = check_list_append(history, consistency_models=("serializable",))
    assert below.verdict is Verdict.VALID


@pytest.mark.parametrize("name", IN_SESSION)
def test_process_order_is_real_time_to_strict_models(name):
    history, _ = IN_SESSION[name]
    result = check_list_append(history)

    assert result.verdict is Verdict.INVALID
    assert all(found.endswith("-realtime") for found in result.anomalies)


@pytest.mark.parametrize("other", ["a x 3", "a x 3, r x [3 3]"])
def test_nil_and_an_empty_list_are_not_one_version_that_two_updated(other):
    # `lost-update-cases` in upstream's txn.clj compares the recorded values, whether or not a key
    # has repeated elements.
    same = concurrent("r x nil, a x 1", "r x nil, a x 2", other)
    unlike = concurrent("r x nil, a x 1", "r x [], a x 2", other)
    assert "lost-update" in check_list_append(same).anomalies
    assert "lost-update" not in check_list_append(unlike).anomalies


def test_reads_of_unanswered_transactions_prove_nothing():
    # The transaction may have aborted, and an aborted transaction may read anything. Upstream uses
    # such reads of lists (`wr-mop-dep`, `read-index` in list_append.clj), and calls both histories
    # invalid.
    stale = sequence("a x 1, a y 1", "info:r x []", "r y [1]")
    fractured = sequence("a x 1, a y 1", "info:r x [], r y [1]", "r y [1]")
    for history in (stale, fractured):
        assert check_list_append(history).verdict == Verdict.VALID
        answered = [replace(txn, type=OpType.OK) for txn in history]
        assert check_list_append(answered).verdict == Verdict.INVALID


def test_a_transaction_still_open_may_have_happened():
    # Upstream ignores the transaction, so it finds no dependencies, and stops with an error if
    # another transaction read its append ("No transaction wrote", `dirty-update-cases` in
    # list_append.clj).
    still_open = Transaction(mops("a x 1"), call=0, end=None, type=OpType.INFO)
    unseen, seen = (
        [still_open, Transaction(mops(text), call=1, end=2, process=1)]
        for text in ("r x []", "r x [1]")
    )
    assert check_list_append(unseen).verdict == Verdict.VALID
    assert check_list_append(seen).verdict == Verdict.VALID
    assert check_list_append(unseen[1:]).verdict == Verdict.UNKNOWN


def test_allowed_anomalies_are_not_mentioned():
    history, *_ = LISTS["G1c"]
    result = check_list_append(history, consistency_models=(), anomalies=("G2",))

    assert result.verdict is Verdict.VALID
    assert (result.anomalies, result.not_) == ({}, ())


# same form as `LISTS`, with the options of the check after the history
REGISTERS = {
    "cyclic-versions": (
        sequence("w x 1", "w x 2", "r x 1", processes="000"),
        {"sequential_keys": True},
        "read-uncommitted",
    ),
    "lost-update": (
        concurrent("r x 0, w x 1", "r x 0, w x 2"),
        {},
        "cursor-stability update-atomic",
        "empty-transaction-graph",
    ),
    "G1a": (concurrent("fail:w x 1", "r x 1"), {}, "read-committed", "empty-transaction-graph"),
    "G1b": (concurrent("w x 1, w x 2", "r x 1"), {}, "read-committed", "empty-transaction-graph"),
    "G1c": (concurrent("w x 1, r y 1", "w y 1, r x 1"), {}, "read-committed"),
    "G0": (
        placed(
            ("w x 1, w y 2", 0, 9),
            ("w x 2, w y 1", 1, 9),
            ("r x 1, r y 1", 2, 3),
            ("r x 2, r y 2", 4, 5),
        ),
        {"linearizable_keys": True},
        "read-uncommitted",
        "G-single-item",
    ),
    "G-single-item, by commit order": (
        concurrent("w x 1, w y 1", "w x 2, w y 2", "r x 1, r y 2"),
        {"transaction_order": {0: 0, 1: 1, 2: 2}},
        "consistent-view repeatable-read",
    ),
    "internal": (concurrent("w x 1, r x 2", "w x 2"), {}, "read-atomic", "empty-transaction-graph"),
    "G-single-item": (
        concurrent("w x 1, w y 1", "r x 1, r y nil"),
        {},
        "consistent-view repeatable-read",
    ),
    "G2-item": (concurrent("r x nil, w y 1", "r y nil, w x 1"), {}, "repeatable-read"),
    "cyclic-versions, linearizable keys": (
        sequence("w x 1", "w x 2", "r x 1, w y 1", "r y 1, r x 2"),
        {"linearizable_keys": True},
        "read-uncommitted",
    ),
    "garbage-read": (
        concurrent("w x 1", "r x 1, r y 7"),
        {"initial_values": {"x": 0}},
        "read-committed",
    ),
}


@pytest.mark.parametrize("name", REGISTERS)
def test_registers(name):
    history, options, not_, *others = REGISTERS[name]
    result = check_rw_register(history, **options)

    assert_told(result, name, not_, *others)
    assert result.verdict is Verdict.INVALID


def test_a_value_out_of_nowhere_is_noted_and_may_be_the_initial_one():
    history = concurrent("w x 1", "r x 2", "r x 1")
    result = check_rw_register(history)

    assert result.verdict is Verdict.VALID
    assert result.notes == ("Op 1 read 2 from key x, which no transaction wrote.",)
    declared = check_rw_register(history, initial_values={"x": 2})
    assert declared.notes == ()


def test_declared_initial_values_are_the_first_versions():
    history = concurrent("w x 1, w y 1", "r x 1, r y 0")

    assert check_rw_register(history).verdict is Verdict.VALID
    told = check_rw_register(history, initial_values={"x": 0, "y": 0})
    assert {"G-single-item"} == set(told.anomalies)


def test_writes_whose_answer_was_lost_count_if_wanted():
    history = concurrent("info:w x 1, w y 1", "r x 1, r y nil")

    assert check_rw_register(history).verdict is not Verdict.INVALID
    told = check_rw_register(history, unknown_writes=True)
    assert {"G-single-item"} == set(told.anomalies)


@pytest.mark.parametrize("check", [check_list_append, check_rw_register])
def test_indistinguishable_writes_are_refused(check):
    f = "a" if check is check_list_append else "w"
    assert callable(check)
    result = check(concurrent(f"{f} x 1", f"{f} x 1"))

    assert result.verdict is Verdict.UNKNOWN
    assert "1 is written to key x twice, by op 0 and op 1" in result.reason


def test_a_search_that_ends_early_says_so_and_keeps_refutations():
    history, not_ = LISTS["G-single-item"]
    result = check_list_append(history, search_steps=1)

    assert result.verdict is Verdict.INVALID
    assert "cycle-search-timeout" in result.anomalies
    assert {"repeatable-read"} <= set(result.not_)
    assert set(not_.split()) >= set(result.not_) - {"snapshot-isolation"}
