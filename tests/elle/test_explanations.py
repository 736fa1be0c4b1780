"""Cycles and other anomalies are explained by sentences and drawings."""

import xml.etree.ElementTree as ET

import msgspec
import pytest

from checkers.elle import check_list_append, check_rw_register
from checkers.foreign.transactions import ElleListAppend, ElleRwRegister
from harness.errors import HistoryError, UsageError
from harness.ops import History, Op, OpType, Verdict
from tests.elle.histories import concurrent, sequence


def test_a_cycle_of_lists_in_sentences():
    result = check_list_append(concurrent("a x 1, a y 1", "a x 2, r y []", "r x [1 2]"))
    (case,) = result.anomalies["G-single-item"]

    assert case.text == (
        "T1 is op 0: append x 1; append y 1.",
        "T2 is op 1: append x 2; r y [].",
        "T1 < T2, because T2 appended 2 to key x after T1 appended 1.",
        (
            "However, T2 < T1, because T2 read key y and saw an empty list, so it did not see T1's "
            "append of 1: a contradiction."
        ),
    )
    assert case.operations == (0, 1)
    assert result.reason == "G-single-item: not consistent-view, not repeatable-read"


def test_real_time_in_sentences():
    result = check_list_append(sequence("a x 1", "a x 2", "r x [1]", "r x [1 2]"))
    (case,) = result.anomalies["G-single-item-realtime"]

    assert case.text == (
        "T1 is op 1: append x 2.",
        "T2 is op 2: r x [1].",
        "T1 < T2, because T1 completed before T2 was invoked.",
        (
            "However, T2 < T1, because T2 read key x and saw only the elements up to 1, so it did "
            "not see T1's append of 2: a contradiction."
        ),
    )


def test_unobserved_appends_and_reads_by_the_writer():
    result = check_list_append(
        concurrent("a x 1, a y 1", "a x 2, a y 2", "a x 3, a y 3", "r x [1 2]", "r y [2]")
    )
    text = "\n".join(line for case in result.anomalies["G0"] for line in case.text)

    assert "(no read shows that append, so it comes last)" in text


def test_a_cycle_of_registers_in_sentences():
    result = check_rw_register(
        sequence("w x 1", "w x 2", "r x 2, w y 1", "r y 1, r x nil"), linearizable_keys=True
    )
    assert {"cyclic-versions", "G-single-item"} <= set(result.anomalies)
    text = result.anomalies["cyclic-versions"][0].text[0]
    assert text.startswith("The versions 1, 2, nil of key x each come before the others")
    assert "if initial-state and linearizable-keys hold" in text
    assert result.anomalies["G-single-item"][0].text == (
        "T1 is op 1: w x 2.",
        "T2 is op 2: r x 2; w y 1.",
        "T3 is op 3: r y 1; r x nil.",
        "T1 < T2, because T2 read key x = 2, which T1 wrote.",
        "T2 < T3, because T3 read key y = 1, which T2 wrote.",
        (
            "However, T3 < T1, because T3 read key x = nil, and T1 wrote 2 to it, which comes "
            "later (the initial version comes first): a contradiction."
        ),
    )


def test_a_drawing_is_xml_whatever_the_names():
    result = check_list_append(
        [
            *concurrent("a x 1"),
            type(concurrent("a x 1")[0])(
                [("append", "<&\x00{source}>", "{"), ("append", 'k"', "}")], 0, 100, process=1
            ),
            type(concurrent("a x 1")[0])(
                [("r", "<&\x00{source}>", ["{"]), ("r", 'k"', [])], 0, 100, process=2
            ),
        ]
    )
    (case,) = result.anomalies["G-single-item"]
    assert case.drawing is not None
    root = ET.fromstring(case.drawing)

    assert "http://www.w3.org/2000/svg" in root.tag
    texts = "".join(root.itertext())
    assert "<&?{source}>" in texts
    assert "wr on <&?{source}>" in texts


