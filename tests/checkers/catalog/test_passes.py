"""The checker's quick passes over a catalog history agree with the full search."""

import random
import re
from collections.abc import Callable
from operator import methodcaller as do
from typing import Any

import pytest

from checkers.catalog import linearizable
from checkers.catalog.history import catalog_history
from checkers.catalog.linearizable import CatalogLinearizable
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.models.views import Tenancy, TenancyInput
from checkers.catalog.passes import Contradiction, contradictions, refutation, refute
from checkers.linearizability import (
    CheckOutcome,
    Limits,
    Operation,
    Projection,
    Result,
    check_operations,
)
from checkers.linearizability.proof import Certificate, certify_core
from checkers.linearizability.verify import CertificateError
from harness.ops import History, OpType, Verdict
from tests.checkers.catalog.catalogs import oracle, random_history, spoil
from tests.checkers.catalog.test_linearizable import small_history
from tests.support.histories import Writer

FAST = Limits(shrink_steps=0)
Step = Callable[[Writer], int]


def found_in(history: History) -> list[Contradiction]:
    return list(contradictions(catalog_history(history).operations))


def longer_history(seed: int) -> History:
    rng = random.Random(seed)
    history = random_history(
        seed,
        count=rng.randint(15, 60),
        names=rng.choice([1, 2, 4]),
        processes=rng.randint(2, 6),
        lost=rng.choice([0, 0.05, 0.2]),
        rest=rng.choice([0.2, 1, 4]),
    )
    return spoil(history, rng) if rng.random() < 0.8 else history


def assert_proven(found: Contradiction) -> None:
    proof = certify_core(found.part, found.core, minimal=False)
    assert proof.confirmed_by == "the verifier, by enumeration"
    assert {operation.id for operation in found.part.operations} == set(found.core)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "seeds"), [(small_history, range(500)), (longer_history, range(250))]
)
def test_passes_never_contradict_the_search(make, seeds):
    refuted = valid = 0
    for seed in seeds:
        converted = catalog_history(make(seed))
        if converted.conflicts:
            continue
        contradicted = list(contradictions(converted.operations))
        for each in contradicted:
            assert_proven(each)
        model = Catalog(converted.operations, converted.bindings)
        outcome = check_operations(model, converted.operations, limits=FAST, explained=False)
        if contradicted:
            assert outcome.result is Result.ILLEGAL, (seed, contradicted[0].rule)
            refuted += 1
        valid += outcome.result is Result.OK
    assert refuted > len(seeds) // 40
    assert valid > len(seeds) // 5


@pytest.mark.slow
def test_a_refutation_is_minimal_by_removal():
    checked = 0
    for seed in range(600):
        contradiction = refute(catalog_history(longer_history(seed)).operations)
        if contradiction is None:
            continue
        checked += 1
        assert len(contradiction.core) <= 6
        model = contradiction.part.model
        for dropped in contradiction.part.operations:
            rest = [o for o in contradiction.part.operations if o is not dropped]
            assert check_operations(model, rest).result is Result.OK, seed
    assert checked > 150


def test_views_are_projections_of_whatever_the_oracle_allows():
    seen = 0
    for seed in range(400):
        history = small_history(seed)
        if oracle(history):
            seen += 1
            assert not found_in(history), seed
    assert seen > 100


# --- one history for each pass ----------------------------------------------------------------


def altered(h: Writer, process: int, name: str, ident: str, version: int, *steps: list[str]) -> int:
    call = {"name": name, "nonce": f"a{version}", "steps": list(steps or [["add", f"c{version}"]])}
    return h.ok(process, "alter", call, {"table_id": ident, "schema_version": version})


def renamed(h: Writer, process: int, name: str, new: str, ident: str, version: int) -> int:
    call = {"name": name, "new_name": new, "nonce": f"r{version}"}
    return h.ok(process, "rename", call, {"table_id": ident, "schema_version": version})


def located(h: Writer, process: int, name: str, ident: str, version: int) -> int:
    answer = {"table_id": ident, "schema_version": version, "tablets": []}
    return h.ok(process, "locate", {"name": name}, answer)


def listed(h: Writer, process: int, *tables: list[object]) -> int:
    return h.ok(process, "list", {}, {"tables": list(tables)})


def refuted(h: Writer) -> Contradiction:
    contradiction = refute(catalog_history(h.history).operations)
    assert contradiction is not None
    return contradiction


def assert_refuted(h: Writer, core: set[int], rule: str) -> None:
    contradiction = refuted(h)
    assert set(contradiction.core) == core
    assert rule in contradiction.rule
    assert_proven(contradiction)
    result = CatalogLinearizable().check(h.history, None, time_limit_s=300)
    assert result.verdict is Verdict.INVALID
    assert result.operations == contradiction.core
    assert len(result.explanation) == len(core) + 1
    assert rule in re.sub(r"'\w+' \(id (\w+)\)", r"\1", result.explanation[-1])
    assert result.details["proof"]["minimal"]


