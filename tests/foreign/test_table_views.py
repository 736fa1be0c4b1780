"""A linearizable history of a table catalog has linearizable views by name and by id.

A view that refutes a history has a small core.
"""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from checkers.catalog.history import catalog_history
from checkers.catalog.models import tables
from checkers.catalog.models.catalog import Catalog
from checkers.catalog.models.name import CatalogName
from checkers.catalog.models.types import Answer, Create, Rename
from checkers.catalog.models.views import Said
from checkers.foreign.catalogs import (
    TableAnswer,
    TableRequest,
    catalog_of_tables,
    table_answer,
    table_request,
)
from checkers.linearizability import (
    UNKNOWN,
    Model,
    Operation,
    Projection,
    Result,
    certify,
    check_operations,
)
from checkers.linearizability.core import relaxed
from checkers.linearizability.frontier import Frontier
from checkers.linearizability.problem import Problem
from checkers.linearizability.search import Status
from tests.checkers.catalog.test_linearizable import small_history
from tests.linearizability.random_histories import KINDS, catalog, simulate
from tests.linearizability.test_engine import wing_and_gong

Ops = list[Operation[Any, Any]]


def exhausted(problem: Problem) -> bool:
    """Whether there is a legal order; searches all orders."""
    status = Frontier(problem, configurations_max=10**5).run(10**6)
    assert status in {Status.FOUND, Status.EXHAUSTED}
    return status is Status.FOUND


@pytest.fixture
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "STRIDE", 2)


def kind_of(view: Projection[Any, Any, Any]) -> str:
    return "window" if " from " in view.name else view.name.partition(" ")[0]


def refuting(operations: Ops, kind: str = "") -> list[str]:
    """Return the names of the views, of one kind or of all, that refute the operations."""
    return [
        view.name
        for view in catalog_of_tables(operations).projections(operations)
        if kind in {"", kind_of(view)}
        and check_operations(view.model, view.operations).result is Result.ILLEGAL
    ]


def result_of(operations: Ops) -> Result:
    return check_operations(catalog_of_tables(operations), operations).result


ALL_KINDS = ("name", "tenants", "id", "window")


@pytest.mark.usefixtures("short_windows")
@pytest.mark.parametrize("name", ["catalog", "catalog, ids given twice"])
def test_a_view_is_linearizable_whenever_the_whole_is(name):
    valid = refuted = 0
    kinds: Counter[str] = Counter()
    for seed in range(350):
        rng = random.Random(seed)
        lost = rng.choice((0, 0.15, 0.4))
        total = rng.randint(3, 8) if seed % 2 else rng.randint(9, 24)
        operations = simulate(
            KINDS[name], rng, clients=3, total=total, lost=lost, lies=rng.randrange(3)
        )
        if total <= 8:
            whole = wing_and_gong(catalog_of_tables(operations), operations)
        else:
            whole = exhausted(Problem(catalog_of_tables(operations), operations))
        valid += whole
        found = False
        for view in catalog_of_tables(operations).projections(operations):
            if check_operations(view.model, view.operations).result is Result.ILLEGAL:
                assert not whole, (seed, view.name)
                kinds[kind_of(view)] += 1
                found = True
        refuted += found
    assert 100 < valid < 300
    assert refuted > 0.8 * (350 - valid)  # one name or id is enough for most contradictions
    assert min(kinds[kind] for kind in ALL_KINDS) >= (1 if "twice" in name else 2)


class Plain(Model[Any, Any, Any]):
    """A model that also keeps the operations that have nothing to do with the core."""

    def __init__(self, model: Model[Any, Any, Any]) -> None:
        self._model = model

    def init(self) -> Any:
        return self._model.init()

    def step(self, state: Any, input_: Any, output: Any, /) -> tuple[bool, Any]:
        return self._model.step(state, input_, output)

    def read_only(self, input_: Any, output: Any, /) -> bool:
        return self._model.read_only(input_, output)


