"""Models judge hand-written foreign histories that barely obey or barely break a rule."""

import pytest

from checkers.catalog.passes import revisions
from checkers.elle.infer.columns import _Builder
from checkers.foreign import model as models
from checkers.linearizability import CheckOutcome, Result
from harness.case import imported_case
from harness.errors import HistoryError, UsageError
from harness.ops import History, Verdict
from harness.registry import load_plugin
from harness.verdict.judge import load_model, model_names
from tests.support.histories import judged_by, written

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


def judge(model, lines):
    return judged_by(model, written(*lines))


WROTE_1 = [("0!", "write", 1), ("0+", "write", 1)]


def done(f, value, *answer, end="+", by=0):
    """Build a call and its completion; without an `answer`, the completion repeats the value."""
    return [(f"{by}!", f, value), (f"{by}{end}", f, *(answer or [value]))]


def read(value, process=1):
    return done("read", None, value, by=process)


def table(
    f, name, result, *, ident=1, version=1, payload=0, seen=0, name2="", listing=(), ended="+"
):
    given = {"name": name, "name2": name2, "payload": payload, "id": ident}
    answer = {
        "result": result,
        "id": ident,
        "version": version,
        "payload": seen,
        "listing": list(listing),
    }
    return [("0!", f, given), (f"0{ended}", f, answer)]


