"""Micro-operations are parsed, also unanswered reads and values that only look equal."""

from pathlib import Path
from typing import Any

import pytest

from checkers.elle import Transaction, check_list_append, check_rw_register
from checkers.foreign.transactions import ElleListAppend, ElleRwRegister, ListAppend, RwRegister
from harness.errors import HistoryError
from harness.formats import model_for
from harness.formats.edn.jepsen import load_edn
from harness.ops import CheckResult, History, ModelSettings, Op, OpType, Verdict

SEEN = {"append": "[1]", "w": "1"}
NOTHING = {"append": "[]", "w": "nil"}


def skew(path: Path, write: str, read: str, *, ok: str = "") -> History:
    """Build two transactions that miss each other's writes, plus failed reads and unanswered reads.

    `read` is the value of unanswered reads, and `ok` the value of the first answered read.
    """
    lines = [
        f":process 0, :type :invoke, :f :txn, :value [[:r :x{read}] [:{write} :y 1]]",
        f":process 1, :type :invoke, :f :txn, :value [[:r :y{read}] [:{write} :x 1]]",
        f":process 0, :type :ok, :f :txn, :value [[:r :x {ok or NOTHING[write]}] [:{write} :y 1]]",
        f":process 1, :type :ok, :f :txn, :value [[:r :y {NOTHING[write]}] [:{write} :x 1]]",
        f":process 2, :type :invoke, :f :txn, :value [[:r :x{read}] [:r :y{read}]]",
        f":process 2, :type :ok, :f :txn, :value [[:r :x {SEEN[write]}] [:r :y {SEEN[write]}]]",
        f":process 3, :type :invoke, :f :txn, :value [[:{write} :x 2] [:r :y{read}]]",
        f":process 3, :type :info, :f :txn, :value [[:{write} :x 2] [:r :y{read}]]",
        f":process 4, :type :invoke, :f :txn, :value [[:{write} :y 3] [:r :y{read}]]",
        f":process 4, :type :fail, :f :txn, :value [[:{write} :y 3] [:r :y{read}]]",
        f":process 5, :type :invoke, :f :txn, :value [[:r :y{read}]]",
    ]
    path.write_text("".join(f"{{:index {n}, {line}}}\n" for n, line in enumerate(lines)))
    return load_edn(path)


@pytest.mark.parametrize(("write", "model"), [("append", ListAppend()), ("w", RwRegister())])
def test_a_read_without_an_answer_needs_no_value(tmp_path, write, model):
    told = []
    for read in (" nil", ""):
        history = skew(tmp_path / "h.edn", write, read)
        assert model_for("jepsen-edn", history) == model.name
        result, _ = model.prepare(history, ModelSettings()).check(time_limit_s=300, draw=False)
        told.append((result.verdict, result.reason, result.details))
        assert result.verdict is Verdict.INVALID
        assert "verified" in result.details["proof"]["text"]
    assert told[0] == told[1]


@pytest.mark.parametrize("check", [check_list_append, check_rw_register])
@pytest.mark.parametrize("type_", [OpType.INFO, OpType.FAIL])
def test_only_a_read_may_do_without_a_value(check, type_):
    write = "append" if check is check_list_append else "w"
    check([Transaction([["r", "x"], (":r", "y")], 0, 1, type_)])
    for mop in ([write, "x"], ["r"], ["r", "x", None, 1], "rx", [["r"], "x"]):
        with pytest.raises(HistoryError, match=r"must be \[f, key, value\]"):
            check([Transaction([mop], 0, 1, type_)])


@pytest.mark.parametrize("check", [check_list_append, check_rw_register])
def test_an_answered_read_has_a_value(check):
    with pytest.raises(HistoryError, match=r"op 0 holds .*\['r', 'x'\]; it must be \[f, key"):
        check([Transaction([["r", "x"]], 0, 1)])


@pytest.mark.parametrize("pair", [(1, True), (1, 1.0), (True, 1), (0, False), ([1], [True])])
@pytest.mark.parametrize("swapped", [False, True])
def test_similar_elements_are_distinct(pair, swapped):
    written, other = pair
    shown = [[written], [other]][:: -1 if swapped else 1]
    history = [Transaction([["append", "x", written]], 0, 1)]
    history += [Transaction([["r", "x", shown[n]]], 2 + 2 * n, 3 + 2 * n) for n in range(2)]
    result = check_list_append(history)

    assert result.verdict is Verdict.INVALID
    assert {"garbage-read", "incompatible-order"} <= set(result.anomalies)


@pytest.mark.parametrize("said", [{"code": "CONFLICT"}, "conflict", 7, [["w", 1]]])
@pytest.mark.parametrize("checker", [ElleListAppend(), ElleRwRegister()])
def test_reads_of_failed_transactions_are_ignored(checker, said):
    write, seen = ("append", [1]) if isinstance(checker, ElleListAppend) else ("w", 1)

    def judged(value: Any) -> CheckResult:
        made = [
            Op(0, 0, 0, OpType.INVOKE, "txn", [[write, "x", 1]]),
            Op(1, 1, 0, OpType.FAIL, "txn", value),
            Op(2, 2, 1, OpType.INVOKE, "txn", [["r", "x", None]]),
            Op(3, 3, 1, OpType.OK, "txn", [["r", "x", seen]]),
            Op(4, 4, 2, OpType.INVOKE, "txn", [[write, "y", 2]]),
            Op(5, 5, 2, OpType.INFO, "txn", value if isinstance(value, dict) else None),
        ]
        return checker.check(History(made), None, time_limit_s=300)

    result = judged(said)
    assert result.verdict is Verdict.INVALID
    assert "G1a" in result.details["anomalies"]
    assert result == judged(None)
