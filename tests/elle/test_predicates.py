"""Each anomaly that needs predicate reads, in a minimal history and just beyond its boundary.

The tests also cover anomalies without a cycle, inferred versions, and invalid histories.
"""

from pathlib import Path
from typing import Any

import pytest

from checkers.elle import ElleResult, Transaction, check_closed_predicate
from checkers.elle import check as check_module
from checkers.elle.infer.predicate import infer_predicates
from checkers.elle.infer.predicate_columns import predicate_columns
from checkers.elle.models import (
    EXISTENCE_MODELS,
    MODELS,
    boundary,
    canonical,
    existence_type,
    impossible_models,
)
from harness.errors import HistoryError, UsageError
from harness.formats.edn.jepsen import load_edn
from harness.ops import ModelSettings, OpType, Verdict
from harness.registry import load_plugin
from tests.elle.predicates import at_once, timed, without

SERIAL = "strong-session-serializable"
STRICT = "strict-serializable"

# anomaly -> (history, universe, requested model, `not`)
CASES: dict[str, tuple[list[Transaction], dict[str, int], str, tuple[str, ...]]] = {
    "G-single": (at_once("i x 1; i y 2", "rp true {x 1}"), {}, STRICT, ("consistent-view",)),
    "G-nonadjacent": (
        at_once("r y 2; rp = 1 {}", "i x 1", "r x 1; rp = 2 {}", "i y 2"),
        {},
        STRICT,
        ("snapshot-isolation",),
    ),
    "G2": (at_once("rp = 1 {}; i y 2", "rp = 2 {}; i x 1"), {}, STRICT, ("serializable",)),
    "G-single-process": (
        timed(("i x 1", 0, 1, 0), ("rp true {}", 2, 3, 0)),
        {},
        SERIAL,
        ("strong-session-snapshot-isolation",),
    ),
    "G-nonadjacent-process": (
        timed(
            ("i y 2", 0, 4, 0), ("i x 1", 1, 5, 1), ("rp = 1 {}", 6, 8, 0), ("rp = 2 {}", 7, 9, 1)
        ),
        {},
        SERIAL,
        ("strong-session-snapshot-isolation",),
    ),
    "G2-process": (
        timed(("i y 2", 0, 1, 0), ("rp = 1 {}", 2, 3, 0), ("rp = 2 {}; i x 1", 0, 9, 1)),
        {},
        SERIAL,
        ("strong-session-serializable",),
    ),
    "G-nonadjacent-realtime": (
        timed(
            ("i x 1", 0, 1, 0),
            ("rp = 2 {}", 2, 9, 1),
            ("i y 2", 0, 9, 2),
            ("r y 2; rp = 1 {}", 0, 9, 3),
        ),
        {},
        STRICT,
        ("strong-snapshot-isolation",),
    ),
    "G-single-realtime": (
        timed(("i x 1", 0, 1, 0), ("rp true {}", 2, 3, 1)),
        {},
        STRICT,
        ("strong-snapshot-isolation",),
    ),
    "G2-realtime": (
        timed(("i y 2", 0, 1, 0), ("rp = 1 {}", 2, 3, 2), ("rp = 2 {}; i x 1", 0, 9, 1)),
        {},
        STRICT,
        ("strong-serializable",),
    ),
    "predicate-read-miss": (at_once("rp true {}"), {"x": 1}, STRICT, ("serializable",)),
}


def check(
    history: list[Transaction], universe: dict[str, int], model: str = STRICT, **options: Any
) -> ElleResult:
    return check_closed_predicate(
        history, universe=universe, consistency_models=(model,), **options
    )


def types(history: list[Transaction], universe: dict[str, int] | None = None) -> set[str]:
    return set(check(history, universe or {}).anomalies) - {"empty-transaction-graph"}


@pytest.mark.parametrize("name", sorted(CASES))
def test_each_has_a_minimal_history_that_yields_exactly_it(name):
    history, universe, model, not_ = CASES[name]
    result = check(history, universe, model)
    found = set(result.anomalies) - {"empty-transaction-graph"}

    assert (found, result.not_, result.verdict) == ({name}, not_, Verdict.INVALID)
    for number, txn in enumerate(history):
        assert name not in check(without(history, number), universe, model).anomalies
        for place in range(len(txn.value)):
            assert name not in check(without(history, number, place), universe, model).anomalies