CREATED = do("create", 0, "b", "T1")


def alter(process: int, version: int, *steps: list[str]) -> Step:
    return lambda h: altered(h, process, "b", "T1", version, *steps)


def get(version: int = 0, **shown: Any) -> Step:
    return do("get", 1, "b", "T1", version, **shown)


def delete(process: int) -> Step:
    return do("delete", process, "b", "T1")


def locate(process: int, version: int) -> Step:
    return lambda h: located(h, process, "b", "T1", version)


MADE = {"name": "b", "columns": ["a"]}
ASKED = do("call", 1, "locate", {"name": "b"})


def answered(ident: str, version: int = 0) -> Step:
    return do("ret", 1, OpType.OK, {"result": "ok", "table_id": ident, "schema_version": version})


@pytest.mark.parametrize(
    ("rule", "steps", "core"),
    [
        ("cannot go back from version 1 to version 0", [CREATED, alter(0, 1), get()], {1, 2}),
        (
            "was at version 1 before the change to version 1",
            [CREATED, locate(1, 1), alter(0, 1)],
            {1, 2},
        ),
        ("was at version 0 before it was created", [locate(1, 0), CREATED], {0, 1}),
        ("cannot have been given version 1 twice", [CREATED, alter(0, 1), alter(1, 1)], {1, 2}),
        ("cannot have been deleted twice", [CREATED, delete(0), delete(1)], {1, 2}),
        (
            "was deleted and cannot come back",
            [CREATED, delete(0), lambda h: listed(h, 1, ["b", "T1", 0])],
            {1, 2},
        ),
        ("version 0 of table T1 has one list of columns", [CREATED, get(columns=["z"])], {0, 1}),
        (
            "the columns of version 1 of table T1 follow",
            [CREATED, alter(0, 1, ["add", "c"]), get(1, columns=["a", "d"])],
            {0, 1, 2},
        ),
        (
            "version 1 of table T1 cannot follow",
            [CREATED, alter(0, 1, ["drop", "nothing"])],
            {0, 1},
        ),
        ("version 1 of table T1 was not made yet", [CREATED, get(applied_schema_version=1)], {1}),
        (
            "was deleted at version 0 and never had a higher version",
            [CREATED, ASKED, delete(0), answered("T1", 1)],
            {1, 2},
        ),
        (
            "the list does not show it",
            [
                do("create", 0, "a", "T1"),
                do("create", 0, "b", "T2"),
                lambda h: listed(h, 1, ["a", "T1", 0]),
                do("delete", 0, "b", "T2"),
            ],
            {1, 2, 3},
        ),
        # Each table is seen both before and after the other, so neither can have been dropped to
        # make room for the other.
        (
            "'b' cannot be two tables at one time",
            [
                *(do("lost", 7 + n, "create", MADE | {"nonce": f"n-T{n}"}) for n in (1, 2)),
                *[ASKED, locate(0, 0), answered("T2")] * 2,
            ],
            {2, 3, 5, 6},
        ),
    ],
)
def test_a_pass_refutes_by_few_operations(rule, steps, core):
    h = Writer()
    indices = [step(h) for step in steps]
    assert_refuted(h, {indices[place] for place in core}, rule)


def test_a_list_that_was_refused_shows_nothing_to_the_passes():
    h = Writer()
    create = h.create(0, "a", "T1")
    refused = h.fail(1, "list", {}, "not-found")
    h.delete(0, "a", "T1")
    assert found_in(h.history) == []
    result = CatalogLinearizable().check(h.history, None, time_limit_s=60)
    assert result.verdict is Verdict.INVALID
    assert set(result.operations) == {create, refused}


def test_a_name_that_was_missing_in_the_middle():
    h = Writer()
    h.create(0, "b", "T1")
    before = located(h, 0, "b", "T1", 0)
    missed = h.get(1, "b", None)
    after = located(h, 0, "b", "T1", 0)
    contradiction = refuted(h)
    assert contradiction.core[0] == missed
    assert set(contradiction.core) <= {0, before, missed, after}
    assert_refuted(h, set(contradiction.core), "'b' was table T1 before and after without a break")


def test_an_alter_carries_a_tenant_along():
    h = Writer()
    h.lost(9, "create", {"name": "b", "nonce": "n-T1", "columns": ["a"]})
    before = located(h, 0, "b", "T1", 0)
    h.call(0, "alter", {"name": "b", "nonce": "x", "steps": [["add", "c"]]})
    missed = h.get(1, "b", None)
    h.ret(0, OpType.OK, {"result": "ok", "table_id": "T1", "schema_version": 1})
    after = located(h, 0, "b", "T1", 1)
    change = missed - 1
    contradiction = refuted(h)
    assert set(contradiction.core) == {before, change, missed, after}
    assert_proven(contradiction)


