"""Every anomaly in `ANOMALIES` has a history that shows it, and models that it rules out.

Some names in the list are never reported (`NEVER`). Anomalies that need predicate reads are tested
in `test_predicates`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from checkers.elle import ElleResult, Transaction, check_list_append, check_rw_register
from checkers.elle.models import (
    ANOMALIES,
    CYCLE_TYPES,
    EXISTENCE_MODELS,
    MODELS,
    UNKNOWN_TYPES,
    boundary,
    canonical,
    existence_type,
    friendly,
    impossible_models,
    with_implied,
)
from harness.ops import Verdict
from tests.elle.histories import concurrent, sequence
from tests.elle.stores import LEVELS, as_registers, run
from tests.elle.test_anomalies import IN_SESSION, LISTS, REGISTERS
from tests.elle.test_predicates import CASES as BY_PREDICATES

SERIAL = ("strong-session-serializable",)

# anomalies that need predicate reads; a read of one list or register is not a predicate read
PREDICATES = {
    f"{name}{suffix}"
    for name in ("G-single", "G-nonadjacent", "G2")
    for suffix in ("", "-process", "-realtime")
} | {"predicate-read-miss"}
# Names for "one of these anomalies": the report names the specific anomaly, which refutes the
# model.
UNIONS = {"G1", "G1-process", "G1-realtime"}
# Upstream lists these names but never detects them; the report names a cycle, which is more
# precise.
NAMES_ONLY = {"G-MSR", "G-SI", "G-SIb", "GSI", "GSIa", "GSIb", "G-cursor", "G-monotonic"} | {
    *("G-update", "write-skew")
}
EXISTENCE = {existence_type(model) for model in EXISTENCE_MODELS}
NEVER = UNIONS | NAMES_ONLY

Check = tuple[list[Transaction], str, dict[str, Any]]


def _cases() -> Iterator[tuple[str, str, dict[str, Any], list[Transaction]]]:
    """Yield (name, checker, options, history) for the minimal histories in the tables."""
    for name, (history, *_) in LISTS.items():
        yield name, "list", {}, history
    for name, (history, *_) in IN_SESSION.items():
        yield name, "list", {"consistency_models": SERIAL}, history
    for name, (history, options, *_) in REGISTERS.items():
        yield name, "register", options, history


CASES = {f"{kind}/{name}": (kind, options, history) for name, kind, options, history in _cases()}
NAMES = {f"{kind}/{name}": name.split(",")[0] for name, kind, _, _ in _cases()}


def check(kind: str, history: list[Transaction], **options: Any) -> ElleResult:
    return (check_list_append if kind == "list" else check_rw_register)(history, **options)


def found_in(case: str) -> set[str]:
    kind, options, history = CASES[case]
    return set(check(kind, history, **options).anomalies)


def test_every_name_is_accounted_for():
    yielded = {name for case in CASES for name in found_in(case)}

    assert not yielded & (NEVER | PREDICATES | EXISTENCE)
    assert set(BY_PREDICATES) == PREDICATES
    told = yielded | PREDICATES | NEVER | EXISTENCE | {"cycle-search-timeout"}
    assert told == ANOMALIES | UNKNOWN_TYPES
    assert yielded >= CYCLE_TYPES - PREDICATES


def _without(history: list[Transaction], number: int) -> list[Transaction]:
    return [*history[:number], *history[number + 1 :]]


# Variants: the name is not an anomaly, or a smaller history shows the same anomaly.
VARIANTS = {
    *("list/G0, unobserved", "list/G1c, mixed", "list/dirty-update, around unknown"),
    *("list/internal, alone", "register/G-single-item, by commit order"),
    *(
        "register/cyclic-versions, linearizable keys",
        "list/internal",
        "list/garbage-read",
        "register/garbage-read",
    ),
    *("register/internal", "register/G0", "list/empty-transaction-graph"),
    *("list/G-single-item-realtime, observed", "list/G-single-item-process, observed"),
}


@pytest.mark.parametrize("case", sorted(set(CASES) - VARIANTS))
def test_the_history_is_minimal(case):
    kind, options, history = CASES[case]
    found = found_in(case)

    assert NAMES[case] in found
    for number, txn in enumerate(history):
        assert found != set(check(kind, _without(history, number), **options).anomalies)
        for place in range(len(txn.value)):
            less = replace(txn, value=[*txn.value[:place], *txn.value[place + 1 :]])
            smaller = [*history[:number], less, *history[number + 1 :]]
            assert found != set(check(kind, smaller, **options).anomalies), (number, place)


@pytest.mark.parametrize("case", sorted(CASES))
def test_exactly_the_models_beyond_the_boundary_fall(case):
    kind, options, history = CASES[case]
    asked = {key: value for key, value in options.items() if key != "consistency_models"}
    strict = check(kind, history, **asked)
    session = check(kind, history, **asked, consistency_models=SERIAL)
    fallen = impossible_models({*strict.anomalies, *session.anomalies})

    for model in sorted({canonical(model) for model in MODELS}):
        verdict = check(kind, history, **asked, consistency_models=(model,)).verdict
        assert (verdict is Verdict.INVALID) is (model in fallen), model
    for result in (strict, session):
        edge = boundary(result.anomalies)
        assert (edge.not_, edge.also_not) == (result.not_, result.also_not)


# model -> a history with a cycle that refutes it, but no weaker model
BY_EXISTENCE = {
    "PL-1": "list/G0",
    "PL-2": "list/G1c",
    "PL-SI": "list/G-single-item",
    "PL-2.99": "list/G2-item",
    "strong-session-PL-1": "list/G0-process",
    "strong-session-PL-2": "list/G1c-process",
    "strong-session-snapshot-isolation": "list/G-single-item-process",
    "strong-session-serializable": "list/G2-item-process",
    "strong-PL-1": "list/G0-realtime",
    "strong-PL-2": "list/G1c-realtime",
    "strong-snapshot-isolation": "list/G-single-item-realtime",
    "PL-SS": "list/G2-item-realtime",
}


@pytest.mark.parametrize("model", BY_EXISTENCE)
def test_a_cycle_not_found_in_time_is_reported_as_existing(model):
    kind, options, history = CASES[BY_EXISTENCE[model]]
    result = check(kind, history, **options, search_steps=0)

    assert result.verdict is Verdict.INVALID
    assert "cycle-search-timeout" in result.anomalies
    assert friendly(model) in (*result.not_, *result.also_not)
    told = EXISTENCE & set(result.anomalies)
    # The report omits the type if the cycle that it shows refutes the model, too.
    others = set(result.anomalies) - EXISTENCE
    assert (existence_type(model) in told) is (model not in impossible_models(others))


def test_the_model_that_only_predicates_refute_is_not_refuted_without_them():
    """PL-3-cycle-exists needs a cycle that repeatable read allows.

    Such a cycle passes through a predicate read.
    """
    assert set(EXISTENCE_MODELS) - set(BY_EXISTENCE) == {"PL-3"}
    for case in CASES:
        assert existence_type("PL-3") not in found_in(case)


@pytest.mark.parametrize("level", LEVELS)
def test_predicate_anomalies_are_not_claimed_without_predicates(level):
    for seed in range(8):
        history = run(level, seed)
        lists = check_list_append(history)
        registers = check_rw_register(as_registers(history), wfr_keys=True, linearizable_keys=True)
        for result in (lists, registers):
            assert not set(result.anomalies) & (NEVER | PREDICATES | {existence_type("PL-3")})


def test_write_skew_is_explained_as_a_cycle():
    history = concurrent("r x [], r y [], a x 1", "r x [], r y [], a y 1", "r x [1], r y [1]")
    result = check_list_append(history)

    assert set(result.anomalies) == {"G2-item"}
    assert result.not_ == ("repeatable-read",)
    # In the tables, lost-update implies write-skew, but not vice versa.
    assert "write-skew" in with_implied(["lost-update"])
    assert "lost-update" not in with_implied(["write-skew"])


def test_a_phantom_over_lists_is_one_over_items():
    """Here the read of a whole list is the read of one item, not a predicate read."""
    history = sequence("a x 1", "r x []")
    result = check_list_append(history)

    assert set(result.anomalies) == {"G-single-item-realtime"}