CASES = [
    ("register", [*WROTE_1, *read(True)], INVALID),  # in Python, True equals 1
    ("register", [("0!", "write", True), ("0+", "write", True), *read(True)], VALID),
    ("register", [("0!", "write", False), ("0+", "write", False), *read(0)], INVALID),
    ("etcd-cas-register", [*WROTE_1, ("1!", "cas", [True, 2]), ("1+", "cas", None)], INVALID),
    ("etcd-cas-register", [*WROTE_1, ("1!", "cas", [True, 2]), ("1-", "cas", None)], VALID),
    ("cas-register", [*WROTE_1, *read(1.0)], INVALID),
    ("cas-register", [*WROTE_1, *read("1")], INVALID),
    ("cas-register", read(0), VALID),
    ("cas-register", read(None), UNKNOWN),  # a wildcard: no state contradicts it
    ("cas-register", [*WROTE_1, *read(None)], UNKNOWN),
    ("cas-register", [*WROTE_1, *read(None), *read(1)], VALID),
    ("cas-register", WROTE_1, UNKNOWN),
    ("cas-register", WROTE_1[:1], UNKNOWN),
    ("cas-register", [], UNKNOWN),
    ("cas-register", [("0!", "write", 1), ("0-", "write", 1)], VALID),  # the write had no effect
    ("cas-register", [*WROTE_1, ("1!", "write", 2), ("1-", "write", 2)], UNKNOWN),
    ("cas-register", [("0!", "read", None), ("0?", "read", None)], UNKNOWN),
    ("cas-register", [*WROTE_1, *read(0)], INVALID),
    ("cas-register", [("0!", "write", 1), ("0-", "write", 1), *read(1)], INVALID),
    ("cas-register", [("0!", "write", 1), ("0?", "write", 1), *read(1), *read(1)], VALID),
    ("cas-register", [("0!", "write", 1), *read(1), *read(0)], INVALID),
    ("cas-register", [("0!", "cas", [0, 2]), ("0+", "cas", [0, 2]), *read(2)], VALID),
    ("cas-register", [("0!", "cas", [1, 2]), ("0+", "cas", [1, 2])], INVALID),
    ("cas-register", [*WROTE_1, ("0!", "cas", [1, 2]), ("0-", "cas", [1, 2]), *read(1)], VALID),
    ("cas-register", [("0!", "write", None), ("0+", "write", 4), *read(4)], VALID),
    # If the two values differ, the completion's counts, as in Knossos, unless it is nil.
    ("cas-register", [("0!", "write", 1), ("0+", "write", 4), *read(4)], VALID),
    ("cas-register", [("0!", "write", 1), ("0+", "write", 4), *read(1)], INVALID),
    ("cas-register", [("0!", "cas", [1, 2]), ("0+", "cas", [0, 3]), *read(3)], VALID),
    ("cas-register", [("0!", "write", 1), ("0+", "write", None), *read(1)], VALID),
    ("cas-register", [("0!", "write", 1), ("0?", "write", 4), *read(4)], INVALID),
    ("cas-register", [*done("write", {"value": 1}, {"value": 4}), *read({"value": 1})], VALID),
    ("queue", [*done("enqueue", 1, 4), *done("dequeue", None, 4)], VALID),
    ("etcd-cas-register", [("0!", "write", 1), ("0+", "write", 4), *read(1)], VALID),
    ("etcd-cas-register", [("0!", "write", 1), ("0+", "write", 4), *read(4)], INVALID),
    ("cas-register", [("0!", "read", None), ("0?", "read", None), *read(0)], VALID),
    ("cas-register", read({"value": None}), VALID),  # the harness's own vocabulary starts with nil
    ("cas-register", read({"value": 0}), INVALID),
    ("register", read(0), VALID),
    ("etcd-cas-register", read(None), VALID),
    ("etcd-cas-register", [*WROTE_1, *read(None)], INVALID),
    ("etcd-cas-register", read(0), INVALID),
    ("etcd-cas-register", [*WROTE_1, ("0!", "cas", [1, 2]), ("0-", "cas", [1, 2])], INVALID),
    ("etcd-cas-register", [*WROTE_1, ("0!", "cas", [3, 2]), ("0-", "cas", [3, 2])], VALID),
    (
        "etcd-cas-register",
        [*WROTE_1, *done("cas", [1, 2], None, "timed-out", end="-"), *read(2)],
        VALID,
    ),
    ("etcd-cas-register", [("0!", "read", None), ("0-", "read", None, "timed-out")], UNKNOWN),
    ("etcd-cas-register", [("0!", "cas", [3, 2]), ("0-", "cas", [3, 2])], VALID),
    ("multi-register", done("txn", [["read", "x", None]], [["read", "x", 0]]), VALID),
    ("multi-register", done("txn", [], [["write", "x", 1], ["read", "x", 0]]), INVALID),
    ("multi-register", [("0!", "txn", [["write", "x", 1]]), ("0-", "txn", None)], VALID),
    ("multi-register", done("txn", [], [["write", "x", 1], ["read", "y", None]]), UNKNOWN),
    ("kv-string", [("0!", "put", ["a", "x"]), ("0+", "put", ["a", "x"])], UNKNOWN),
    # a key without reads is fine if another key was read
    ("kv-string", [*done("put", ["a", "x"]), *done("get", ["b", None], ["b", ""])], VALID),
    ("kv-string", [("0!", "get", ["a", None]), ("0+", "get", ["a", ""])], VALID),
    (
        "kv-string",
        [
            *done("append", ["a", "x"], end="?"),
            *done("get", ["a", None], ["a", "x"], by=1),
            *done("get", ["a", None], ["a", ""], by=1),
        ],
        INVALID,
    ),
    ("catalog", [*table("create", "t", "ok"), *table("create", "t", "ex", ident=2)], VALID),
    ("catalog", table("get", "t", "ok"), INVALID),
    ("catalog", [*table("create", "t", "ok"), *table("alter", "t", "ok", version=2)], VALID),
    ("catalog", [*table("create", "t", "ok"), *table("alter", "t", "ok", version=3)], INVALID),
    ("catalog", [*table("create", "t", "ok"), *table("drop", "t", "ok", ident=2)], INVALID),
    ("catalog", [*table("create", "t", "ok"), *table("ren", "t", "ex", name2="t")], VALID),
    ("catalog", table("ren", "t", "ex", name2="u"), INVALID),
    (
        "catalog",
        [
            *table("create", "t", "ok"),
            *table("ren", "t", "ok", name2="u"),
            *table("list", "", "ok", listing=[["u", 1]]),
            *table("get", "t", "nf"),
        ],
        VALID,
    ),
    # A failure with an answer is an observation; a failure without one did nothing.
    ("catalog", table("drop", "t", "nf", ended="-"), VALID),
    ("catalog", table("drop", "t", "ex", ended="-"), INVALID),
    ("catalog", [*table("create", "t", "ok"), *table("drop", "t", "nf", ended="-")], INVALID),
    ("catalog", [*table("create", "t", "ok"), *table("create", "t", "ex", ended="-")], VALID),
    ("catalog", [table("create", "t", "ok")[0], ("0-", "create", None)], VALID),
    (
        "catalog",
        [table("drop", "t", "ok")[0], ("0-", "drop", None), *table("get", "t", "nf")],
        VALID,
    ),
    (
        "catalog",  # a lost create, if it took effect, has the id that a later answer shows
        [
            ("1!", "create", table("create", "t", "ok", ident=7)[0][2]),
            *table("get", "t", "ok", ident=7),
        ],
        VALID,
    ),
    # an aborted read
    (
        "list-append",
        [
            *done("txn", [["append", "x", 1]], end="-"),
            *done("txn", [["r", "x", None]], [["r", "x", [1]]], by=1),
        ],
        INVALID,
    ),
]