def test_a_tenancy_that_goes_back_is_left_to_the_versions():
    h = Writer()
    h.lost(9, "create", {"name": "b", "nonce": "n-T1", "columns": ["a"]})
    h.call(2, "alter", {"name": "b", "nonce": "x", "steps": [["add", "c"]]})
    located(h, 0, "b", "T1", 1)
    h.get(1, "b", None)
    located(h, 0, "b", "T1", 0)
    h.ret(2, OpType.OK, {"result": "ok", "table_id": "T1", "schema_version": 1})
    found = found_in(h.history)
    assert any("cannot go back from version 1 to version 0" in each.rule for each in found)
    for each in found:
        assert_proven(each)


def test_a_tenant_moves_in_only_once():
    tenant = ("T1", 0)
    for f, legal in (("at", True), ("enter", False)):
        said = [
            Operation(0, TenancyInput("at", tenant), 0, True, 1),
            Operation(0, TenancyInput(f, tenant), 2, True, 3),
        ]
        assert (check_operations(Tenancy(), said).result is Result.OK) is legal


def test_a_rename_ends_a_tenancy():
    h = Writer()
    h.create(0, "b", "T1")
    renamed(h, 0, "b", "c", "T1", 1)
    h.get(1, "b", None)
    renamed(h, 0, "c", "b", "T1", 2)
    h.get(1, "b", "T1", 2)
    assert not found_in(h.history)
    assert CatalogLinearizable().check(h.history, None, time_limit_s=300).verdict is Verdict.VALID


def test_one_version_under_two_names():
    h = Writer()
    h.create(0, "b", "T1")
    h.call(0, "locate", {"name": "b"})
    other = located(h, 1, "c", "T1", 0)
    h.ret(0, OpType.OK, {"result": "ok", "table_id": "T1", "schema_version": 0})
    (found,) = (f for f in found_in(h.history) if "has one name" in f.rule)
    assert set(found.core) == {0, other}
    assert_proven(found)


def test_ids_and_nonces_in_conflict_are_proven():
    h = Writer()
    h.create(1, "b", "T1")
    h.get(2, "b", "T9", comment="n-T1")
    result = CatalogLinearizable().check(h.history, None, time_limit_s=300)
    assert result.verdict is Verdict.INVALID
    assert result.details["proof"] == {
        "core": [0, 2],
        "minimal": True,
        "part": "ids and nonces",
        "confirmed_by": "the verifier, by enumeration",
    }


def test_a_pass_that_lies_crashes_the_checker():
    h = Writer()
    h.create(0, "b", "T1")
    h.delete(0, "b", "T1")
    seen = h.get(1, "b", "T1")
    contradiction = refuted(h)
    honest = tuple(
        Operation(o.client_id, o.input, 0, o.output, o.return_time, o.id) if o.id == seen else o
        for o in contradiction.part.operations
    )
    part = type(contradiction.part)(contradiction.part.name, contradiction.part.model, honest)
    with pytest.raises(CertificateError, match="has a legal order"):
        certify_core(part, contradiction.core, minimal=True)


def test_unconfirmed_findings_of_a_pass_are_left_to_the_search(monkeypatch):
    h = Writer()
    h.create(0, "b", "T1")
    h.delete(0, "b", "T1")
    h.get(1, "b", "T1")
    monkeypatch.setattr(linearizable, "certify_core", unconfirmed)
    result = CatalogLinearizable().check(h.history, None, time_limit_s=300)
    assert result.verdict is Verdict.INVALID
    assert "search" in result.details["decided_by"]
    assert result.details["proof"]["confirmed_by"]


def unconfirmed(part: Projection[Any, Any, Any], *_: object, **__: object) -> Certificate:
    return Certificate(verdict=Result.ILLEGAL, part=part.name)


def test_a_long_zone_is_cut_down_in_few_checks(monkeypatch):
    h = Writer()
    h.create(0, "b", "T1")
    for version in range(1, 301):
        altered(h, 0, "b", "T1", version)
        if version == 150:
            gone = h.get(1, "b", None)
    asked: list[bool] = []

    def counted(*args: Any, explained: bool = True, **options: Any) -> CheckOutcome:
        asked.append(explained)
        return check_operations(*args, explained=explained, **options)

    monkeypatch.setattr(refutation, "check_operations", counted)
    contradiction = refuted(h)
    assert contradiction.core[0] == gone
    assert len(contradiction.core) == 3
    assert len(asked) < 60
    assert not any(asked)  # no explanation is built: that would take a hundred times longer


def test_the_earliest_contradiction_is_reported():
    h = Writer()
    h.create(0, "b", "T1")
    altered(h, 0, "b", "T1", 1)
    first = h.get(1, "b", "T1", 0)
    h.delete(0, "b", "T1", 1)
    h.get(1, "b", "T1", 1, columns=["a", "c1"])
    contradiction = refuted(h)
    assert contradiction.core[0] == first


@pytest.mark.slow
def test_ten_thousand_operations_take_one_pass():
    history = random_history(3, count=10_000, names=20, processes=16, lost=0.01)
    operations = catalog_history(history).operations
    assert refute(operations) is None