@pytest.mark.parametrize("name", sorted(CASES))
def test_exactly_the_models_beyond_the_boundary_fall(name):
    history, universe, _, _ = CASES[name]
    strict, session = check(history, universe), check(history, universe, SERIAL)
    fallen = impossible_models({*strict.anomalies, *session.anomalies})

    assert fallen
    for model in sorted(MODELS):
        verdict = check(history, universe, model).verdict
        assert (verdict is Verdict.INVALID) is (canonical(model) in fallen), model
    edge = boundary(strict.anomalies)
    assert (edge.not_, edge.also_not) == (strict.not_, strict.also_not)


# model -> (anomaly whose history refutes it and no weaker model, model to check)
BY_EXISTENCE = {
    "PL-3": ("G2", STRICT),
    "PL-SI": ("G-nonadjacent", STRICT),
    "strong-session-snapshot-isolation": ("G-nonadjacent-process", SERIAL),
    "strong-session-serializable": ("G2-process", SERIAL),
    "strong-snapshot-isolation": ("G-nonadjacent-realtime", STRICT),
    "PL-SS": ("G2-realtime", STRICT),
}


@pytest.mark.parametrize("model", BY_EXISTENCE)
def test_existence_alone_refutes_the_same(model, monkeypatch):
    name, asked = BY_EXISTENCE[model]
    history, universe, _, not_ = CASES[name]
    monkeypatch.setattr(check_module, "MEMBERS_SEARCHED_MAX", 1)
    monkeypatch.setattr(check_module, "pairs", lambda *_: [])
    result = check(history, universe, asked)

    assert set(result.anomalies) == {existence_type(model), "cycle-search-timeout"}
    assert result.not_ == not_
    assert existence_type(model) in {existence_type(each) for each in EXISTENCE_MODELS}


def test_a_search_without_steps_still_shows_a_cycle():
    history, universe, _, _ = CASES["G2"]
    result = check(history, universe, search_steps=0)

    assert set(result.anomalies) == {"G2", "cycle-search-timeout"}
    assert result.not_ == ("serializable",)


@pytest.mark.parametrize(
    ("history", "universe", "expected"),
    [
        # the predicate read shows some rows, so it must have selected other rows that it does not
        # show
        (at_once("i x 1; rp true {x 1 y 2}", "i y 2; rp true {x 1 y 2}"), {}, {"G1c"}),
        (at_once("d x; rp true {}", "d y; rp true {}"), {"x": 0, "y": 0}, {"G1c"}),
        (at_once("rp = 0 {x 0}; w x 1", "rp = 0 {y 0}; w y 1"), {"x": 0, "y": 0}, {"G1c"}),
        (at_once("rp = 1 {}; w x 1", "rp = 1 {}; w y 1"), {"x": 0, "y": 0}, {"G2"}),
        (at_once("d v; w w 8; d x", "rp true {w 0 x 0}"), {"v": 0, "w": 0, "x": 0}, {"G-single"}),
        # The read cannot have selected a row that its own transaction writes later.
        (at_once("w x 2; w y 2", "rp = 2 {y 2}; w x 5"), {"x": 0, "y": 0}, {"G-single"}),
        (at_once("rp true {}; d x; w x 2"), {"x": 1}, {"predicate-read-miss"}),
        # A write is irrelevant if neither it nor the version that it replaced matches.
        (at_once("w x 2; i y 1", "rp = 1 {y 1}"), {"x": 0}, set()),
        # If the predicate read selected any other version, its result would differ.
        (at_once("w x 1; w y 1", "rp true {x 0 y 1}"), {"x": 0, "y": 0}, {"G-single"}),
        # The item read misses a version that the predicate read selected.
        (at_once("w x 2", "rp mod 2 0 {x 2}; r x 1"), {"x": 1}, {"G-single-item"}),
        (at_once("r x nil; i y 1", "r y nil; i x 1"), {}, {"G2-item"}),
        (at_once("r x 0; w x 1", "r x 0; w x 2"), {"x": 0}, {"lost-update", "G2-item"}),
        (at_once("fail:i x 1", "r x 1"), {}, {"G1a"}),
        (at_once("fail:i x 1", "rp true {x 1}"), {}, {"G1a"}),
        (at_once("fail:d x", "rp true {}"), {"x": 1}, {"G1a"}),
        (at_once("d x; w x 2", "rp true {}"), {"x": 1}, {"G1b"}),
        (at_once("i x 1; w x 2", "rp true {x 1}"), {}, {"G1b"}),
        (at_once("rp true {x 7}"), {}, {"garbage-read"}),
        (at_once("r x nil"), {"x": 1}, {"garbage-read"}),
        (at_once("rp = 1 {x 2}"), {"x": 2}, {"predicate-read-miss"}),
        (at_once("rp true {x 1}; i x 1"), {}, {"future-read"}),
        (at_once("i x 1; rp true {}"), {}, {"internal"}),
        (at_once("d x; rp true {x 1}"), {"x": 1}, {"internal"}),
        (at_once("r x nil; r x 1", "i x 1"), {}, {"internal"}),
        # No anomaly.
        (at_once("i x 1", "rp true {x 1}", "rp true {}"), {}, set()),
        (at_once("rp = 1 {}; w x 1; rp = 1 {x 1}"), {"x": 0}, set()),
        (at_once("info:i x 1; i y 1", "rp true {x 1}"), {}, {"G-single"}),
        (at_once("info:i x 1", "rp true {}", "rp true {}"), {}, set()),
        # It is unknown whether the predicate selected a deleted or an unborn version.
        (at_once("i x 1; i y 1", "d x; d y", "rp true {x 1}"), {}, set()),
        # Two writes of a key have no order, even if real time orders them.
        (timed(("w x 1", 0, 1, 0), ("w x 2", 2, 3, 0), ("r x 1", 4, 5, 0)), {"x": 0}, set()),
    ],
)  # fmt: skip
def test_inferred_dependencies(history, universe, expected):
    assert types(history, universe) == expected