@pytest.mark.parametrize(("model", "lines", "verdict"), CASES)
def test_verdicts(model, lines, verdict):
    result, counterexample = judge(model, lines)
    assert result.verdict is verdict
    assert (counterexample is not None) is (verdict is INVALID)
    assert result.explanation or verdict is VALID


@pytest.mark.parametrize(
    ("model", "lines", "words"),
    [
        ("cas-register", [("0!", "txn", [])], "op 0 is 'txn'"),
        ("cas-register", [("0!", "cas", 3)], "op 0 is 'cas' with the value 3"),
        ("cas-register", [("0!", "read", None), ("0+", "read", [1])], "op 1 is 'read'"),
        ("cas-register", [("0!", "read", None), ("0+", "write", 1)], "op 1 is 'write'"),
        ("register", [("0!", "write", [1])], "op 0 is 'write'"),
        ("multi-register", [("0!", "txn", [["append", "x", 1]])], "op 0 is 'txn'"),
        ("kv-string", [("0!", "put", ["a", None])], "op 0 is 'put'"),
        ("kv-string", [("0!", "get", ["a", None]), ("0+", "get", ["b", ""])], "op 1 is 'get'"),
        ("kv-string", [("0!", "get", ["a", None]), ("0+", "get", ["a", None])], "op 1 is 'get'"),
        ("catalog", [*table("get", "t", "nf"), ("0!", "fly", None)], "op 2 is 'fly'"),
        ("catalog", table("get", "t", "maybe"), "op 1 is 'get'"),
        ("catalog", table("get", "t", "ok", ended="-"), "op 1 is 'get'"),
        ("catalog", table("get", "t", "maybe", ended="-"), "op 1 is 'get'"),
        ("catalog", table("get", 1, "nf"), "op 0 is 'get'"),
        ("catalog", table("create", "t", "ok", ident=None), "op 0 is 'create'"),
        ("catalog", table("create", "t", "ok", ident=True), "op 0 is 'create'"),
        ("catalog", table("create", "t", "ok", payload=[1]), "op 0 is 'create'"),
        ("catalog", table("get", "t", "ok", version="1"), "op 1 is 'get'"),
        ("catalog", table("get", "t", "ok", seen=None), "op 1 is 'get'"),
        ("catalog", table("list", "", "ok", listing=[["t"]]), "op 1 is 'list'"),
        ("catalog", table("list", "", "ok", listing=["t1"]), "op 1 is 'list'"),
        ("catalog", table("list", "", "ok", listing=[["t", "1"]]), "op 1 is 'list'"),
        ("catalog", table("list", "", "ok", listing=[[1, 1]]), "op 1 is 'list'"),
        ("catalog", [table("get", "t", "nf")[0], ("0+", "get", None)], "op 1 is 'get'"),
        ("catalog", [table("get", "t", "nf")[0], ("0+", "get", {"result": "nf"})], "op 1 is 'get'"),
        ("catalog", [table("get", "t", "nf")[0], table("drop", "t", "nf")[1]], "op 1 is 'drop'"),
        ("list-append", [("0!", "txn", [["pop", "x", 1]])], "op 0"),
        ("rw-register", [("0!", "read", 1)], "op 0"),
    ],
)
def test_values_outside_the_vocabulary_are_refused_before_the_check(model, lines, words):
    with pytest.raises(HistoryError, match=words):
        judge(model, lines)