def decided(model: Model[Any, Any, Any], operations: Ops, core: set[int]) -> bool:
    return exhausted(Problem(*relaxed(model, operations, core)))


def assert_blurring_changes_nothing(view: Projection[Any, Any, Any], rng: random.Random) -> int:
    known = [operation.id for operation in view.operations if not operation.is_unknown]
    if not known:
        return 0
    core = set(rng.sample(known, rng.randint(len(known) * 2 // 3, len(known)) or 1))
    operations = list(view.operations)
    legal = decided(view.model, operations, core)
    assert legal is decided(Plain(view.model), operations, core)
    return not legal


@pytest.mark.slow
@pytest.mark.usefixtures("short_windows")
def test_what_a_view_leaves_out_around_a_core_cannot_matter():
    illegal: Counter[str] = Counter()
    for seed in range(350):
        rng = random.Random(seed)
        total, lost = rng.randint(4, 30), rng.choice((0, 0.1))
        operations = simulate(
            KINDS["catalog"], rng, clients=3, total=total, lost=lost, lies=rng.randrange(4)
        )
        for view in catalog_of_tables(operations).projections(operations):
            illegal[kind_of(view)] += assert_blurring_changes_nothing(view, rng)
    assert min(illegal[kind] for kind in ALL_KINDS) >= 2
    refuted = 0
    for seed in range(150):
        converted = catalog_history(small_history(seed))
        model = Catalog(converted.operations, converted.bindings)
        for view in model.projections(converted.operations):
            refuted += assert_blurring_changes_nothing(view, random.Random(seed))
    assert refuted > 20


def done(
    number: int, op: str, call: int, end: int, name: str, *, to: str = "", **answer: Any
) -> Operation[Any, Any]:
    ident = answer.get("ident", 0)
    request = table_request(op, TableRequest(name, to, answer.get("payload", 0), ident))
    shown = TableAnswer(
        answer.get("result", "ok"),
        ident,
        answer.get("version", 0),
        answer.get("seen", 0),
        answer.get("listing", ()),
    )
    return Operation(number, request, call, table_answer(request, shown), end, number)


CREATE = done(0, "create", 0, 1, "a", ident=7, version=1, payload=5)
RENAME = done(1, "ren", 2, 3, "a", to="b", ident=7)
ALTER = done(2, "alter", 4, 5, "b", ident=7, version=2, payload=6)


@pytest.mark.parametrize(
    ("late", "view"),
    [
        (done(3, "get", 6, 7, "b", ident=7, version=1, seen=5), "id 7"),
        (done(3, "get", 6, 7, "b", ident=7, version=2, seen=9), "id 7"),
        (done(3, "get", 6, 7, "b", ident=8, version=2, seen=6), "name 'b'"),
        (done(3, "get", 6, 7, "b", ident=8, version=2, seen=6), "id 8"),
        (done(3, "list", 6, 7, "", listing=(("b", 8),)), "id 8"),
        (done(3, "get", 6, 7, "a", ident=7, version=2, seen=6), "name 'a'"),
        (done(3, "get", 6, 7, "b", result="nf"), "name 'b'"),
        (done(3, "create", 6, 7, "a", result="ex"), "name 'a'"),
        (done(3, "ren", 6, 7, "b", to="a", result="ex"), "name 'a'"),
        (done(3, "alter", 6, 7, "b", ident=7, version=2, payload=1), "id 7"),
        (done(3, "list", 6, 7, "", listing=(("a", 7),)), "name 'a'"),
        (done(3, "list", 6, 7, "", listing=()), "name 'b'"),
        (done(3, "list", 6, 7, "", listing=(("b", 8), ("b", 7))), "name 'b'"),
        (done(3, "list", 6, 7, "", listing=(("b", 7), ("b", 7))), "name 'b'"),
        (done(3, "create", 6, 7, "c", result="nf"), "name 'c'"),
    ],
)
def test_each_lie_is_seen_in_a_view(late, view):
    operations = [CREATE, RENAME, ALTER, late]
    names = refuting(operations)
    assert view in names


def test_what_is_called_when_a_window_ends_may_come_before_what_returns_then(monkeypatch):
    monkeypatch.setattr(tables, "STRIDE", 1)
    operations = [
        done(0, "create", 0, 1, "a", ident=7, version=1, payload=5),
        done(1, "get", 2, 5, "a", ident=7, version=2, seen=6),
        done(2, "alter", 5, 6, "a", ident=7, version=2, payload=6),
        done(3, "get", 7, 8, "a", ident=7, version=2, seen=6),
    ]
    assert wing_and_gong(catalog_of_tables(operations), operations)
    views = catalog_of_tables(operations).projections(operations)
    assert sum(kind_of(view) == "window" for view in views) > 1
    for view in views:
        assert check_operations(view.model, view.operations).result is Result.OK, view.name


def test_a_list_between_two_sights_must_show_the_id():
    hidden = done(3, "list", 6, 7, "", listing=())
    later = done(4, "get", 8, 9, "b", ident=7, version=2, seen=6)
    # The view of the name does not refute this: an operation of unknown outcome may have restored
    # the table.
    away = Operation(5, Rename("b", "c"), 5, UNKNOWN, None, 5)
    back = Operation(6, Rename("c", "b"), 5, UNKNOWN, None, 6)
    operations = [CREATE, RENAME, ALTER, hidden, later, away, back]
    illegal = refuting(operations)
    assert illegal == ["id 7"]
    proof = certify(
        catalog_of_tables(operations),
        operations,
        check_operations(catalog_of_tables(operations), operations),
    )
    assert proof is not None
    assert proof.minimal
    assert (len(proof.core), proof.part) == (
        3,
        "id 7",
    )


def test_an_answer_without_an_id_may_be_about_any_table():
    operations = [
        Operation(0, Said("put", "x", 0), 0, True, 1, 0),
        Operation(0, Said("see", None, 0), 2, True, 3, 1),
        Operation(0, Said("take", "x", 0), 4, True, 5, 2),
    ]
    assert decided(CatalogName(), operations, {1})
    assert not decided(CatalogName(), operations[1:], {1})


def test_an_id_without_a_create_belongs_to_no_table():
    # After two renames with lost answers, views of names only show that some table got the name.
    moves: Ops = [
        Operation(number, Rename("a", name), 2, UNKNOWN, None, number)
        for number, name in ((1, "b"), (2, "c"))
    ]
    seen = done(3, "get", 6, 7, "b", ident=9, version=1, seen=5)
    operations: Ops = [CREATE, *moves, seen]
    assert not wing_and_gong(catalog_of_tables(operations), operations)
    refuted = refuting(operations)
    assert refuted == ["id 9"]
    outcome = check_operations(catalog_of_tables(operations), operations)
    proof = certify(catalog_of_tables(operations), operations, outcome)
    assert proof is not None
    assert (proof.core, proof.part) == ((3,), "id 9")
    # A create without a completion may have assigned the id.
    lost = Create("b", "9", ("payload 5",))
    operations.append(Operation(4, lost, 5, UNKNOWN, None, 4))
    assert result_of(operations) is Result.OK


@pytest.mark.parametrize("names", [("a", "a"), ("b", "a"), ("a", "b")])
def test_a_list_names_each_table_once_and_in_order(names):
    operations = [CREATE, done(1, "create", 2, 3, "b", ident=8, version=1)]
    listing = tuple((name, 7 if name == "a" else 8) for name in names)
    operations.append(done(2, "list", 4, 5, "", listing=listing))
    assert result_of(operations) is (Result.OK if names == ("a", "b") else Result.ILLEGAL)
    plain = replace(
        operations[2], output=Answer("ok", listing=tuple((n, "7", None) for n in names))
    )
    assert names != ("a", "a") or not wing_and_gong(
        catalog_of_tables(operations), [*operations[:2], plain]
    )


@pytest.mark.parametrize("shown", [2, 1])
def test_a_name_may_be_empty(shown):
    operations = [
        done(0, "create", 0, 1, "a", ident=7, version=1, payload=5),
        done(1, "ren", 2, 3, "a", to="", ident=7),
        done(2, "get", 4, 5, "", ident=7, version=shown, seen=5),
    ]
    expected = Result.OK if shown == 1 else Result.ILLEGAL
    assert result_of(operations) is expected
    names = {view.name for view in catalog_of_tables(operations).projections(operations)}
    assert {"name ''", "name 'a'"} <= names


def test_an_id_with_two_lives_has_no_view():
    again = [
        CREATE,
        done(1, "drop", 2, 3, "a", ident=7),
        done(2, "create", 4, 5, "a", ident=7, version=1, payload=3),
        done(3, "get", 6, 7, "a", ident=7, version=1, seen=3),
    ]
    assert result_of(again) is Result.OK
    names = [view.name for view in catalog_of_tables(again).projections(again)]
    assert names == ["name 'a'", "tenants of name 'a'"]


def test_an_id_that_came_to_a_name_twice_is_no_tenant():
    there_and_back = [
        CREATE,
        done(1, "ren", 2, 3, "a", to="b", ident=7),
        done(2, "get", 4, 5, "a", result="nf"),
        done(3, "ren", 6, 7, "b", to="a", ident=7),
        done(4, "get", 8, 9, "a", ident=7, version=1, seen=5),
    ]
    assert result_of(there_and_back) is Result.OK
    for view in catalog_of_tables(there_and_back).projections(there_and_back):
        assert check_operations(view.model, view.operations).result is Result.OK, view.name


@pytest.mark.usefixtures("short_windows")
def test_what_is_open_when_a_window_begins_may_have_happened_before():
    operations = [
        done(0, "create", 0, 20, "a", ident=7, version=1, payload=5),
        done(1, "alter", 2, 4, "a", ident=7, version=2, payload=6),
        done(2, "get", 6, 8, "a", ident=7, version=2, seen=6),
        done(3, "alter", 10, 12, "a", ident=7, version=3, payload=8),
        done(4, "get", 14, 16, "a", ident=7, version=3, seen=8),
        done(5, "get", 22, 24, "a", ident=7, version=3, seen=8),
    ]
    assert result_of(operations) is Result.OK
    assert refuting(operations, "window") == []


@pytest.mark.usefixtures("short_windows")
def test_what_leaves_within_a_window_is_not_seen_there_afterwards():
    operations = [
        done(0, "create", 0, 1, "a", ident=7, version=1, payload=5),
        done(1, "get", 2, 3, "a", ident=7, version=1, seen=5),
        done(2, "get", 4, 5, "a", ident=7, version=1, seen=5),
        done(3, "drop", 6, 7, "a", ident=7),
        done(4, "get", 8, 9, "a", ident=7, version=1, seen=5),
    ]
    assert refuting(operations, "window") == ["name 'a' from 4 on"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("total", "clients"), [(300, 4), (1000, 8), pytest.param(5000, 8, marks=pytest.mark.nightly)]
)
def test_cores_of_long_histories_are_small_and_proven(total, clients):
    sizes = []
    for seed in range({300: 12, 1000: 6, 5000: 2}[total]):
        rng = random.Random(seed)
        kind = catalog(20)
        operations = simulate(kind, rng, clients=clients, total=total, lost=0, lies=1)
        model = catalog_of_tables(operations)
        outcome = check_operations(model, operations)
        if outcome.result is Result.OK:
            continue  # a corrupted answer may be true by chance
        proof = certify(model, operations, outcome)
        assert proof is not None
        assert proof.confirmed_by == "the verifier, by enumeration"
        assert proof.minimal
        sizes.append(len(proof.core))
    assert len(sizes) >= {300: 4, 1000: 3, 5000: 1}[total]
    assert max(sizes) <= 8