def test_the_cycle_is_explained_in_words():
    case = check(*CASES["G-single"][:2]).anomalies["G-single"][0]

    assert list(case.text) == [
        "T1 is op 0: insert x 1; insert y 2.",
        "T2 is op 1: rp true {x 1}.",
        "T1 < T2, because T2's predicate read rp true {x 1} selected key x as T1 left it: 1.",
        (
            "However, T2 < T1, because T2's predicate read rp true {x 1} selected key y as it was "
            "at first, absent; T1 made it 2, which changes what that read shows: a contradiction."
        ),
    ]
    assert case.drawing is not None
    assert "rwp on y" in case.drawing


def test_every_edge_has_a_reason_even_where_values_hold_braces():
    history = [
        Transaction([["insert", "{x}", "{0}"]], 0, 9, OpType.OK, 0),
        Transaction([["rp", "true", {"{x}": "{0}"}], ["r", "{x}", None]], 1, 10, OpType.OK, 1),
    ]
    columns = predicate_columns(history)
    inference = infer_predicates(columns)

    graph = inference.builder.build(realtime=False)
    assert len(graph.source) == 2
    for source, target, relation in zip(graph.source, graph.target, graph.relation, strict=True):
        reason = inference.explain(int(source), int(target), int(relation))
        assert "{x}" in reason.tell("A", "B")


@pytest.mark.parametrize(
    ("txns", "universe", "text"),
    [
        (["i x 1", "w x 1"], {}, "1 is written to key x twice, by op 0 and by op 1"),
        (["w x 0"], {"x": 0}, "0 is written to key x twice, in the universe and by op 0"),
    ],
)
def test_indistinguishable_writes_are_unknown(txns, universe, text):
    result = check(at_once(*txns), universe)

    assert result.verdict is Verdict.UNKNOWN
    assert text in result.reason


def test_too_much_work_is_unknown(monkeypatch):
    monkeypatch.setattr("checkers.elle.infer.predicate.SELECTIONS_MAX", 3)
    result = check(at_once("i x 1", "i y 1", "rp true {}"), {})

    assert (result.verdict, "more than 3 versions" in result.reason) == (Verdict.UNKNOWN, True)