def test_cases_without_cycles():
    expected = {
        "G1a": "Op 1 read [1] from key x, but 1 was appended by op 0, which failed.",
        "internal": "Op 2 read [3] from key z, which contradicts what the same transaction did "
        "before: append z 4.",
        "duplicate-elements": "Op 3 read [5 5] from key d: 5 is in the list more than once, "
        "but was appended once.",
        "future-read": "Op 4 read 6 from key f before it appended 6 to it in the same transaction.",
        "incompatible-order": "Op 6 read [8] from key i; op 5 read [7] from it. Neither is a "
        "prefix of the other.",
        "lost-update": "Ops 7, 8 each read [] from key l and then appended to it: at most one of "
        "them can have appended directly to the list that it read.",
        "dirty-update": "Op 9 appended 2 to key x on top of 1, which op 0 appended; but op 0 "
        "failed.",
        "G1b": "Op 10 read [9] from key b, which ends in 9; but op 11, which appended 9, appended "
        "more to key b in the same transaction.",
        "garbage-read": "Op 12 read [77] from key g, but 77 was never appended to it.",
    }
    result = check_list_append(
        concurrent(
            "fail:a x 1", "r x [1]", "a z 3, a z 4, r z [3]", "a d 5, r d [5 5]", "r f [6], a f 6",
            "a i 7, a i 8, r i [7]", "r i [8]", "r l [], a l 1", "r l [], a l 2", "a x 2",
            "r b [9], r x [1 2]", "a b 9, a b 10", "r g [77]",
        )
    )  # fmt: skip
    expected["internal"] = (
        "Op 2 read [3] from key z, which contradicts what the same transaction did before: "
        "append z 3; append z 4."
    )
    for name, text in expected.items():
        assert text in [case.text[0] for case in result.anomalies[name]], name


def history(*mops: list[object]) -> History:
    """Build a history of consecutive transactions of one process, as a run records it."""
    ops = []
    for number, value in enumerate(mops):
        ops.append(Op(2 * number, 2 * number, 0, OpType.INVOKE, "txn", value))
        ops.append(Op(2 * number + 1, 2 * number + 1, 0, OpType.OK, "txn", value))
    return History(ops)


def test_plug_ins_judge_runs():
    lists = history([["append", "x", 1]], [["append", "x", 2]], [["r", "x", [2, 1]]])
    result = ElleListAppend().check(lists, None, time_limit_s=300)
    assert Verdict.INVALID is result.verdict
    assert result.checker == "elle-list-append"
    assert result.explanation[0] == "G0-realtime (1 found):"
    # pages and pictures refer to operations by the indexes of their invocations
    assert result.operations == (0, 2)
    assert result.details["not"] == ["strong-read-uncommitted"]
    assert result.details["drawings"][0].startswith("<svg")

    registers = history([["w", "x", 1]], [["w", "x", 2]], [["r", "x", 1]])
    weak = ElleRwRegister(consistency_models=("serializable",))
    assert Verdict.VALID is weak.check(registers, None, time_limit_s=300).verdict
    strong = ElleRwRegister().check(registers, None, time_limit_s=300)
    assert Verdict.INVALID is strong.verdict
    assert strong.details["not"] == ["strong-serializable"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("write", "op 0 has the value 'write'; a transaction is a list of [f, key, value]"),
        ([["append", "x"]], "it must be [f, key, value]"),
        ([["drop", "x", 1]], "this check knows only 'r' and 'append'"),
        ([["r", "x", 7]], "op 0 reads 7 from 'x'; a read returns a list"),
        ([["append", "x", None]], "op 0 writes nil to 'x'"),
    ],
)
def test_invalid_transactions_are_reported(value, message):
    with pytest.raises(HistoryError) as raised:
        check_list_append(history(value))  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_an_operation_is_a_transaction_by_its_value():
    renamed = [msgspec.structs.replace(op, f="read") for op in history([["append", "x", 1]])]
    assert check_list_append(History(renamed)).statistics["transactions"] == 1
    with pytest.raises(HistoryError, match="op 0 has the value None"):
        check_list_append(History([Op(0, 0, 0, OpType.INVOKE, "create", None)]))


@pytest.mark.parametrize("options", [{"consistency_models": ("acid",)}, {"anomalies": ("G7",)}])
def test_unknown_names_are_reported(options):
    with pytest.raises(UsageError, match="is unknown; choose one of"):
        check_list_append([], **options)  # type: ignore[arg-type]


def test_nothing_at_all_is_unknown():
    for check in (check_list_append, check_rw_register):
        result = check([])
        assert Verdict.UNKNOWN is result.verdict
        assert {"empty-transaction-graph"} == set(result.anomalies)


def test_open_operations_may_have_happened():
    ops = [
        Op(0, 0, 0, OpType.INVOKE, "txn", [["append", "x", 1], ["append", "y", 1]]),
        Op(1, 1, 1, OpType.INVOKE, "txn", [["r", "x", None], ["r", "y", None]]),
        Op(2, 2, 1, OpType.OK, "txn", [["r", "x", [1]], ["r", "y", []]]),
    ]
    result = check_list_append(History(ops))

    assert {"G-single-item"} == set(result.anomalies)
    assert result.anomalies["G-single-item"][0].operations == (1, 0)