@pytest.mark.parametrize("lines", [WROTE_1, read(None), []])
def test_a_history_without_observations_says_so(lines):
    result, _ = judge("cas-register", lines)
    assert result.details["rule"] == models.NOTHING_OBSERVED
    assert "proof" not in result.details
    assert judge("cas-register", [*lines, *read(5)])[0].verdict is INVALID


def test_a_failure_that_saw_something_is_more_than_nothing():
    lines = [("0!", "cas", [3, 2]), ("0-", "cas", [3, 2])]
    assert judge("cas-register", lines)[0].reason == models.NOTHING_HAPPENED
    result, _ = judge("etcd-cas-register", lines)
    assert (result.verdict, result.details["looked"]) == (VALID, {"answers": 1})
    assert result.reason == "1 operation (0 of unknown outcome) is linearizable"


def test_states_follow_the_order_step_by_step():
    result, counterexample = judge("cas-register", [*WROTE_1, ("0!", "cas", [1, 2]), *read(5)])
    assert result.verdict is INVALID
    assert counterexample.failing == 3
    assert [(order.steps, order.states) for order in counterexample.orders] == [
        ((0,), ("the register holds 1",)),
        ((0, 2), ("the register holds 1", "the register holds 2")),
    ]
    assert counterexample.labels[2] == "cas 1 -> 2 (unknown)"


def test_an_order_of_revisions_that_proves_nothing_is_a_crash(monkeypatch):
    lines = [
        ("0!", "create", {"name": "a", "nonce": "n", "columns": []}),
        ("0+", "create", {"result": "ok", "table_id": "T1", "revision": 1}),
        ("0!", "get", {"name": "a"}),
        ("0+", "get", {"result": "ok", "table_id": "T1", "revision": 1}),
    ]
    assert judge("catalog", lines)[0].verdict is VALID
    monkeypatch.setattr(revisions, "replay", lambda *_: (2, 0))
    result, _ = judge("catalog", lines)
    assert result.verdict is Verdict.UNKNOWN
    assert result.reason.startswith("the check crashed: its own certificate does not hold: ")


def test_a_search_that_lies_gives_no_verdict(monkeypatch):
    lie = CheckOutcome(result=Result.OK, reason="", witness=((0, 2),))
    monkeypatch.setattr(models, "check_operations", lambda *_, **__: lie)
    result, drawn = judge("cas-register", [*WROTE_1, *read(0)])
    assert (result.verdict, drawn) == (UNKNOWN, None)
    assert result.reason.startswith(f"{models.BROKEN} for the verdict Ok: operation 2 is not legal")


def test_every_bundled_model_describes_itself():
    names = [*model_names("model"), *model_names("elle")]
    assert len(names) == 35
    assert all(load_model(name).name == name and load_model(name).doc for name in names)
    with pytest.raises(UsageError, match="judges runs only"):
        load_model("liveness")


@pytest.mark.parametrize(("model", "write"), [("list-append", "append"), ("rw-register", "w")])
def test_transactions_are_put_into_columns_once(model, write, monkeypatch):
    made = []

    def counted(self, *arguments, build=_Builder.finish):
        made.append(self)
        return build(self, *arguments)

    monkeypatch.setattr(_Builder, "finish", counted)
    value = [[write, "x", 1]]
    result, _ = judge(model, [("0!", "txn", value), ("0+", "txn", value)])
    assert result.details["statistics"]["transactions"] == 1
    assert len(made) == 1


@pytest.mark.parametrize(
    ("model", "lines"),
    [
        ("cas-register", [*WROTE_1, *read(0)]),
        ("list-append", [("0!", "txn", [["r", "x", None]]), ("0+", "txn", [["r", "x", [7]]])]),
    ],
)
def test_a_model_judges_a_run_as_a_checker(model, lines):
    plugin = load_plugin("checkers", model)
    result = plugin.check(History(written(*lines)), imported_case(model), time_limit_s=300)
    assert result == judge(model, lines)[0]