HOSTILE = {
    "[:rp [:< 3] {}]": "reads by the predicate [':<', 3]; known are true, [= value] and [mod",
    "[:rp [:= nil] {}]": "reads by the predicate",
    "[:rp [:mod 0 0] {}]": "a modulus above 0",
    "[:rp [:mod 2] {}]": "reads by the predicate",
    "[:rp [] {}]": "reads by the predicate",
    "[:rp false {}]": "reads by the predicate",
    "[:rp :true [[:x 1]]]": "holds [[':x', 1]], not a map",
    "[:rp :true nil]": "not a map",
    "[:rp :true {:x nil}]": "shows 'x' with nil",
    "[:rp :true]": "this check knows [insert k v]",
    "[:w :x nil]": "writes nil to ':x'",
    "[:insert :x]": "this check knows",
    "[:delete :x 1]": "this check knows",
    "[:append :x 1]": "this check knows",
    "[:r [1] 1]": "names the key [1]",
    "[:r true 1]": "names the key True",
    "[3 :x 1]": "must be [f, ...]",
    "[]": "must be [f, ...]",
    "7": "must be [f, ...]",
    '[:r 5 nil] [:r "5" nil]': "of another type",
    '[:w :x "a"] [:rp [:mod 2 0] {}]': "all integers",
}


def _edn(path: Path, *lines: str) -> Path:
    file = path / "history.edn"
    file.write_text("\n".join(f"{{{line}}}" for line in lines))
    return file


def _txn(value: str, index: int = 2) -> tuple[str, str]:
    body = f":process 0, :f :txn, :value {value}"
    return (f":index {index}, :type :invoke, {body}", f":index {index + 1}, :type :ok, {body}")


INIT = (
    ":index 0, :process 0, :type :invoke, :f :init, :value {5 0}",
    ":index 1, :process 0, :type :ok, :f :init, :value {5 0}",
)


@pytest.mark.parametrize("mop", HOSTILE)
def test_invalid_transactions_are_refused_with_their_op(mop, tmp_path):
    history = load_edn(_edn(tmp_path, *INIT, *_txn(f"[{mop}]")))
    with pytest.raises(HistoryError, match=r"^op 2\b") as caught:
        check_closed_predicate(history)

    assert HOSTILE[mop] in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ((*_txn("[]", 0), INIT[0].replace("0,", "2,", 1), INIT[1].replace("1,", "3,", 1)),
         "op 2 is an init after op 0"),
        ((INIT[0],), "op 0 is an init that is not ok"),
        ((INIT[0], INIT[1].replace(":ok", ":fail")), "op 0 is an init that is not ok"),
        ((INIT[0], INIT[1].replace("{5 0}", "[5 0]")), "op 0: init holds [5, 0], not a map"),
        ((INIT[0], ":index 1, :process 1, :type :invoke, :f :txn, :value []",
          INIT[1].replace("1,", "2,", 1)), "op 1 invokes a transaction before init was over"),
        ((":index 0, :process 0, :type :invoke, :f :read, :value 1",), "op 0 has the value 1"),
        (_txn("5", 0), "op 0 has the value 5"),
    ],
)  # fmt: skip
def test_a_universe_is_declared_once_and_first(lines, text, tmp_path):
    with pytest.raises(HistoryError) as caught:
        check_closed_predicate(load_edn(_edn(tmp_path, *lines)))

    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("colon", ["", ":"])
def test_keys_are_the_same_in_maps_and_outside(colon, tmp_path):
    value = f"[[:rp [:mod 2 0] {{5 0}}] [:rp {colon or ':'}true {{5 0}}] [:r 5 0]]"
    history = load_edn(_edn(tmp_path, *INIT, *_txn(value)))

    assert not set(check_closed_predicate(history).anomalies) - {"empty-transaction-graph"}


def test_the_history_model_judges_an_edn_history(tmp_path):
    skew = "[[:rp [:= 1] {}] [:w 5 2]]", "[[:rp [:= 2] {}] [:insert :y 1]]"
    both = [(f":process {n}, :f :txn, :value {value}", n) for n, value in enumerate(skew)]
    lines = [
        *INIT,
        *(f":index {2 + n}, :type :invoke, {body}" for body, n in both),
        *(f":index {4 + n}, :type :ok, {body}" for body, n in both),
    ]
    history = load_edn(_edn(tmp_path, *lines))
    model: Any = load_plugin("checkers", "closed-predicate")
    prepared = model.prepare(history, ModelSettings())
    result, picture = prepared.check(time_limit_s=300, draw=True)

    assert (prepared.operations, result.verdict) == (2, Verdict.INVALID)
    assert ([*result.details["anomalies"]], result.details["not"]) == (["G2"], ["serializable"])
    assert picture is not None
    assert picture.core == (2, 3)
    with pytest.raises(UsageError, match="--wfr-keys"):
        model.prepare(history, ModelSettings(wfr_keys=True))
